"""Checks of SwiGLU with quantisation on a GPU: bits of the CPU backend, what surrounds the outputs, bandwidth."""

import functools
import math

import torch

from gpu_cases import blocks
from gpu_columns import CANARY, as_bytes, canaries
from gpu_fixture import Fixture, TooSlow
from gpu_library import INDICES, MASKED, OFFSETS, PREFIX_SUMS, WHOLE, Library
from gpu_timing import median_times

TYPES = (torch.bfloat16, torch.float32)
FORMS = (WHOLE, OFFSETS, INDICES, PREFIX_SUMS, MASKED)
RULES: tuple[dict[str, float], ...] = (
    {},
    {"gate_limit": 7.0, "gate_alpha": 1.702, "up_offset": 1.0},
    {"gate_limit": 10.0},
)


class Problem:
    """Random values, some huge, in groups or not. Rows of no group are NaN. Outputs are parts of memory."""

    def __init__(self, random, generator, dtype=None, form: int | None = None, rows: int | None = None):
        self.form = random.choice(FORMS) if form is None else form
        self.count = random.choice((1, 3, 8)) if self.form in (WHOLE, MASKED) else 1
        self.m = random.choice((1, 127, 300, random.randint(1, 2000))) if rows is None else rows
        self.pairs = 16 * random.choice((1, 8, 9, 32, 33, 128, random.randint(1, 260)))
        self.mn_major, self.pad = random.random() < 0.7, 16 * random.choice((0, 3))
        self.options = dict(random.choice(RULES)) | {"interleaved": random.random() < 0.5}
        self.options |= {name: random.random() < 0.5 for name in ("to_bf16", "power_of_two_scales")}
        self.alignment = random.choice((1, 64, 128))
        shape = self.count, self.m, 2 * self.pairs + self.pad
        x = torch.randn(shape, device="cuda", generator=generator)
        x *= 10 ** torch.empty(self.count, self.m, 1, device="cuda").uniform_(-6, 3, generator=generator)
        self.weights = None
        if random.random() < 0.5:
            self.weights = torch.randn(self.count, self.m, device="cuda", generator=generator)
        x[0, 0, :3] = torch.tensor([math.nan, math.inf, -math.inf])
        self.numbers, held = self.groups(random)
        x[~held.to(x.device)] = math.nan
        x[..., 2 * self.pairs :] = math.nan
        self.x = x.to(dtype or random.choice(TYPES))

    def groups(self, random) -> tuple[torch.Tensor | None, torch.Tensor]:
        """The numbers, and which rows have a group."""
        m, held = self.m, torch.zeros(self.count, self.m, dtype=torch.bool)
        if self.form == WHOLE:
            return None, ~held
        if self.form == MASKED:
            numbers = [random.choice((0, m, random.randint(0, m))) for _ in range(self.count)]
            for g, count in enumerate(numbers):
                held[g, :count] = True
        elif self.form == INDICES:
            numbers = [random.choice((-1, 0, 5)) for _ in range(m)]
            held[0] = torch.tensor(numbers) >= 0
        else:
            numbers = sorted(random.randint(0, m) for _ in range(random.choice((2, 3, 200))))
            if self.form == OFFSETS:
                held[0, numbers[0] : numbers[-1]] = True
            else:
                begin = 0
                for i, end in enumerate(numbers):
                    numbers[i] = end = max(begin, end) if begin <= m else m
                    held[0, begin:end] = True
                    begin = -(-end // self.alignment) * self.alignment
        return torch.tensor(numbers, dtype=torch.int32), held

    def memory(self, device: str) -> dict[str, torch.Tensor]:
        """All that is written, with what lies between and around."""
        rows, across = self.count * (self.m + 1), blocks(self.pairs) + 1
        return {
            "q": canaries(rows, self.pairs + self.pad, torch.float8_e4m3fn, device),
            "scales": canaries(rows, across, torch.float32, device),
        }

    def run(self, library: Library, memory: dict[str, torch.Tensor], **options) -> None:
        device = memory["q"].device
        q = memory["q"].view(self.count, self.m + 1, -1)[:, : self.m, : self.pairs]
        scales = memory["scales"]
        if self.mn_major:
            scales = scales.view(self.count, -1, self.m + 1).mT
        else:
            scales = scales.view(self.count, self.m + 1, -1)
        given = {"groups": self.numbers, "weights": self.weights}
        library.swiglu_quantize(
            self.x.to(device)[..., : 2 * self.pairs],
            q,
            scales[:, : self.m, : blocks(self.pairs)],
            form=self.form,
            alignment=self.alignment,
            **{name: None if t is None else t.to(device) for name, t in given.items()},
            **self.options | options,
        )

    def __str__(self):
        kind = f"{self.count}x{self.m}x{self.pairs} {self.x.dtype}, form {self.form}, {self.options}"
        return f"swiglu_quantize {kind}{', weighted' if self.weights is not None else ''}"


class Swiglu(Fixture):
    def swiglu_compare(self, problem: Problem, **options) -> None:
        results = []
        for device, more in (("cuda", options), ("cpu", {})):
            memory = problem.memory(device)
            problem.run(self.tested, memory, **more)
            results.append({name: t.cpu() for name, t in memory.items()})
        for name, by_gpu in results[0].items():
            if not torch.equal(by_gpu.view(torch.uint8), results[1][name].view(torch.uint8)):
                raise AssertionError(f"{problem}: GPU and CPU differ in {name}")

    def swiglu(self):
        """GPU and CPU give the same bits, of every form of groups and any rule, and write nothing else."""
        count = max(12, self.options.shapes // 20)
        for i in range(count):
            options = ({}, {"pdl": True}, {"num_sms": 7})[i % 3]
            form = FORMS[i] if i < len(FORMS) else None
            self.swiglu_compare(Problem(self.random, self.generator, form=form), **options)
        return {"cases": count}

    def swiglu_values(self):
        """Every bf16 as a gate, and floats around where a sigmoid becomes 0, with an up of 1: codes and scales."""
        every = torch.arange(-(1 << 15), 1 << 15, device="cuda").short().view(torch.bfloat16)
        tiny = (torch.tensor(-87.2).view(torch.int32).item() + torch.arange(1 << 16, device="cuda")).int()
        for gates in (every, tiny.view(torch.float32)):
            problem = Problem(self.random, self.generator, gates.dtype, WHOLE, 512)
            problem.count, problem.pairs, problem.pad, problem.weights = 1, 128, 0, None
            problem.options = {"to_bf16": False}
            problem.x = torch.cat((gates.view(512, 128), torch.ones_like(gates).view(512, 128)), 1)[None]
            self.swiglu_compare(problem)
        return {"gates": 2 << 16}

    def swiglu_repeat(self):
        """The same bits each time, in a graph, too."""
        for dtype in TYPES:
            problem = Problem(self.random, self.generator, dtype, MASKED, 700)
            if problem.numbers is not None:
                problem.numbers = problem.numbers.to(problem.x.device)  # before the graph
            memory = problem.memory("cuda")
            problem.run(self.tested, memory)
            first, moved = as_bytes(memory), torch.zeros((), dtype=torch.int64, device="cuda")
            run = functools.partial(problem.run, self.tested, memory)
            for again in (run, self.captured(run)):
                for _ in range(self.RUNS // 2 + 1):
                    for t in memory.values():
                        t.view(torch.uint8).fill_(CANARY)
                    again()
                    moved += (as_bytes(memory) != first).sum()
            if count := moved.item():
                raise AssertionError(f"{problem}: {count} elements moved in {self.RUNS} runs")
        return {"runs": self.RUNS}

    @staticmethod
    def captured(run):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        return graph.replay

    def swiglu_tall(self):
        """Where offsets in elements pass 2^31."""
        m, pairs = 300_000, 4096
        x = torch.zeros(m, 2 * pairs, dtype=torch.bfloat16, device="cuda")
        probed = [0, 1, 262_144, m - 1]
        x[probed] = torch.randn(len(probed), 2 * pairs, device="cuda", generator=self.generator).bfloat16()
        q = torch.empty(m, pairs, dtype=torch.float8_e4m3fn, device="cuda")
        scales = torch.empty(blocks(pairs), m, device="cuda").t()
        self.tested.swiglu_quantize(x, q, scales)
        want = torch.empty(len(probed), pairs, dtype=q.dtype, device="cuda")
        want_scales = torch.empty(len(probed), blocks(pairs), device="cuda")
        self.tested.swiglu_quantize(x[probed], want, want_scales)
        same = torch.equal(q.view(torch.uint8)[probed], want.view(torch.uint8))
        if not same or not torch.equal(scales[probed], want_scales):
            raise AssertionError("codes of rows differ where many rows are")
        return {"elements": x.numel()}

    def small_swiglu(self):
        """Every kernel, with every form of groups."""
        for dtype in TYPES:
            for form in FORMS:
                problem = Problem(self.random, self.generator, dtype, form, 70)
                problem.run(self.tested, problem.memory("cuda"))
        torch.cuda.synchronize()
        return {"kernels": len(TYPES)}

    def swiglu_bandwidth(self):
        """Of bf16, as between products of experts, against copies of as many bytes.

        Less than 100 MB of x take microseconds, of which a part is the begin of a launch: measured, but not judged.
        """
        out = {}
        cases = [(1024, 2048), (4096, 2048), (16384, 2048), (65536, 2048), (4096, 768), (32768, 3072)]
        for rows, pairs in cases:
            x = torch.randn(rows, 2 * pairs, device="cuda", generator=self.generator).bfloat16()
            q = torch.empty(rows, pairs, dtype=torch.float8_e4m3fn, device="cuda")
            scales = torch.empty(blocks(pairs), rows, device="cuda").t()
            weights = torch.rand(1, rows, device="cuda", generator=self.generator)
            plain = functools.partial(self.tested.swiglu_quantize, x, q, scales)
            half = torch.empty(rows * pairs * 5 // 2, dtype=torch.uint8, device="cuda")
            half.random_(generator=self.generator)
            calls = {
                "plain": plain,
                "gpt-oss": functools.partial(plain, interleaved=True, weights=weights, to_bf16=True, **RULES[1]),
                "copy": functools.partial(torch.empty_like(half).copy_, half),
            }
            t = median_times(calls, self.options.rounds)
            out[f"{rows}x{pairs}"] = {name: round(t["copy"] / t[name], 3) for name in ("plain", "gpt-oss")} | {
                "us": {name: round(us, 1) for name, us in t.items()}
            }
        judged = [out[f"{rows}x{pairs}"] for rows, pairs in cases if 4 * rows * pairs > 10**8]
        worst = min(row[kind] for row in judged for kind in ("plain", "gpt-oss"))
        if worst < 0.8:
            raise TooSlow(f"SwiGLU with quantisation reaches {worst:.2f} of the bandwidth of a copy: {out}")
        return out
