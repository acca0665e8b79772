"""Checks of the product before a norm on a GPU: bounds of exact sums, what surrounds D, repeats, and times."""

import functools
import itertools
import math

import torch

from gpu_fixture import Fixture, TooSlow
from gpu_library import Library
from gpu_timing import ALONE, alone_times, median_times
from records import write_record

CANARY = 0x7FC0DEAD  # a NaN that no kernel makes
COLS = (8, 16, 24, 24, 32)
MOST_ELEMENTS = 1 << 23  # of A: exact sums of them take tenths of a second on a CPU
CEILING_EXTENT = 8192
SPEED_ROWS, SPEED_K, SPEED_SPLITS = (13, 137, 4096, 8192), (28672, 7680, 7168), (0, 16)
# Kernels that load, wait and store alone take what memory takes and 5 us, with 4096 rows and more, by least squares
# (bench/results/products_left_out_h200.json). Nineteen twentieths of their speed are asked for; two runs differ by 1%.
LOADS_TIMES, LOADS_US, SPEED_OF_LOADS, RUNS_DIFFER = 1.003, 5.38, 0.95, 1.01


def tf32(x: torch.Tensor) -> torch.Tensor:
    """Rounded to 11 significant bits, ties to even."""
    bits = x.contiguous().view(torch.int32).long()
    return ((bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFF).to(torch.int32).view(torch.float32)


def roundings(count: float) -> float:
    return math.expm1(count * 2.0**-24)


def shares_of_bounds(a, b, d, squares) -> float:
    """The largest error of a sum of slices, as a share of its bound (docs/prenorm.md): NaN where an element is."""
    k = a.shape[1]
    x, y = a.double(), tf32(b).double()
    bound = (x.abs() @ y.abs().t()) * roundings(min(k, 512) + k // 128 + 12) + k * 2.0**-125
    exact = (x * x).sum(1)
    of_squares = exact * roundings(k // 4 + 12) + k * 2.0**-149
    products = ((d.double().sum(0) - x @ y.t()).abs() / bound).max()
    return float(torch.maximum(products, ((squares.double().sum(0) - exact).abs() / of_squares).max()))


class Problem:
    """A, with NaN between its rows, and B; D and the sums of squares in memory full of canaries."""

    def __init__(self, random, generator, m=0, n=0, k=0, slices=0):
        self.m = m or random.choice((1, 13, 64, 65, 137, random.randint(1, 300), random.randint(1, 3000)))
        self.n = n or random.choice(COLS)
        any_k = 64 * random.choice((1, 2, random.randint(1, 20), random.randint(1, 120), 448))
        self.k = k or min(any_k, MOST_ELEMENTS // self.m // 64 * 64)
        self.slices = slices or random.choice((1, 1, 2, 16, random.randint(1, 20)))
        self.num_sms = random.choice((0, 0, 1, 5, 37, 131))
        self.row_gap, self.slice_gap, self.squares_gap = (random.choice((0, 0, 1, 4)) for _ in range(3))
        self.by_rows = random.random() < 0.25  # a row of D has all slices of it
        self.a, self.b = (
            self.operand(rows, gap * random.randint(0, 4), 2.0 ** random.randint(-9, 9), dtype, generator)
            for rows, gap, dtype in ((self.m, 8, torch.bfloat16), (self.n, 4, torch.float32))
        )

    def operand(self, rows, gap, size, dtype, generator) -> torch.Tensor:
        whole = torch.full((rows, self.k + gap), float("nan"), dtype=dtype, device="cuda")
        whole[:, : self.k] = torch.randn(rows, self.k, device="cuda", generator=generator) * size
        return whole[:, : self.k]

    def output(self, device: str = "cuda") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """All memory, D and the sums of squares in it."""
        row, of_squares = self.n + self.row_gap, self.m + self.squares_gap
        slice_ = row if self.by_rows else self.m * row + self.slice_gap
        row *= self.slices if self.by_rows else 1
        size = (self.m - 1) * row + (self.slices - 1) * slice_ + self.n
        first, second = 128, 256 + size
        whole = torch.full((second + self.slices * of_squares + 128,), CANARY, dtype=torch.int32, device=device)
        floats = whole.view(torch.float32)
        d = floats.as_strided((self.slices, self.m, self.n), (slice_, row, 1), first)
        return whole, d, floats.as_strided((self.slices, self.m), (of_squares, 1), second)

    def into(self, library: Library, d, squares, **options) -> None:
        a, b = (t.to(device=d.device) for t in (self.a, self.b))
        library.prenorm_gemm(a, b, d, squares, **({"num_sms": self.num_sms} | options))

    def run(self, library: Library, device: str = "cuda", **options) -> torch.Tensor:
        whole, d, squares = self.output(device)
        self.into(library, d, squares, **options)
        return whole

    def check(self, library: Library) -> torch.Tensor:
        """All memory after a call whose result is within its bounds and beside which nothing is written."""
        whole, d, squares = self.output()
        self.into(library, d, squares)
        share = shares_of_bounds(self.a, self.b, d, squares)
        if not share <= 1:
            raise AssertionError(f"elements differ by {share:.3g} of their bound: {self}")
        kept, untouched = whole.clone(), self.output()
        for t in (d, squares, *untouched[1:]):
            t.fill_(0)
        if not torch.equal(whole, untouched[0]):
            raise AssertionError(f"elements differ beside D: {self}")
        return kept

    def __str__(self):
        return str({k: v for k, v in vars(self).items() if not isinstance(v, torch.Tensor)})


class Prenorm(Fixture):
    def prenorm(self):
        """Random problems: within the bounds of exact sums, the same bits twice, and nothing else is written."""
        for _ in range(self.options.shapes):
            problem = Problem(self.random, self.generator)
            if not torch.equal(problem.check(self.tested), problem.run(self.tested)):
                raise AssertionError(f"elements differ when repeated: {problem}")
        return {"problems": self.options.shapes}

    def prenorm_repeat(self):
        """The same bits each time, from two streams, overlapping or not."""
        for _ in range(8):
            problem = Problem(self.random, self.generator)
            wanted = problem.check(self.tested)
            found = [problem.output() for _ in range(2)]
            streams = [torch.cuda.Stream() for _ in found]
            torch.cuda.synchronize()
            for run in range(self.RUNS):
                for stream, (whole, d, squares) in zip(streams, found, strict=True):
                    with torch.cuda.stream(stream):
                        whole.fill_(CANARY)
                        problem.into(self.tested, d, squares, pdl=run % 2 == 1)
                torch.cuda.synchronize()
                if not all(torch.equal(whole, wanted) for whole, _, _ in found):
                    raise AssertionError(f"elements differ when repeated: {problem}")
        return {"problems": 8, "runs": self.RUNS}

    def prenorm_graph(self):
        """A graph that is captured once follows A, which a kernel before it in the graph writes."""
        problem = Problem(self.random, self.generator, m=137, k=7168, slices=16)
        problem.check(self.tested)
        (by_graph, d, squares), source = problem.output(), problem.a.clone()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            problem.a.copy_(source)
            problem.into(self.tested, d, squares, pdl=True)
        for _ in range(20):
            source.copy_(torch.randn(source.shape, device="cuda", generator=self.generator))
            by_graph.fill_(CANARY)
            graph.replay()
            torch.cuda.synchronize()
            if not torch.equal(by_graph, problem.run(self.tested)):
                raise AssertionError(f"elements differ from a graph: {problem}")
        return {"replays": 20}

    def prenorm_devices(self):
        """On each GPU the same bits, within the bounds."""
        problem = Problem(self.random, self.generator)
        wanted = problem.check(self.tested).cpu()
        found = [problem.run(self.tested, f"cuda:{i}").cpu() for i in range(torch.cuda.device_count())]
        if not all(torch.equal(x, wanted) for x in found):
            raise AssertionError(f"elements differ between GPUs: {problem}")
        return {"gpus": len(found)}

    def prenorm_beyond_31_bits(self, m: int = 330_000, k: int = 7168, slices: int = 16, row: int = 512):
        """A and D with more than 2^31 elements: rows here and there are within the bounds."""
        a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        b = torch.randn(24, k, device="cuda")
        whole = torch.full((slices, m, row), float("nan"), device="cuda")
        d, squares = whole[:, :, :24], torch.full((slices, m), float("nan"), device="cuda")
        self.tested.prenorm_gemm(a, b, d, squares)
        for first in (0, m // 2, m - 300):
            part = slice(first, first + 300)
            share = shares_of_bounds(a[part], b, d[:, part], squares[:, part])
            if not share <= 1:
                raise AssertionError(f"elements differ by {share:.3g} of their bound from row {first} on")
        if not (bool(d.isfinite().all()) and bool(whole[:, :, 24:32].isnan().all())):
            raise AssertionError("elements differ: some were left, or written beside D")
        return {"elements": m * k, "of_d": slices * m * row}

    def small_prenorm(self):
        """Every kernel, with clusters and slices of several sizes: what the sanitizers run."""
        shapes = itertools.product((13, 137, 520), (8, 24, 32), (256, 1792), (1, 5, 16), (0, 20))
        for m, n, k, slices, num_sms in shapes:
            problem = Problem(self.random, self.generator, m=m, n=n, k=k, slices=slices)
            problem.run(self.tested, num_sms=num_sms)
        torch.cuda.synchronize()
        return {"kernels": 4}

    def prenorm_speed(self):
        """The shapes of hyper-connections, beside what memory alone would take, and a record of them."""
        rows, late = [], []
        for m, k, splits in itertools.product(SPEED_ROWS, SPEED_K, SPEED_SPLITS):
            slices = max(splits, 1)
            a, b = torch.randn(m, k, device="cuda", dtype=torch.bfloat16), torch.randn(24, k, device="cuda")
            d, squares = torch.empty(slices, m, 24, device="cuda"), torch.empty(slices, m, device="cuda")
            call = functools.partial(self.tested.prenorm_gemm, a, b, d, squares)
            us = alone_times({"finegemm": call}, 2 * self.options.rounds)["finegemm"]
            bound = (m * k * 2 + 24 * k * 4 + slices * m * 25 * 4) / self.bytes_per_us
            kernel = self.tested.explain_prenorm(m, 24, k, slices)["kernel"]
            row = {"kind": "prenorm", "shape": [m, 24, k], "splits": splits, "us": {"finegemm": round(us, 2)}}
            rows.append(row | {"bound_us": round(bound, 2), "kernel": kernel})
            if m >= 4096 and us > (LOADS_TIMES * bound + LOADS_US) / SPEED_OF_LOADS * RUNS_DIFFER:
                late.append(rows[-1])
        x, y = (torch.randn(CEILING_EXTENT, CEILING_EXTENT, device="cuda").bfloat16() for _ in range(2))
        ceiling = median_times({"torch": functools.partial(torch.mm, x, y.t())}, self.options.rounds)["torch"]
        record = self.machine() | {
            "method": f"{ALONE}, median of {2 * self.options.rounds}",
            "ceilings_us": {f"torch bf16 {CEILING_EXTENT}^3": round(ceiling, 1)},
            "rows": rows,
        }
        write_record(self.options.out / f"prenorm_{self.card}.json", record)
        if late:
            raise TooSlow(f"are slower than {SPEED_OF_LOADS} of loads alone: {late}")
        return {"rows": len(rows)}
