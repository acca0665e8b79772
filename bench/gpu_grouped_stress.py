"""What gpu_check.py asks of grouped GEMMs beyond random problems: sanitizers, more rows than 31 bits count."""

import itertools

import torch

from gpu_cases import LAYOUTS, differing
from gpu_fixture import Fixture
from gpu_grouped_cases import Problem, index_rows, masked_rows, offset_rows, prefix_rows, small_rows
from gpu_library import HOPPER, ON
from gpu_timing import median_times

TALL_ROWS = 1_300_000


class GroupedStress(Fixture):
    def small_grouped(self):
        """Every kernel for groups once in every form: what the sanitizers run."""
        layouts = ((1552, self.random.choice(LAYOUTS)), (1536, "row"))  # rings of up to ten stages go around
        for rows, row_b_scales, (k, layout) in itertools.product(small_rows(), (False, True), layouts):
            p = Problem(rows, 136, k, layout, self.generator, padding=16, gap=1, row_b_scales=row_b_scales)
            for row in p.explain(self.tested)["candidates"]:
                if "rejected" in row:
                    continue
                print(p.explain(self.tested)["line"], row["name"], layout, flush=True)
                p.out.all.fill_(p.VALUE)
                p.prepare(self.tested, config=row["name"])()
                if wrong := p.wrong(self.tested, self.random, groups=4, rows=3):
                    raise AssertionError(f"{row['name']}, {rows}: {wrong}")

    def grouped_tall(self):
        """1.3 million rows, D with more than 2^32 elements: in one group of 64, in every form, and spread evenly."""
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
        alone = [0, TALL_ROWS, 0]
        for rows in (index_rows(alone, 128, [0, 1, 2]), prefix_rows(alone, 128), masked_rows(alone[:2], TALL_ROWS)):
            p = Problem(rows, n, k, "row", self.generator)
            p.prepare(self.tested)()
            if wrong := self.tall_wrong(p):
                raise AssertionError(f"{TALL_ROWS} rows of one group, form {rows.form}: {wrong}")
            del p
            torch.cuda.empty_cache()
        out["in one group"]["of_even"] = round(out["even"]["us"] / out["in one group"]["us"], 3)
        return out

    def tall_wrong(self, p: Problem) -> str:
        """The model's bits of some rows; Problem.wrong would take several times the memory of D."""
        a, sfa, d = p.stacked
        for group, picked in p.sample(self.random, groups=3, rows=6):
            at = p.rows.matrix_of(group), picked
            want = torch.empty(len(picked), p.n, dtype=torch.bfloat16)
            operands = (t.cpu() for t in (a[at], sfa[at], p.b[group], p.sfb[group]))
            self.tested.gemm(*operands, want, numerics=HOPPER, batch_invariant=ON)
            if wrong := differing(d[at].contiguous(), want.cuda()):
                return f"{wrong} elements of rows {picked} of group {group} differ from the model"
        return ""
