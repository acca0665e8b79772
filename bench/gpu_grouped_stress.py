"""What gpu_check.py asks of grouped GEMMs beyond random problems: threads, sanitizers, more rows than 31 bits count."""

import itertools
import random
import threading

import torch

from gpu_cases import LAYOUTS, differing
from gpu_fixture import Fixture
from gpu_grouped_cases import Problem, index_rows, masked_rows, offset_rows, prefix_rows
from gpu_library import HOPPER, ON
from gpu_timing import median_times

THREADS, RUNS = 8, 200
TALL_ROWS = 1_300_000


def small_rows() -> tuple:
    """Few rows in every form, some groups without any."""
    sizes = [3, 0, 70, 1]
    return (
        offset_rows(sizes, first=2, spare=3),
        prefix_rows(sizes, 64, spare=5),
        index_rows(sizes, 128, [2, 0, 3, 1], spare=7),
        masked_rows(sizes, 77),
    )


class GroupedStress(Fixture):
    def small_grouped(self):
        """Every kernel for groups once in every form: what the sanitizers run."""
        for rows, row_b_scales in itertools.product(small_rows(), (False, True)):
            layout = self.random.choice(LAYOUTS)
            p = Problem(rows, 136, 512, layout, self.generator, row_b_scales=row_b_scales)
            for row in p.explain(self.tested)["candidates"]:
                if "rejected" in row:
                    continue
                p.all.fill_(p.VALUE)
                p.prepare(self.tested, config=row["name"])()
                if wrong := p.wrong(self.tested, self.random, groups=4, rows=3):
                    raise AssertionError(f"{row['name']}, {rows}: {wrong}")

    def grouped_threads(self):
        """Eight threads on streams of their own, one context: each run has the bits of the thread's first."""
        cases = [self.thread_case(i) for i in range(THREADS)]
        streams = [torch.cuda.Stream() for _ in cases]
        moved, failures = [torch.zeros((), device="cuda", dtype=torch.int64) for _ in cases], []
        torch.cuda.synchronize()

        def work(i):
            p, first = cases[i]
            try:
                with torch.cuda.stream(streams[i]):
                    call = p.prepare(self.tested)
                    for _ in range(RUNS):
                        p.d.fill_(p.VALUE)
                        call()
                        moved[i].add_((first.view(torch.int16) != p.d.view(torch.int16)).sum())
            except Exception as e:  # a thread's exceptions end there
                failures.append(e)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        torch.cuda.synchronize()
        if failures:
            raise failures[0]
        if wrong := sum(int(count) for count in moved):
            raise AssertionError(f"{wrong} elements moved while eight threads ran")
        return {"threads": THREADS, "runs": RUNS}

    def thread_case(self, i: int):
        sizes = [random.Random(100 * i + g).randint(0, 90) for g in range(4 + 3 * i)]
        p = Problem(offset_rows(sizes), 1024 + 128 * i, 1024, "mn", self.generator)
        p.prepare(self.tested)()
        if wrong := p.wrong(self.tested, self.random, groups=2, rows=4):
            raise AssertionError(wrong)
        return p, p.d.clone()

    def grouped_tall(self):
        """1.3 million rows, D with more than 2^32 elements: in one group of 64, and spread evenly."""
        n, k, groups = 4096, 2048, 64
        out = {}
        for name, sizes in (
            ("even", [TALL_ROWS // groups] * groups),
            ("in one group", [0] * 20 + [TALL_ROWS] + [0] * (groups - 21)),
        ):
            p = Problem(offset_rows(sizes), n, k, "mn", self.generator)
            us = median_times({"finegemm": p.prepare(self.tested)}, 3)["finegemm"]
            if wrong := self.tall_wrong(p):
                raise AssertionError(f"{TALL_ROWS} rows, {name}: {wrong}")
            out[name] = {"us": round(us, 1), "tflop_per_s": round(2e-6 * p.rows.total() * n * k / us, 1)}
            del p
            torch.cuda.empty_cache()
        out["in one group"]["of_even"] = round(out["even"]["us"] / out["in one group"]["us"], 3)
        return out

    def tall_wrong(self, p: Problem) -> str:
        """The model's bits of some rows; Problem.wrong would take several times the memory of D."""
        for group, picked in p.sample(self.random, groups=3, rows=6):
            want = torch.empty(len(picked), p.n, dtype=torch.bfloat16)
            operands = (t.cpu() for t in (p.a[picked], p.sfa[picked], p.b[group], p.sfb[group]))
            self.tested.gemm(*operands, want, numerics=HOPPER, batch_invariant=ON)
            if wrong := differing(p.d[picked].contiguous(), want.cuda()):
                return f"{wrong} elements of rows {picked} of group {group} differ from the model"
        return ""
