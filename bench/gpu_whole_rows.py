"""Checks of quantisation with one scale for each row: the CPU's bits, what surrounds the outputs, bandwidth."""

import functools
import itertools
import math

import torch

from gpu_cases import CODES, blocks
from gpu_columns import TYPES, as_bytes, canaries
from gpu_fixture import Fixture, TooSlow
from gpu_library import Library
from gpu_timing import median_times

ALL_CODES = (*CODES, torch.int8)
LENGTHS = (16, 128, 144, 512, 1024, 1040, 4096, 7168, 8192, 8208, 16384, 16400, 40000)


class Problem:
    """A random quantisation of whole rows. Outputs are parts of memory."""

    def __init__(self, random, generator, shape=None, dtype=None, codes=None):
        k = 16 * random.randint(1, 400) if random.random() < 0.5 else random.choice(LENGTHS)
        self.m, self.k = shape or (random.choice((1, 2, 17, random.randint(1, 1 + 400_000 // k))), k)
        self.power_of_two, self.pad = random.random() < 0.5, 16 * random.choice((0, 3))
        self.codes = codes or random.choice(ALL_CODES)
        x = torch.randn(self.m, self.k + self.pad, device="cuda", generator=generator) * 10 ** random.uniform(-6, 3)
        x[0, : min(3, self.k)] = torch.tensor([math.nan, math.inf, -math.inf])[: self.k]
        x[self.m // 2 :: 7] = random.choice((0.0, math.nan))  # rows of nothing that has a say in their scale
        x[:, self.k :] = math.inf
        self.x = x.to(dtype or random.choice(TYPES))[:, : self.k]

    def memory(self, device: str) -> dict[str, torch.Tensor]:
        """All that is written, with what lies between and around."""
        return {
            "q": canaries(self.m, self.k + self.pad, self.codes, device),
            "scales": canaries(self.m, 1 + self.pad, torch.float32, device),
        }

    def run(self, library: Library, memory: dict[str, torch.Tensor]) -> None:
        q, scales = memory["q"][:, : self.k], memory["scales"][:, :1]
        library.quantize("whole_rows", self.x.to(q.device), q, scales, self.power_of_two)

    def __str__(self):
        return f"whole rows of {self.m}x{self.k} {self.x.dtype} to {self.codes}, pow2 {self.power_of_two}"


class WholeRows(Fixture):
    def whole_rows(self):
        """GPU and CPU give the same bits, and write nothing else."""
        kinds = itertools.cycle(itertools.product(TYPES, ALL_CODES))
        for _, (dtype, codes) in zip(range(self.options.shapes), kinds, strict=False):
            problem = Problem(self.random, self.generator, None, dtype, codes)
            results = []
            for device in ("cuda", "cpu"):
                memory = problem.memory(device)
                problem.run(self.tested, memory)
                results.append(as_bytes(memory).cpu())
            if not torch.equal(*results):
                raise AssertionError(f"{problem}: GPU and CPU differ in {(results[0] != results[1]).sum()} bytes")
        return {"cases": self.options.shapes}

    def whole_rows_repeat(self):
        """The same bits each time, and by a graph; on two streams at once, too."""
        problems = [Problem(self.random, self.generator, shape) for shape in ((300, 1024), (70, 7168), (9, 40000))]
        memories = [problem.memory("cuda") for problem in problems]
        calls = [
            (str(problem), memory["q"].view(torch.uint8), functools.partial(problem.run, self.tested, memory))
            for problem, memory in zip(problems, memories, strict=True)
        ]
        firsts = self.repeated_by_graph(calls)
        streams = [torch.cuda.Stream() for _ in calls]
        torch.cuda.synchronize()
        for _ in range(self.RUNS):
            for stream, (_, _, call) in zip(streams, calls, strict=True):
                with torch.cuda.stream(stream):
                    call()
        torch.cuda.synchronize()
        for (what, d, _), first in zip(calls, firsts, strict=True):
            if count := (d != first).sum():
                raise AssertionError(f"{what}: {count} elements are others beside other streams")
        return {"runs": self.RUNS}

    def whole_rows_tall(self):
        """Where offsets in bytes and elements pass 2^31: of short rows, and of rows in parts."""
        for m, k in ((2_200_000, 1024), (70_000, 32_768)):
            x = torch.zeros(m, k, dtype=torch.bfloat16, device="cuda")
            probed = [0, 1, m // 2, m - 1]
            x[probed] = torch.randn(len(probed), k, device="cuda", generator=self.generator).bfloat16()
            q, scales = torch.empty(m, k, dtype=torch.int8, device="cuda"), torch.empty(m, 1, device="cuda")
            self.tested.quantize("whole_rows", x, q, scales)
            want, want_scales = torch.empty(len(probed), k, dtype=torch.int8), torch.empty(len(probed), 1)
            self.tested.quantize("whole_rows", x[probed].cpu(), want, want_scales)
            same = torch.equal(q[probed].cpu(), want) and torch.equal(scales[probed].cpu(), want_scales)
            if not same or (scales != 1).sum() > len(probed) or q.count_nonzero() != want.count_nonzero():
                raise AssertionError(f"whole rows of {m}x{k}: GPU and CPU differ")
        return {"elements": m * k}

    def small_whole_rows(self):
        """Every kernel for whole rows: of one warp, of several, and of rows in parts."""
        for dtype, codes, shape in itertools.product(TYPES, ALL_CODES, ((40, 144), (3, 3072), (2, 17424))):
            problem = Problem(self.random, self.generator, shape, dtype, codes)
            problem.run(self.tested, problem.memory("cuda"))

    def whole_rows_bandwidth(self):
        """Of bf16 to integers against scales for 128 columns, beside a copy of as many bytes."""
        out = {}
        for rows, cols in ((4096, 7168), (8192, 7168), (8192, 2048), (4096, 16384), (4096, 28672), (64, 7168)):
            x = torch.randn(rows, cols, device="cuda", generator=self.generator).bfloat16()
            q, whole = torch.empty(rows, cols, dtype=torch.int8, device="cuda"), torch.empty(rows, 1, device="cuda")
            half = torch.empty(rows * cols * 3 // 2, dtype=torch.uint8, device="cuda")
            calls = {
                "whole_rows": functools.partial(self.tested.quantize, "whole_rows", x, q, whole),
                "rows": functools.partial(self.tested.quantize, "rows", x, q, whole.new_empty(rows, blocks(cols))),
                "copy": functools.partial(torch.empty_like(half).copy_, half),
            }
            t = median_times(calls, self.options.rounds)
            of_copy = round(t["copy"] / t["whole_rows"], 3)
            out[f"{rows}x{cols}"] = {"of_copy": of_copy, "us": {name: round(us, 1) for name, us in t.items()}}
        worst = min(row["us"]["rows"] / row["us"]["whole_rows"] for row in out.values())
        if worst < 0.85:
            raise TooSlow(f"quantisation of whole rows reaches {worst:.2f} of that of 128 columns: {out}")
        return out
