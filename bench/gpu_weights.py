"""Checks of quantisation of weights on a GPU: bits of the CPU backend, what surrounds the outputs, bandwidth."""

import functools
import itertools
import math

import torch

from gpu_cases import blocks
from gpu_columns import TYPES, as_bytes, canaries
from gpu_fixture import Fixture, TooSlow
from gpu_library import Library
from gpu_timing import median_times


class Problem:
    """A random quantisation of a stack of weights. Outputs are parts of memory."""

    def __init__(self, random, generator, dtype=None, extents=None):
        self.g, self.n, self.k = extents or (
            random.choice((1, 1, 3)),
            16 * random.choice((1, 8, 9, random.randint(1, 80))),
            16 * random.choice((1, 8, 9, random.randint(1, 160))),
        )
        self.power_of_two, self.pad = random.random() < 0.5, 16 * random.choice((0, 3))
        shape = (self.g, self.n + 1, self.k + self.pad)
        x = torch.randn(shape, device="cuda", generator=generator) * 10 ** random.uniform(-6, 3)
        x[0, 0, :3] = torch.tensor([math.nan, math.inf, -math.inf])
        x[:, -128:] = 0
        self.x = x.to(dtype or random.choice(TYPES))[:, : self.n, : self.k]

    def memory(self, device: str) -> dict[str, torch.Tensor]:
        """All that is written, with what lies between and around."""
        down, across = blocks(self.n) + 1, blocks(self.k) + 1
        codes, pad = torch.float8_e4m3fn, self.pad
        return {
            "q": canaries(self.g * (self.n + 1), self.k + pad, codes, device).view(self.g, self.n + 1, -1),
            "scales": canaries(self.g * down, across, torch.float32, device).view(self.g, down, -1),
            "transposed": canaries(self.g * (self.k + 1), self.n + pad, codes, device).view(self.g, self.k + 1, -1),
        }

    def run(self, library: Library, memory: dict[str, torch.Tensor]) -> None:
        library.quantize_weights(
            self.x.to(memory["q"].device),
            memory["q"][:, : self.n, : self.k],
            memory["scales"][:, : blocks(self.n), : blocks(self.k)],
            memory["transposed"][:, : self.k, : self.n],
            self.power_of_two,
        )

    def __str__(self):
        return f"quantize_weights {self.g}x{self.n}x{self.k} {self.x.dtype}, pow2 {self.power_of_two}"


class Weights(Fixture):
    def quantize_weights(self):
        """GPU and CPU give the same bits, and write nothing else."""
        count = max(12, self.options.shapes // 10)
        for i in range(count):
            problem = Problem(self.random, self.generator, TYPES[i % 3])
            results = []
            for device in ("cuda", "cpu"):
                memory = problem.memory(device)
                problem.run(self.tested, memory)
                results.append(as_bytes(memory).cpu())
            if not torch.equal(*results):
                raise AssertionError(f"{problem}: GPU and CPU differ in {(results[0] != results[1]).sum()} bytes")
        return {"cases": count}

    def small_quantize_weights(self):
        """Every kernel for blocks, with the codes transposed."""
        for dtype in TYPES:
            problem = Problem(self.random, self.generator, dtype, (2, 144, 144))
            problem.run(self.tested, problem.memory("cuda"))

    def quantize_weights_bandwidth(self):
        """Of bf16 and f32, of a matrix and of a stack, against copies of as many bytes."""
        out = {}
        for dtype, groups in itertools.product((torch.bfloat16, torch.float32), (1, 8)):
            x = torch.randn(groups, 4096, 7168, device="cuda", generator=self.generator).to(dtype)
            q = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device="cuda")
            scales = torch.empty(groups, 32, 56, device="cuda")
            transposed = torch.empty(groups, 7168, 4096, dtype=torch.float8_e4m3fn, device="cuda")
            half = torch.empty((x.nbytes + q.nbytes + transposed.nbytes) // 2, dtype=torch.uint8, device="cuda")
            calls = {
                "weights": functools.partial(self.tested.quantize_weights, x, q, scales, transposed),
                "copy": functools.partial(torch.empty_like(half).copy_, half),
            }
            t = median_times(calls, self.options.rounds)
            of_copy, us = round(t["copy"] / t["weights"], 3), {name: round(us, 1) for name, us in t.items()}
            out[f"{groups}x4096x7168 {dtype}"] = {"of_copy": of_copy, "us": us}
        worst = min(row["of_copy"] for row in out.values())
        if worst < 0.8:
            raise TooSlow(f"quantisation of weights reaches {worst:.2f} of the bandwidth of a copy: {out}")
        return out
