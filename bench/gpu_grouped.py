"""What gpu_check.py checks and times of grouped GEMMs."""

import itertools
import random

import torch

from gpu_cases import LAYOUTS, operands, rounded_up
from gpu_fixture import Fixture
from gpu_grouped_cases import Problem, masked_rows, offset_rows, random_launch, random_rows
from gpu_library import INDICES, MASKED, OFFSETS, PREFIX_SUMS
from gpu_timing import median_times
from records import write_record

FORMS = {OFFSETS: "offsets", INDICES: "indices", PREFIX_SUMS: "prefix_sums", MASKED: "masked"}

# Groups and rows of each, as decoding steps and prompts have them; layers of experts.
MASKED_SHAPES = ((32, 192), (6, 1024), (32, 20), (6, 20), (1, 1024), (2, 512), (4, 256), (64, 4), (9, 64))
RAGGED_SHAPES = ((4, 8192), (8, 4096), (32, 256), (64, 64))
EXPERT_NK = ((6144, 7168), (7168, 3072), (4096, 4096), (4096, 2048), (4096, 7168), (7168, 2048))
CEILING_EXTENT = 8192


def capacity_of(typical: int) -> int:
    """Rows that each masked group may have, of which so many are expected."""
    return rounded_up(max(int(typical * 1.3) + 1, 128), 128)


def table_cases(chance=None):
    """(kind, rows, expected rows of a group, n, k): groups have 0.7 to 1.3 of the expected rows, drawn by seed 0, or by
    `chance`, which is then where the draws of groups of K begin."""
    chance = chance or random.Random(0)
    for kind, shapes in (("masked", MASKED_SHAPES), ("contiguous", RAGGED_SHAPES), ("prefix_sums", RAGGED_SHAPES)):
        for (groups, typical), (n, k) in itertools.product(shapes, EXPERT_NK):
            sizes = [int(typical * chance.uniform(0.7, 1.3)) for _ in range(groups)]
            if kind == "masked":
                rows = masked_rows([max(1, size) for size in sizes], capacity_of(typical))
            else:
                rows = offset_rows(sizes)
            yield kind, rows, typical, n, k


def expected_m_of(rows, typical: int) -> int:
    """Rows that a call says a group has: other forms than masked ones tell how many there are together."""
    return typical if rows.form == MASKED else 0


def useful_bytes(rows, n: int, k: int) -> int:
    """A, D and the weights of groups that have rows, once each."""
    return rows.total() * k + rows.busy() * n * k + 2 * rows.total() * n


def cut(total: int, groups: int, chance: random.Random) -> list:
    """Sizes of groups that share `total` rows at random."""
    cuts = [0, *sorted(chance.randint(0, total) for _ in range(groups - 1)), total]
    return [end - begin for begin, end in itertools.pairwise(cuts)]


class Grouped(Fixture):
    def grouped(self):
        """Random groups in every form, each with the planner's choice and with another kernel."""
        count, kernels, forms = 0, set(), itertools.cycle(FORMS)
        while count < max(len(FORMS), self.options.shapes * 5 // 2):
            rows = random_rows(self.random, next(forms))
            small = rows.groups > 100  # weights of all of them shall fit
            n = 8 * self.random.randint(1, 16 if small else 80)
            k = self.random.choice((16 * self.random.randint(1, 20 if small else 100), 512))
            layout, padding = self.random.choice(LAYOUTS), self.random.choice((0, 0, 16, 112))
            gap, of_rows = self.random.choice((0, 0, 1, 5)), self.random.choice((False, True))
            p = Problem(rows, n, k, layout, self.generator, padding, gap, row_b_scales=of_rows)
            account = p.explain(self.tested)
            usable = [row["name"] for row in account["candidates"] if "rejected" not in row]
            for config in (None, self.random.choice(usable)):
                p.out.all.fill_(p.VALUE)
                p.prepare(self.tested, config=config, **random_launch(self.random))()
                if wrong := p.wrong(self.tested, self.random, groups=4, rows=6):
                    what = f"{rows.groups} groups by {FORMS[rows.form]}, alignment {rows.alignment}, {rows.m}x{n}x{k}"
                    name = config or account["chosen"]["name"]
                    raise AssertionError(f"{what}, {name}, {layout} scales, padding {padding}: {wrong}")
                kernels.add(config or account["chosen"]["name"])
            count += 1
        return {"problems": count, "kernels": len(kernels)}

    def grouped_repeat(self):
        """200 runs of every kernel for groups give the same bits."""
        rows = offset_rows(cut(1000, 12, random.Random(1)), first=3, spare=5)
        kernels = set()
        for layout, of_rows in itertools.product(("mn", "row"), (False, True)):
            p = Problem(rows, 2112, 2048, layout, self.generator, row_b_scales=of_rows)
            account = p.explain(self.tested)
            names = [row["name"] for row in account["candidates"]]
            kernels |= set(names)
            for row in account["candidates"]:
                if "rejected" in row:
                    raise AssertionError(f"{row['name']} cannot take this problem: {row['rejected']}")
            for name in names:
                self.repeated(f"{name}, {layout}", p.prepare(self.tested, config=name), p.d)
        return {"kernels": len(kernels), "layouts": 2, "runs": self.RUNS}

    def grouped_capacity(self):
        """One graph of a launch for 8192 rows, replayed with fewer: right, and as fast as a launch for as many."""
        capacity, groups, n, k = 8192, 64, 4096, 2048
        p = Problem(offset_rows(cut(capacity, groups, random.Random(1))), n, k, "mn", self.generator)
        kernel = p.explain(self.tested)["chosen"]["name"]
        launch = p.prepare(self.tested)
        launch()  # loads the kernel, which a capture would not allow
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch()
        times = {}
        for rows in (0, 1, 100, 1000, capacity):
            valid = offset_rows(cut(rows, groups, random.Random(rows)), spare=capacity - rows)
            p.rows, p.owned = valid, valid.owned(p.d.device)
            p.numbers.copy_(torch.tensor(valid.numbers, dtype=torch.int32))
            p.out.all.fill_(p.VALUE)
            graph.replay()
            torch.cuda.synchronize()
            if wrong := p.wrong(self.tested, self.random, groups=3, rows=4):
                raise AssertionError(f"{rows} rows of {capacity}: {wrong}")
            m = max(1, rows)  # a call without rows launches nothing
            some = (p.a[:m], p.sfa[:m], p.b, p.sfb, p.d[:m], p.numbers, OFFSETS)
            calls = {
                "graph": graph.replay,
                "exact": self.tested.prepare_grouped(*some, config=kernel),
                "planned": self.tested.prepare_grouped(*some),  # the kernel that so many rows get
            }
            t = times[rows] = {name: round(us, 2) for name, us in median_times(calls, self.options.rounds).items()}
            t["within_target"] = t["graph"] <= 1.03 * t["exact"] + 1
            if t["graph"] > 1.1 * t["exact"] + 2:
                raise AssertionError(f"{rows} rows of {capacity}: {t} us")
        return {"kernel": kernel, "us": times}

    def grouped_speed(self):
        """Experts of real layers: times, and a product of cuBLASLt that is large enough to be a ceiling, in turn."""
        x, _, y, _ = operands(CEILING_EXTENT, CEILING_EXTENT, CEILING_EXTENT, "mn", self.generator)
        one = torch.ones((), device=x.device)

        def ceiling():
            torch._scaled_mm(x, y.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True)

        out = [
            {"kind": kind} | self.grouped_row(rows, typical, n, k, ceiling)
            for kind, rows, typical, n, k in table_cases()
        ]
        record = self.machine() | {
            "method": "bench/gpu_timing.py: CUPTI, L2 flushed, in turn with the ceiling, median of "
            f"{self.options.rounds}; groups have 0.7 to 1.3 of the expected rows, drawn by seed 0 in this order; only "
            "of masked ones the kernel is chosen by that, of others by all rows",
            "ceiling": f"cublas_tensor fp8 {CEILING_EXTENT}^3",
            "rows": out,
        }
        write_record(self.options.out / f"grouped_{self.card}.json", record)
        return {"rows": len(out), "best_tflop_per_s": max(row["tflop_per_s"] for row in out)}

    def grouped_row(self, rows, typical: int, n: int, k: int, ceiling) -> dict:
        p = Problem(rows, n, k, "mn", self.generator)
        expected = expected_m_of(rows, typical)
        calls = {"finegemm": p.prepare(self.tested, expected_m=expected), "ceiling": ceiling}
        t = median_times(calls, self.options.rounds)
        if wrong := p.wrong(self.tested, self.random, groups=1, rows=2):
            raise AssertionError(f"{rows.groups} groups of about {typical} rows, {n}x{k}: {wrong}")
        us, account = t["finegemm"], p.explain(self.tested, expected)
        return {
            "problem": account["line"],
            "form": FORMS[rows.form],
            "groups": rows.groups,
            "expected_m": typical,
            "capacity": rows.m,
            "shape": [rows.total(), n, k],
            "us": round(us, 2),
            "ceiling_us": round(t["ceiling"], 2),
            "tflop_per_s": round(2e-6 * rows.total() * n * k / us, 1),
            "gb_per_s": round(1e-3 * useful_bytes(rows, n, k) / us, 1),
            "kernel": account["chosen"]["name"],
        }

    def grouped_skew(self):
        """Uneven groups beside even ones, and many small experts beside what the memory allows."""
        experts, total = 64, 4096
        crowded = total * 9 // 10
        zipf = [1 / (i + 1) for i in range(experts)]
        spreads = {
            "even": [total // experts] * experts,
            "one expert has 90%": [crowded, *(self.even(total - crowded, experts - 1))],
            "zipf": [round(total * share / sum(zipf)) for share in zipf],
            "half are empty": [2 * total // experts, 0] * (experts // 2),
        }
        out = {name: self.skewed(sizes, 4096, 7168) for name, sizes in spreads.items()}
        for row in out.values():
            row["of_even"] = round(out["even"]["us"] / row["us"], 3)
        for count, (n, k) in itertools.product((128, 256, 384), ((768, 2048), (512, 7168), (256, 4096))):
            sizes = [random.Random(count + i).randint(1, 8) for i in range(count)]
            out[f"{count} experts of 1 to 8 rows, {n}x{k}"] = self.skewed(sizes, n, k)
        return out

    @staticmethod
    def even(total: int, groups: int) -> list:
        return [total * (i + 1) // groups - total * i // groups for i in range(groups)]

    def skewed(self, sizes: list, n: int, k: int) -> dict:
        rows = offset_rows(sizes)
        p = Problem(rows, n, k, "mn", self.generator)
        us = median_times({"finegemm": p.prepare(self.tested)}, self.options.rounds)["finegemm"]
        if wrong := p.wrong(self.tested, self.random, groups=1, rows=2):
            raise AssertionError(f"{len(sizes)} experts, {rows.total()}x{n}x{k}: {wrong}")
        floor = useful_bytes(rows, n, k) / self.bytes_per_us
        kernel = p.explain(self.tested)["chosen"]["name"]
        return {"us": round(us, 2), "of_floor": round(floor / us, 3), "kernel": kernel}
