"""What gpu_check.py times: layouts of scales, quantisation, and the dense table beside cuBLASLt."""

import functools

import torch

from dense_table import DENSE_NK, DENSE_ROWS
from gpu_cases import blocks, operands
from gpu_fixture import TooSlow, row_of
from gpu_timing import ceilings, median_times
from gpu_unscaled_speed import UnscaledSpeed
from records import geometric_mean, ratios, write_record


class Speed(UnscaledSpeed):
    def layouts(self):
        """Row-major against MN-major scales: less than 2% of time between them, in geometric mean over six shapes."""
        over = []
        for m, n, k in (
            (1, 7168, 16384),
            (64, 4096, 7168),
            (128, 7168, 2048),
            (512, 4096, 7168),
            (2048, 7168, 2048),
            (4096, 4096, 7168),
        ):
            d = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
            a, sfa, b, sfb = operands(m, n, k, "mn", self.generator)
            calls = {
                "mn": self.tested.prepare(a, sfa, b, sfb, d),
                "row": self.tested.prepare(a, sfa.contiguous(), b, sfb.contiguous(), d),
            }
            t = median_times(calls, 2 * self.options.rounds)
            over.append(t["row"] / t["mn"])
        mean = geometric_mean(over)
        if not 0.98 < mean < 1.02:
            raise TooSlow(f"row-major scales take {mean:.3f} of the time of MN-major ones")
        return {"row_over_mn": round(mean, 4), "each": [round(x, 3) for x in over]}

    def bandwidth(self):
        """Quantisation of bf16 against a copy of as many bytes."""
        out = {}
        for rows, cols in ((4096, 7168), (8192, 7168), (7168, 16384)):
            x = torch.randn(rows, cols, device="cuda", generator=self.generator).bfloat16()
            q = torch.empty(rows, cols, dtype=torch.float8_e4m3fn, device="cuda")
            # A copy reads and writes it: 3 bytes an element, as quantisation moves.
            half = torch.empty(rows * cols * 3 // 2, dtype=torch.uint8, device="cuda")
            to = torch.empty_like(half)
            s = {
                "rows": torch.empty(rows, blocks(cols), device="cuda"),
                "blocks": torch.empty(blocks(rows), blocks(cols), device="cuda"),
            }
            calls = {kind: functools.partial(self.tested.quantize, kind, x, q, s[kind]) for kind in s}
            calls["copy"] = functools.partial(to.copy_, half)
            t = median_times(calls, self.options.rounds)
            out[f"{rows}x{cols}"] = {kind: round(t["copy"] / t[kind], 3) for kind in s} | {
                "us": {n: round(v, 1) for n, v in t.items()}
            }
        worst = min(row[kind] for row in out.values() for kind in ("rows", "blocks"))
        if worst < 0.8:
            raise TooSlow(f"quantisation reaches {worst:.2f} of the bandwidth of a copy: {out}")
        return out

    def speed(self):
        """The dense table, with cuBLASLt in both modes and the ceilings in the same run."""
        one = torch.ones((), device="cuda")
        rows = []
        for m in DENSE_ROWS:
            for n, k in DENSE_NK:
                a, sfa, b, sfb = operands(m, n, k, "mn", self.generator)
                d = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
                calls = {
                    "finegemm": self.tested.prepare(a, sfa, b, sfb, d),
                    "cublas_tensor": functools.partial(
                        torch._scaled_mm, a, b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True
                    ),
                }
                if m % 4 == 0 and (block := self.cublas_block(a, sfa, b, sfb)):
                    calls["cublas_block"] = block
                t = median_times(calls, self.options.rounds)
                rows.append(row_of("dense", [m, n, k], t, self.tested.explain(m, n, k)))
        record = self.machine() | {
            "method": f"bench/gpu_timing.py: CUPTI, L2 flushed, interleaved, median of {self.options.rounds}",
            "ceilings_us": ceilings(),
            "rows": rows,
        }
        write_record(self.options.out / f"{self.card}.json", record)
        return {
            "rows": len(rows),
            "geomean_over_cublas_tensor": round(geometric_mean(ratios(rows, "cublas_tensor")), 4),
        }

    @staticmethod
    def cublas_block(a, sfa, b, sfb):
        """cuBLASLt with the same scales, where this torch has it and takes the shape."""
        try:
            from torch.nn.functional import ScalingType, scaled_mm

            rows = sfb.contiguous()
            call = functools.partial(
                scaled_mm,
                a,
                b.t(),
                sfa,
                ScalingType.BlockWise1x128,
                rows.t(),
                ScalingType.BlockWise128x128,
                output_dtype=torch.bfloat16,
            )
            call()
            return call
        except (ImportError, RuntimeError, ValueError):
            return None
