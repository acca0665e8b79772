"""Checks of MXFP8 that gets scales for 128 of K: the CPU's bits, what surrounds the outputs, graphs, bandwidth."""

import functools

import torch

from gpu_cases import E4M3, blocks
from gpu_columns import CANARY, as_bytes, canaries
from gpu_fixture import Fixture, TooSlow
from gpu_library import Library
from gpu_timing import median_times

LENGTHS = (16, 32, 48, 128, 144, 512, 528, 1024, 1040, 4096, 7168)
EXTREME = (0, 1, 254, 255)  # exponents: 0.0, the least, the largest, NaN


def stacked(count: int, rows: int, cols: int, dtype, device: str, mn_major=False, pad=0):
    """Memory of nothing but canaries, and a stack in it."""
    down, across = (cols, rows) if mn_major else (rows, cols)
    whole = canaries(count * (down + 1), across + pad, dtype, device).view(count, down + 1, across + pad)
    part = whole[:, :down, :across]
    return whole, part.transpose(1, 2) if mn_major else part


def some(shape: tuple, share: float, generator) -> torch.Tensor:
    """True in about that share."""
    return torch.rand(shape, device="cuda", generator=generator) < share


def random_codes(shape: tuple[int, int, int], generator) -> torch.Tensor:
    """Bytes of any codes; of some groups of 16 only zeros, subnormal ones or NaN."""
    count, rows, k = shape
    groups = torch.randint(0, 256, (count, rows, k // 16, 16), device="cuda", generator=generator).to(torch.uint8)
    groups[some(groups.shape[:3], 0.1, generator)] &= 0x80
    groups[some(groups.shape[:3], 0.1, generator)] &= 0x87
    groups[some(groups.shape[:3], 0.02, generator)] |= 0x7F
    has_nan = some(groups.shape[:3], 0.3, generator)[..., None]
    return torch.where(has_nan | (groups & 0x7F != 0x7F), groups, groups & 0xFE).view(shape)


def random_words(of: tuple[int, int, int], base: int, spread: int, generator) -> torch.Tensor:
    """Words of four exponents around that one; a few are extreme."""
    shape = (*of[:2], 4 * blocks(of[2]))
    exponents = torch.randint(base - spread, base + spread + 1, shape, device="cuda", generator=generator).clamp(0, 254)
    for exponent in EXTREME:
        exponents[some(shape, 0.01, generator)] = exponent
    return exponents.to(torch.uint8).view(torch.int32)  # the first in the lowest byte


class Problem:
    """Random codes and exponents, in larger memory that is not zero."""

    def __init__(self, random, generator, shape=None, by_blocks=None, counted=None):
        k = 16 * random.randint(1, 200) if random.random() < 0.5 else random.choice(LENGTHS)
        few = random.choice((1, 2, 127, 128, 129, random.randint(1, 1 + 300_000 // k)))
        self.shape = shape or (random.choice((1, 1, 2, 3)), few, k)
        count, m, k = self.count, self.m, self.k = self.shape
        self.by_blocks = self.m > 1 and (random.random() < 0.5 if by_blocks is None else by_blocks)
        self.counted = random.random() < 0.7 if counted is None else counted
        self.pad = random.choice((0, 1, 3))
        self.words_mn, self.scales_mn = (random.random() < 0.6 for _ in range(2))
        self.base, self.spread = random.choice((127, 127, 110, 1, 60, 250)), random.choice((0, 4, 12, 40, 254))
        self.codes = stacked(count, m, k, E4M3, "cuda", pad=16 * self.pad)[1]
        self.words = stacked(count, m, blocks(k), torch.int32, "cuda", self.words_mn, self.pad)[1]
        self.refill(generator)

    def refill(self, generator) -> None:
        """Others in the same memory."""
        self.codes.copy_(random_codes(self.shape, generator).view(E4M3))
        self.words.copy_(random_words(self.shape, self.base, self.spread, generator))

    def memory(self, device: str) -> "Written":
        return Written(self, device)

    def run(self, library: Library, to: "Written", pdl=0) -> None:
        device = to.q.device
        library.reencode(self.codes.to(device), self.words.to(device), to.q, to.scales, to.changed, pdl=pdl)

    def __str__(self):
        kind = "blocks" if self.by_blocks else "rows"
        return f"reencode {self.count} of {self.m}x{self.k}, {kind}, exponents {self.base} +- {self.spread}"


class Written:
    """All that a call writes, with what lies between and around."""

    def __init__(self, p: Problem, device: str):
        down = blocks(p.m) if p.by_blocks else p.m
        whole_q, self.q = stacked(p.count, p.m, p.k, E4M3, device, pad=32 * p.pad)
        of_scales = (p.count, down, blocks(p.k), torch.float32, device, p.scales_mn, p.pad)
        whole_scales, self.scales = stacked(*of_scales)
        numbers = canaries(1, 3, torch.int32, device)  # what is there is added to
        self.changed = numbers[0, 1:2] if p.counted else None
        self.memory = {"q": whole_q, "scales": whole_scales, "changed": numbers}

    def clear(self) -> None:
        for t in self.memory.values():
            t.view(torch.uint8).fill_(CANARY)

    def bytes(self) -> torch.Tensor:
        return as_bytes(self.memory)


class Reencode(Fixture):
    def reencode(self):
        """GPU and CPU give the same bits, count the same groups, and write nothing else."""
        for _ in range(self.options.shapes):
            problem = Problem(self.random, self.generator)
            results = [problem.memory(device) for device in ("cuda", "cpu")]
            for to in results:
                problem.run(self.tested, to)
            for name, by_gpu in results[0].memory.items():
                if not torch.equal(*(t.cpu().view(torch.uint8) for t in (by_gpu, results[1].memory[name]))):
                    raise AssertionError(f"{problem}: GPU and CPU differ in {name}")
        return {"cases": self.options.shapes}

    def several(self) -> list[Problem]:
        """Of rows and of blocks, of which groups are counted."""
        shapes = ((2, 1000, 1040), (1, 300, 7168))
        return [Problem(self.random, self.generator, shape, kind, True) for shape in shapes for kind in (False, True)]

    def reencode_repeat(self):
        """The same bits each time, alone, and on two streams at once, every other time overlapping."""
        problems = self.several()
        for problem in problems:
            to = problem.memory("cuda")
            problem.run(self.tested, to)
            first, moved = to.bytes(), torch.zeros((), dtype=torch.int64, device="cuda")
            streams = [torch.cuda.Stream() for _ in range(2)]
            found = [problem.memory("cuda") for _ in streams]
            torch.cuda.synchronize()
            for run in range(self.RUNS):
                for stream, to in zip(streams, found, strict=True):
                    with torch.cuda.stream(stream):
                        to.clear()
                        problem.run(self.tested, to, pdl=run % 2)
                torch.cuda.synchronize()
                for to in found:
                    moved += (to.bytes() != first).sum()
                torch.cuda.synchronize()  # before the streams clear what is compared
            if count := moved.item():
                raise AssertionError(f"{problem}: {count} elements moved in {self.RUNS} runs")
        return {"problems": len(problems), "runs": self.RUNS}

    def reencode_graph(self):
        """A graph that is captured once follows codes and exponents, which a kernel before it in the graph writes."""
        for problem in self.several():
            sources = problem.codes.clone(), problem.words.clone()
            by_graph, by_call = problem.memory("cuda"), problem.memory("cuda")
            problem.run(self.tested, by_call)
            graph = torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                for to, source in zip((problem.codes, problem.words), sources, strict=True):
                    to.copy_(source)
                problem.run(self.tested, by_graph, pdl=1)
            for _ in range(20):
                problem.refill(self.generator)
                for source, new in zip(sources, (problem.codes, problem.words), strict=True):
                    source.copy_(new)
                by_graph.clear()
                by_call.clear()
                problem.run(self.tested, by_call)
                problem.codes.view(torch.uint8).zero_()  # what the graph does not copy is not there
                graph.replay()
                torch.cuda.synchronize()
                if count := (by_graph.bytes() != by_call.bytes()).sum():
                    raise AssertionError(f"{problem}: {count} elements differ from a graph")
        return {"replays": 20}

    def reencode_tall(self, m: int = 70_000, k: int = 32_768):
        """Where offsets in elements pass 2^31. Rows that are looked at are not zero, and those beside them are."""
        probed = [0, 1, m // 128 * 127, m - 1]
        codes = torch.zeros(m, k, dtype=torch.uint8, device="cuda")
        codes[probed] = random_codes((1, len(probed), k), self.generator)[0]
        words = torch.full((m, blocks(k)), 0x7F7F7F7F, dtype=torch.int32, device="cuda")
        words[probed] = random_words((1, len(probed), k), 127, 12, self.generator)[0]
        q = torch.empty_like(codes)
        for height in (1, 128):
            scales = torch.empty(-(-m // height), blocks(k), device="cuda")
            changed = torch.zeros(1, dtype=torch.int32, device="cuda")
            self.tested.reencode(codes.view(E4M3), words, q.view(E4M3), scales, changed)
            firsts = sorted({row // height * height for row in probed})
            others = self.expect_parts(codes, words, q, scales, changed, height, firsts)
            if others:
                raise AssertionError(f"scales of {height} rows: {others} differ beside those that were looked at")
        return {"elements": m * k}

    def expect_parts(self, codes, words, q, scales, changed, height: int, firsts: list[int]) -> int:
        """Rows from each of `firsts` on are as the CPU has them. Returns how much of the others is not zero, or has a
        scale that is not 1, and how many groups too many have been counted."""
        numbers = torch.zeros(1, dtype=torch.int32)
        left = q.count_nonzero().item() + (scales != 1).sum().item()
        for first in firsts:
            rows = slice(first, min(first + height, len(codes)))
            part = codes[rows].cpu()
            want, want_scales = torch.empty_like(part), torch.empty(1 if height > 1 else len(part), scales.shape[1])
            self.tested.reencode(part.view(E4M3), words[rows].cpu(), want.view(E4M3), want_scales, numbers)
            same = torch.equal(q[rows].cpu(), want) and torch.equal(scales[first // height, :].cpu(), want_scales[0])
            if not same:
                raise AssertionError(f"scales of {height} rows: GPU and CPU differ in rows {first} and on")
            left -= want.count_nonzero().item() + (want_scales != 1).sum().item()
        return left + changed.item() - numbers.item()

    def small_reencode(self):
        """Both kernels, with a stack and counted groups."""
        for by_blocks in (False, True):
            problem = Problem(self.random, self.generator, (2, 130, 1168), by_blocks, True)
            problem.run(self.tested, problem.memory("cuda"))

    def reencode_bandwidth(self):
        """Beside a copy of as many bytes. Counting and blocks are measured, too, but not judged."""
        out = {}
        for rows, cols in ((4096, 7168), (32768, 7168)):
            codes = random_codes((1, rows, cols), self.generator)[0].view(E4M3)
            words = random_words((1, rows, cols), 127, 4, self.generator)[0].t().contiguous().t()
            q, across = torch.empty_like(codes), blocks(cols)
            scales = torch.empty(across, rows, device="cuda").t()
            of_blocks = torch.empty(blocks(rows), across, device="cuda")
            half = torch.empty(rows * (cols + 4 * across), dtype=torch.uint8, device="cuda")
            call = functools.partial(self.tested.reencode, codes, words, q)
            calls = {
                "rows": functools.partial(call, scales),
                "counted": functools.partial(call, scales, torch.zeros(1, dtype=torch.int32, device="cuda")),
                "blocks": functools.partial(call, of_blocks),
                "copy": functools.partial(torch.empty_like(half).copy_, half),
            }
            t = median_times(calls, self.options.rounds)
            of_copy = {name: round(t["copy"] / t[name], 3) for name in ("rows", "counted", "blocks")}
            out[f"{rows}x{cols}"] = of_copy | {"us": {name: round(us, 1) for name, us in t.items()}}
        worst = min(row["rows"] for row in out.values())
        if worst < 0.6:
            raise TooSlow(f"new scales for MXFP8 reach {worst:.2f} of the bandwidth of a copy: {out}")
        return out
