"""What gpu_check.py checks and times of GEMMs with scales for each row of both operands: gradients of weights."""

import json
import math
import pathlib
import random

import torch
from gpu_cases import Guarded, differing, model, operands, sample_rows
from gpu_library import HOPPER
from gpu_timing import median_times, write_record

ROOT = pathlib.Path(__file__).resolve().parent.parent
# M, N, K: D is [M, N] in f32 and added to.
WGRAD_ROWS = (
    (2112, 4096, 7168),
    (576, 4096, 7168),
    (24576, 4096, 1536),
    (32768, 4096, 512),
    (7168, 4096, 16384),
    (4096, 4096, 7168),
    (7168, 4096, 2048),
)
# Groups, M, N, K of each as expected: D is [groups, M, N] in f32 and added to.
K_GROUPED_ROWS = (
    (4, 4096, 7168, 8192),
    (4, 7168, 2048, 8192),
    (8, 4096, 7168, 4096),
    (8, 7168, 2048, 4096),
    (16, 4096, 7168, 2048),
    (16, 7168, 2048, 2048),
)
LAYOUTS = ("row", "mn", "odd")


def kernel_names(output: str) -> list:
    """Of the kernels of this kind that can be named; `output`: "f32", "bf16" or "kgrouped"."""
    budget = json.loads((ROOT / "tests/golden/kernel_budget.json").read_text())
    end = {"f32": "_1d1d_f32", "bf16": "_1d1d", "kgrouped": "_1d1d_f32_kgrouped"}[output]
    return [name.removeprefix("finegemm_") for name in budget if name.endswith(end)]


class KGroups:
    """Operands of groups with so many k-blocks each; `before` and `after` them lie some of no group, with NaN."""

    VALUE, GAP = 7.0, 3

    def __init__(self, m, n, blocks, layout, generator, before=0, after=0, padding=0):
        ends = [128 * (before + sum(blocks[:i])) for i in range(len(blocks) + 1)]
        self.k = ends[-1] + 128 * after
        self.operands = operands(m, n, self.k, layout, generator, padding, row_b_scales=True)
        for s in (self.operands[1], self.operands[3]):
            s[:, :before] = math.nan
            s[:, before + sum(blocks) :] = math.nan
        self.offsets = torch.tensor(ends, device="cuda", dtype=torch.int32)
        self.all = torch.full((len(blocks), m + self.GAP, n + 8), self.VALUE, device="cuda")
        self.d = self.all[:, :m, :n]
        self.d.copy_(torch.randn(self.d.shape, device="cuda", generator=generator) * 1000)
        self.old = self.d.clone()

    def prepare(self, library, d=None, **options):
        return library.prepare_k_grouped(*self.operands, self.d if d is None else d, self.offsets, **options)

    def wrong(self, library, rows, accumulate) -> str:
        """What is not as the CPU's model of the hardware has it, or is around D and was written to."""
        a, sfa, b, sfb = self.operands
        want = self.old[:, rows].cpu()
        library.k_grouped_gemm(
            a[rows].cpu(), sfa[rows].cpu(), b.cpu(), sfb.cpu(), want, self.offsets.cpu(),
            numerics=HOPPER, accumulate=accumulate,
        )  # fmt: skip
        if count := differing(self.d[:, rows].contiguous(), want):
            return f"{count} elements differ from the model"
        m, n = self.d.shape[1:]
        around = (self.all[:, m:], self.all[:, :m, n:])
        return "" if all(bool((part == self.VALUE).all()) for part in around) else "wrote outside of D"


class Wgrad:
    """The class that inherits these has `tested`, `options`, `generator`, `random` and `machine`."""

    def takes(self, name, m):
        """A tile of half as many rows is for fewer rows."""
        tile_m = int(name[1 : name.index("n")])
        return tile_m == 64 or m > tile_m // 2

    def one_product(self, m, n, k, layout, config, output, accumulate, padding=0, rows=16):
        """One GEMM: its bits against the model's, and what lies around D."""
        x = operands(m, n, k, layout, self.generator, padding, row_b_scales=True)
        out = Guarded(m, n, torch.float32 if output == "f32" else torch.bfloat16)
        out.d.copy_(torch.randn(m, n, device="cuda", generator=self.generator) * 1000)
        old = out.d.clone()
        self.tested.gemm(*x, out.d, config=config, accumulate=accumulate)
        picked = sample_rows(m, rows, self.generator)
        wrong = differing(out.d[picked], model(self.tested, *x, picked, config, old, accumulate))
        what = f"{m}x{n}x{k} {config}, {layout} scales, padding {padding}, accumulate {accumulate}"
        if wrong:
            raise AssertionError(f"{what}: {wrong} elements differ from the model")
        if not out.intact():
            raise AssertionError(f"{what}: wrote outside of D")

    def one_d_one_d(self):
        """Random shapes with every kernel, all layouts, odd M, tails of K; then 200 runs with the same bits."""
        names = {output: kernel_names(output) for output in ("f32", "bf16")}
        count = 0
        while count < self.options.shapes // 2:
            m = self.random.choice((1, 2, 3, 7, 15, 33, 64, 65, 100, 128, 129, 200, 257, 384, 500, 777, 1000))
            n = 8 * self.random.randint(1, 150)
            k = self.random.choice((16 * self.random.randint(1, 200), 512 * self.random.randint(1, 6)))
            output = self.random.choice(("f32", "f32", "bf16"))
            accumulate = self.random.randint(0, 1) if output == "f32" else 0
            for config in (None, self.random.choice([x for x in names[output] if self.takes(x, m)])):
                layout, padding = self.random.choice(LAYOUTS), self.random.choice((0, 0, 16, 112))
                self.one_product(m, n, k, layout, config, output, accumulate, padding)
                count += 1
        for m, n, k in WGRAD_ROWS:
            for layout in ("mn", "row"):
                self.one_product(m, n, k, layout, None, "f32", 1, rows=4)
        self.repeat_one_d_one_d(names)
        return {"gemms": count + 2 * len(WGRAD_ROWS), "kernels": sum(map(len, names.values()))}

    def repeat_one_d_one_d(self, names):
        """D is added to again and again, from the same start: the same bits after each run."""
        for output, layout in (("f32", "mn"), ("f32", "row"), ("bf16", "mn"), ("bf16", "row")):
            for name in names[output]:
                x = operands(640, 2112, 2048, layout, self.generator, row_b_scales=True)
                dtype, bits, accumulate = (
                    (torch.float32, torch.int32, 1) if output == "f32" else (torch.bfloat16, torch.int16, 0)
                )
                start = torch.randn(640, 2112, device="cuda", generator=self.generator).to(dtype)
                first, again = start.clone(), start.clone()
                self.tested.gemm(*x, first, config=name, accumulate=accumulate)
                call = self.tested.prepare(*x, again, config=name, accumulate=accumulate)
                different = torch.zeros((), device="cuda", dtype=torch.int64)
                for _ in range(200):
                    again.copy_(start)
                    call()
                    different += (first.view(bits) != again.view(bits)).sum()
                if int(different):
                    raise AssertionError(f"{name}, {layout}: {int(different)} elements moved in 200 runs")

    def small_one_d_one_d(self):
        """Every kernel once, for memcheck."""
        for output in ("f32", "bf16"):
            for name in kernel_names(output):
                m = next(m for m in (5, 70, 257) if self.takes(name, m))
                for k, layout in ((1040, self.random.choice(LAYOUTS)), (1024, "row")):
                    self.one_product(m, 136, k, layout, name, output, int(output == "f32"), rows=4)
        for name in kernel_names("kgrouped"):
            m = next(m for m in (5, 70, 257) if self.takes(name, m))
            for accumulate in (0, 1):
                self.one_k_grouped(m, 136, [3, 0, 1, 9], self.random.choice(LAYOUTS), name, accumulate, 4, 1, 2, 16)

    def one_k_grouped(self, m, n, blocks, layout, config, accumulate, rows=16, before=0, after=0, padding=0):
        p = KGroups(m, n, blocks, layout, self.generator, before, after, padding)
        p.prepare(self.tested, config=config, accumulate=accumulate)()
        if wrong := p.wrong(self.tested, sample_rows(m, rows, self.generator), accumulate):
            raise AssertionError(
                f"{m}x{n}, blocks {blocks} from {before} to {after} before the end, {config}, {layout} scales, "
                f"padding {padding}, accumulate {accumulate}: {wrong}"
            )

    def k_grouped(self):
        """Random groups, empty ones too, with every kernel, added to D or not; then 1000 runs with the same bits."""
        names, count = kernel_names("kgrouped"), 0
        while count < self.options.shapes // 4:
            m = self.random.choice((1, 2, 7, 33, 64, 65, 100, 128, 129, 257, 384, 500, 777))
            n = 8 * self.random.randint(1, 120)
            groups = self.random.choice((1, 2, 3, 5, 8, 24))
            most = self.random.choice((0, 1, 2, 9, 30))
            blocks = [self.random.choice((0, self.random.randint(0, most))) for _ in range(groups)]
            before, after = self.random.choice(((0, 0), (1, 0), (2, 3)))
            if sum(blocks) + before + after == 0:
                after = 1
            for config in (None, self.random.choice([x for x in names if self.takes(x, m)])):
                layout, padding = self.random.choice(LAYOUTS), self.random.choice((0, 0, 16, 112))
                for accumulate in (0, 1):
                    self.one_k_grouped(m, n, blocks, layout, config, accumulate, 8, before, after, padding)
                    count += 1
        for layout in LAYOUTS:
            self.one_k_grouped(300, 136, [1] * 1024, layout, None, 1, rows=4)
        self.wild_k_offsets()
        self.repeat_k_grouped(names)
        return {"gemms": count + len(LAYOUTS), "kernels": len(names)}

    def wild_k_offsets(self):
        """Offsets that break the rules write nothing outside of D; what they read is the CPU's too."""
        for numbers in ((-(2**31), 2**31 - 1, -1, 5, 2**30), (1024, 0, 1024, 100, 99), (640, 640, 128, 2**31 - 1, 0)):
            p = KGroups(300, 136, [2, 2, 2, 2], "mn", self.generator)
            p.offsets.copy_(torch.tensor(numbers, dtype=torch.int32))
            p.prepare(self.tested)()
            if wrong := p.wrong(self.tested, sample_rows(300, 8, self.generator), 0):
                raise AssertionError(f"offsets {numbers}: {wrong}")

    def repeat_k_grouped(self, names):
        for name in names:
            p = KGroups(640, 2112, [7, 0, 16, 1, 3], "mn", self.generator)
            first, again = p.old.clone(), p.old.clone()
            p.prepare(self.tested, first, config=name, accumulate=1)()
            call = p.prepare(self.tested, again, config=name, accumulate=1)
            different = torch.zeros((), device="cuda", dtype=torch.int64)
            for _ in range(1000):
                again.copy_(p.old)
                call()
                different += (first.view(torch.int32) != again.view(torch.int32)).sum()
            if int(different):
                raise AssertionError(f"{name}: {int(different)} elements moved in 1000 runs")

    def k_grouped_speed(self):
        """Gradients of experts' weights, added to D in f32: the planner's choice and each kernel."""
        chance, rows = random.Random(0), []
        for groups, m, n, expected in K_GROUPED_ROWS:
            sizes = [max(1, int(expected * chance.uniform(0.7, 1.3))) for _ in range(groups)]
            blocks = [-(-size // 128) for size in sizes]
            p = KGroups(m, n, blocks, "mn", self.generator)
            d = p.old.zero_()
            calls = {"finegemm": p.prepare(self.tested, d, accumulate=1)} | {
                name: p.prepare(self.tested, d, accumulate=1, config=name)
                for name in kernel_names("kgrouped")
                if self.takes(name, m)
            }
            us = {name: round(t, 2) for name, t in median_times(calls, self.options.rounds).items()}
            tflops = round(2e-6 * m * n * p.k / us["finegemm"], 1)
            shape = [m, n, p.k]
            rows.append({"groups": groups, "expected_k": expected, "shape": shape, "tflop_per_s": tflops, "us": us})
            print(json.dumps(rows[-1]), flush=True)
            del p, d, calls
            torch.cuda.empty_cache()
        record = self.machine() | {
            "method": "bench/gpu_timing.py: CUPTI, L2 flushed, all kernels in turn, median of "
            f"{self.options.rounds}; groups have 0.7 to 1.3 of the expected k, drawn by seed 0 in this order and "
            "rounded up to multiples of 128",
            "rows": rows,
        }
        write_record(self.options.out / "k_grouped_h200.json", record)
        return {"tflops": [row["tflop_per_s"] for row in rows]}

    def wgrad(self):
        """Gradients of weights, added to D in f32: the planner's choice, other scales and outputs, each kernel."""
        rows = []
        for m, n, k in WGRAD_ROWS:
            a, sfa, b, sfb = operands(m, n, k, "mn", self.generator, row_b_scales=True)
            d = torch.zeros(m, n, device="cuda")
            half = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
            row_major = (a, sfa.contiguous(), b, sfb.contiguous())
            calls = {
                "finegemm": self.tested.prepare(a, sfa, b, sfb, d, accumulate=1),
                "row-major scales": self.tested.prepare(*row_major, d, accumulate=1),
                "overwritten": self.tested.prepare(a, sfa, b, sfb, d),
                "bf16": self.tested.prepare(a, sfa, b, sfb, half),
            } | {
                name: self.tested.prepare(a, sfa, b, sfb, d, accumulate=1, config=name)
                for name in kernel_names("f32")
                if self.takes(name, m)
            }
            us = {name: round(t, 2) for name, t in median_times(calls, self.options.rounds).items()}
            rows.append({"kind": "wgrad", "shape": [m, n, k], "us": us})
            print(json.dumps(rows[-1]), flush=True)
        record = self.machine() | {"rows": rows}
        (self.options.out / "wgrad_h200.json").write_text(json.dumps(record, indent=1) + "\n")
        return {"tflops": [round(2 * math.prod(row["shape"]) / row["us"]["finegemm"] / 1e6) for row in rows]}
