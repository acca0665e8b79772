"""What gpu_check.py checks and times of products of bf16 without scales: one, groups of rows, groups of K."""

import functools
import itertools
import math
from collections.abc import Callable

import torch

from gpu_cases import Guarded
from gpu_fixture import Fixture
from gpu_grouped_cases import offset_rows, random_rows
from gpu_library import COLUMNS, INDICES, MASKED, OFFSETS, ON, PREFIX_SUMS
from gpu_timing import median_times
from records import write_record

FORMS = (OFFSETS, INDICES, PREFIX_SUMS, MASKED)
OUTPUTS = (torch.bfloat16, torch.float32)
SPEED_NK = ((2112, 7168), (576, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048))
SPEED_ROWS, CEILING_EXTENT = 4096, 8192
FLOOR_OF_MEAN, FLOOR_OF_ROW = 0.97, 0.94  # of cuBLAS
BITS = {torch.bfloat16: torch.int16, torch.float32: torch.int32}
BF16 = {"dtype": 2}


def product(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A B^T in double, and the sum of the products' magnitudes."""
    x, y = a.double(), b.double()
    return x @ y.t(), x.abs() @ y.abs().t()


def over_bound(d: torch.Tensor, exact: torch.Tensor, absolute: torch.Tensor, k: int) -> float:
    """The largest error over its bound: unscaled_sum_bound of src/ops/gemm/cpu.h, and one rounding to D's type."""
    total = absolute * math.expm1((k + k // 128 + 2) * 2.0**-24) + k * 2.0**-125
    rounding = 2.0**-8 if d.dtype == torch.bfloat16 else 2.0**-23
    bound = total + (exact.abs() + total) * rounding + 2.0**-133
    share = (d.double() - exact).abs() / bound
    return math.inf if bool(share.isnan().any()) else float(share.max()) if share.numel() else 0.0


class Bf16(Fixture):
    def normal(self, rows: int, cols: int, padding: int = 0) -> torch.Tensor:
        """Standard normal values, NaN in the `padding` elements behind each row."""
        whole = torch.full((rows, cols + padding), math.nan, device="cuda", dtype=torch.bfloat16)
        whole[:, :cols] = torch.randn(rows, cols, device="cuda", generator=self.generator)
        return whole[:, :cols]

    def usable_names(self, m: int, n: int, k: int, **fields) -> list:
        """The planner's choice, and another kernel that can take the problem."""
        account = self.tested.explain(m, n, k, **BF16, **fields)
        names = [row["name"] for row in account["candidates"] if "rejected" not in row]
        return [account["chosen"]["name"], self.random.choice(names)]

    def dense_bf16(self) -> set:
        m = self.random.choice((1, 2, 7, 33, 64, 65, 128, 129, 200, 257, 500, 777))
        n, k = 8 * self.random.randint(1, 120), 8 * self.random.randint(1, 300)
        output, padding = self.random.choice(OUTPUTS), 8 * self.random.choice((0, 0, 1, 7))
        a, b = self.normal(m, k, padding), self.normal(n, k, padding)
        exact, absolute = product(a, b)
        names = self.usable_names(m, n, k, out_dtype=output)
        for name in names:
            out = Guarded(m, n, output)
            self.tested.gemm(a, None, b, None, out.d, config=name)
            share = over_bound(out.d, exact, absolute, k)
            if share > 1 or not out.intact():
                raise AssertionError(f"{name}, {m}x{n}x{k}: {share:.3g} of the bound, or wrote outside of D")
        return set(names)

    def rows_bf16(self, form: int) -> set:
        rows = random_rows(self.random, form)
        small = rows.groups > 100
        n, k = 8 * self.random.randint(1, 12 if small else 60), 8 * self.random.randint(1, 20 if small else 120)
        output, stacks, m = self.random.choice(OUTPUTS), rows.stacks, rows.m
        a = torch.full((stacks, m, k), math.nan, device="cuda", dtype=torch.bfloat16)
        b = torch.randn(rows.groups, n, k, device="cuda", generator=self.generator).bfloat16()
        exact, absolute = (torch.zeros(stacks, m, n, device="cuda", dtype=torch.float64) for _ in range(2))
        for group, begin, end in rows.spans:
            at = rows.matrix_of(group), slice(begin, end)
            a[at] = self.normal(end - begin, k)
            exact[at], absolute[at] = product(a[at], b[group])
        owned, numbers = rows.owned("cuda"), torch.tensor(rows.numbers, dtype=torch.int32, device="cuda")
        of = {"groups": rows.groups, "alignment": rows.alignment if form == INDICES else 0, "out_dtype": output}
        names = self.usable_names(max(1, stacks * m), n, k, **of)
        for name in names:
            outside = torch.full((stacks, m + 8, n + 32), 7.0, device="cuda", dtype=output)
            d = outside[:, 4 : 4 + m, 16 : 16 + n]
            some_a, some_d = (a, d) if form == MASKED else (a[0], d[0])
            self.tested.grouped_gemm(
                some_a, None, b, None, some_d, numbers, form, alignment=rows.alignment, config=name
            )
            share = over_bound(d[owned], exact[owned], absolute[owned], k)
            kept = bool((d[~owned] == (0 if form == INDICES else 7)).all())
            d.fill_(7)
            if share > 1 or not kept or not bool((outside == 7).all()):
                what = "" if kept else ", rows without a group are not as they must be"
                raise AssertionError(f"{name}, form {form}, {m}x{n}x{k}: {share:.3g} of the bound{what}")
        return set(names)

    def k_bf16(self) -> set:
        sizes = [128 * self.random.choice((0, 1, 2, 3, 5)) for _ in range(self.random.randint(1, 8))]
        ends = list(itertools.accumulate(sizes, initial=128 * self.random.randint(0, 1)))
        k, groups = max(128, ends[-1] + 128 * self.random.randint(0, 1)), len(sizes)
        m, n = self.random.choice((8, 64, 130, 257)), 8 * self.random.randint(1, 60)
        output = self.random.choice(OUTPUTS)
        accumulate = self.random.randint(0, 1) if output == torch.float32 else 0
        a, b = self.normal(m, k), self.normal(n, k)
        a[:, : ends[0]], a[:, ends[-1] :] = math.nan, math.nan
        old = torch.randn(groups, m, n, device="cuda", generator=self.generator).to(output)
        parts = [product(a[:, begin:end], b[:, begin:end]) for begin, end in itertools.pairwise(ends)]
        exact, absolute = (torch.stack(x) for x in zip(*parts, strict=True))
        if accumulate:
            exact, absolute = exact + old.double(), absolute + old.double().abs()
        names = self.usable_names(m, n, k, k_groups=groups, out_dtype=output, accumulate=accumulate)
        for name, device in itertools.product(names, ("cuda", "cpu")):
            outside = torch.full((groups, m + 3, n + 8), 7.0, device="cuda", dtype=output)
            d = outside[:, :m, :n]
            d.copy_(old)
            offsets = torch.tensor(ends, dtype=torch.int32, device=device)
            self.tested.k_grouped_gemm(a, None, b, None, d, offsets, COLUMNS, config=name, accumulate=accumulate)
            share = over_bound(d, exact, absolute, k)
            d.fill_(7)
            if share > 1 or not bool((outside == 7).all()):
                raise AssertionError(f"{name}, {m}x{n}, K {sizes}: {share:.3g} of the bound, or wrote outside of D")
        return set(names)

    def bf16(self):
        """Random products of every grouping, each by the planner's choice and by another kernel, against double."""
        ways: list[Callable[[], set]] = [
            self.dense_bf16,
            *(functools.partial(self.rows_bf16, form) for form in FORMS),
            self.k_bf16,
        ]
        kernels: set = set()
        for _, way in zip(range(self.options.shapes), itertools.cycle(ways), strict=False):
            kernels |= way()
        return {"problems": self.options.shapes, "kernels": len(kernels)}

    def bf16_calls(self) -> list:
        """(kernel, D, a call) for every kernel of every grouping."""
        m, n, k, groups = 640, 2112, 2048, 4
        a, b = self.normal(m, k), self.normal(n, k)
        many = torch.randn(groups, n, k, device="cuda", generator=self.generator).bfloat16()
        sizes = offset_rows([0, 300, 70, 270])
        numbers = torch.tensor(sizes.numbers, dtype=torch.int32, device="cuda")
        offsets = torch.tensor([0, 512, 512, 1024, 2048], dtype=torch.int32, device="cuda")
        calls = []
        for output in OUTPUTS:
            for of in ({}, {"groups": groups}, {"k_groups": groups}):
                for row in self.tested.explain(m, n, k, **BF16, out_dtype=output, **of)["candidates"]:
                    shape = (groups, m, n) if "k_groups" in of else (m, n)
                    d = torch.zeros(shape, device="cuda", dtype=output)
                    name = {"config": row["name"]}
                    if "groups" in of:
                        call = self.tested.prepare_grouped(a, None, many, None, d, numbers, OFFSETS, **name)
                    elif "k_groups" in of:
                        call = self.tested.prepare_k_grouped(a, None, b, None, d, offsets, **name)
                    else:
                        call = self.tested.prepare(a, None, b, None, d, **name)
                    calls.append((row["name"], d, call))
        return calls

    def bf16_repeat(self):
        """200 runs of every kernel give the same bits; so do a replayed graph of all, and two streams at once."""
        calls = self.bf16_calls()
        firsts = []
        for name, d, call in calls:
            call()
            first = d.clone()
            different = torch.zeros((), device="cuda", dtype=torch.int64)
            for _ in range(200):
                d.fill_(7)
                call()
                different += (first.view(BITS[d.dtype]) != d.view(BITS[d.dtype])).sum()
            if int(different):
                raise AssertionError(f"{name}: {int(different)} elements moved in 200 runs")
            firsts.append(first)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _, _, call in calls:
                call()
        streams = [torch.cuda.Stream() for _ in range(2)]
        for way in ("graph", "streams"):
            for _, d, _ in calls:
                d.fill_(7)
            torch.cuda.synchronize()
            if way == "graph":
                graph.replay()
            else:
                for i, (_, _, call) in enumerate(calls):
                    with torch.cuda.stream(streams[i % 2]):
                        call()
            torch.cuda.synchronize()
            for (name, d, _), first in zip(calls, firsts, strict=True):
                if not torch.equal(d.view(BITS[d.dtype]), first.view(BITS[d.dtype])):
                    raise AssertionError(f"{name}: other bits by way of {way}")
        return {"kernels": len(calls), "runs": 200}

    def bf16_options(self):
        """The same bits of a row for any M, fewer SMs and dependent launches; D of more than 2^31 elements."""
        n, k = 2112, 7168
        a, b = self.normal(4096, k), self.normal(n, k)
        first = None
        for m, num_sms, pdl in ((1, 0, 0), (64, 0, 1), (65, 0, 0), (300, 40, 0), (4096, 0, 1), (4096, 100, 0)):
            d = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
            self.tested.gemm(a[:m], None, b, None, d, batch_invariant=ON, num_sms=num_sms, pdl=pdl)
            first = d[:1].clone() if first is None else first
            if not torch.equal(d[:1].view(torch.int16), first.view(torch.int16)):
                raise AssertionError(f"row 0 of {m} rows with num_sms {num_sms}, pdl {pdl} has other bits")
        for m, n, k in ((300_000, 14_400, 64), (256, 200_064, 11_000)):
            a, b = self.normal(m, k), self.normal(n, k)
            d = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
            self.tested.gemm(a, None, b, None, d)
            for rows in (slice(0, 2), slice(m - 2, m)):
                cols = slice(n - 300, n)
                share = over_bound(d[rows, cols], *product(a[rows], b[cols]), k)
                if share > 1:
                    raise AssertionError(f"{m}x{n}x{k}, rows {rows}: {share:.3g} of the bound")
            del a, b, d
            torch.cuda.empty_cache()
        return {"calls": 8}

    def bf16_devices(self):
        """Two GPUs in one process alternate, each with its own operands; on one GPU nothing can be seen."""
        count = torch.cuda.device_count()
        firsts: dict[int, torch.Tensor] = {}
        for turn in range(6):
            at = turn % count
            with torch.cuda.device(at):
                generator = torch.Generator(f"cuda:{at}").manual_seed(at)
                a, b = (torch.randn(s, 1024, device=f"cuda:{at}", generator=generator).bfloat16() for s in (300, 520))
                d = torch.empty(300, 520, device=f"cuda:{at}", dtype=torch.bfloat16)
                self.tested.gemm(a, None, b, None, d)
                torch.cuda.synchronize()
                if over_bound(d, *product(a, b), 1024) > 1 or not torch.equal(d, firsts.setdefault(at, d)):
                    raise AssertionError(f"GPU {at}, turn {turn}: D is wrong, or has other bits than before")
        return {"gpus": count}

    def small_bf16(self):
        """Every kernel once, on small problems: what the sanitizers run."""
        a, b = self.normal(257, 776), self.normal(136, 776)
        many = torch.randn(3, 136, 512, device="cuda", generator=self.generator).bfloat16()
        rows = self.normal(257, 512)
        numbers = torch.tensor([1, 70, 70, 250], dtype=torch.int32, device="cuda")
        offsets = torch.tensor([0, 128, 128, 512], dtype=torch.int32, device="cuda")
        for output in OUTPUTS:
            for of in ({}, {"groups": 3}, {"k_groups": 3}):
                for row in self.tested.explain(257, 136, 512, **BF16, out_dtype=output, **of)["candidates"]:
                    d = torch.zeros((3, 257, 136) if "k_groups" in of else (257, 136), device="cuda", dtype=output)
                    name = {"config": row["name"]}
                    print(row["name"], flush=True)
                    if "groups" in of:
                        self.tested.grouped_gemm(rows, None, many, None, d, numbers, OFFSETS, **name)
                    elif "k_groups" in of:
                        self.tested.k_grouped_gemm(rows, None, many[0], None, d, offsets, **name)
                    else:
                        self.tested.gemm(a, None, b, None, d, **name)

    def bf16_speed(self):
        """The rows of the table with M = 4096, beside cuBLAS in turn."""
        rows = []
        for n, k in SPEED_NK:
            a, b = self.normal(SPEED_ROWS, k), self.normal(n, k)
            d, e = (torch.empty(SPEED_ROWS, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
            calls = {
                "finegemm": self.tested.prepare(a, None, b, None, d),
                "torch": functools.partial(torch.mm, a, b.t(), out=e),
            }
            t = median_times(calls, 2 * self.options.rounds)
            account = self.tested.explain(SPEED_ROWS, n, k, **BF16)
            rows.append(
                {
                    "problem": account["line"],
                    "kind": "bf16",
                    "shape": [SPEED_ROWS, n, k],
                    "us": {name: round(v, 2) for name, v in t.items()},
                    "kernel": account["chosen"]["name"],
                }
            )
        x, y = (self.normal(CEILING_EXTENT, CEILING_EXTENT) for _ in range(2))
        ceiling = median_times({"torch": functools.partial(torch.mm, x, y.t())}, self.options.rounds)["torch"]
        record = self.machine() | {
            "method": f"bench/gpu_timing.py: CUPTI, L2 flushed, interleaved, median of {2 * self.options.rounds}",
            "ceilings_us": {f"torch bf16 {CEILING_EXTENT}^3": round(ceiling, 1)},
            "rows": rows,
        }
        write_record(self.options.out / "h200_bf16.json", record)
        ratios = [row["us"]["torch"] / row["us"]["finegemm"] for row in rows]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        if mean < FLOOR_OF_MEAN or min(ratios) < FLOOR_OF_ROW:
            raise AssertionError(f"{mean:.3f} of cuBLAS's speed, {min(ratios):.3f} at least: {rows}")
        return {"rows": len(rows), "geomean_over_torch": round(mean, 4), "least": round(min(ratios), 4)}
