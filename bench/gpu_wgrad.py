"""What gpu_check.py checks and times of GEMMs with scales for each row of both operands: gradients of weights."""

import json
import math
import pathlib

import torch
from gpu_cases import Guarded, differing, model, operands, sample_rows
from gpu_timing import median_times

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
LAYOUTS = ("row", "mn", "odd")


def kernel_names(output: str) -> list:
    """Of the kernels of this kind that can be named; `output`: "f32" or "bf16"."""
    budget = json.loads((ROOT / "tests/golden/kernel_budget.json").read_text())
    end = "_1d1d_f32" if output == "f32" else "_1d1d"
    return [name.removeprefix("finegemm_") for name in budget if name.endswith(end)]


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
