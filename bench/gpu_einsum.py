"""What gpu_check.py checks and times of einsum: products of heads, and sums of the products of a batch."""

import functools
import itertools

import torch

from gpu_cases import Guarded, bound, differing, expanded, quantised
from gpu_fixture import Fixture, TooSlow, row_of
from gpu_grouped_cases import random_launch
from gpu_library import DTYPES, ON
from gpu_timing import ALONE, alone_times, median_times
from gpu_unscaled_cases import NAMES, normal, outputs, share_of_bound
from records import geometric_mean, ratios, write_record

FP8 = torch.float8_e4m3fn
ROWS_OF_HEADS, COLUMNS_OF_HEADS, SUM = "bhr,hdr->bhd", "bhd,hdr->bhr", "bmk,bnk->mn"
# Shapes of the table of peers: b, h, r, d and b, m, n, k.
HEADS = tuple((b, *hrd) for hrd in ((128, 512, 128), (8, 4096, 1024)) for b in (4, 32, 128, 4096, 8192))
HEADS_FP8 = tuple((b, 8, 4096, 1024) for b in (4, 32, 128, 4096, 8192))
SUMS = tuple((b, *mnk) for b in (129, 4096, 8192) for mnk in ((128, 384, 128), (256, 256, 256), (384, 128, 384)))
SLICE = 128  # elements behind the rows of weights, which are a slice of wider ones
FLOOR_OF_MEAN, FLOOR_OF_ROW = 1.0, 0.9  # of torch


class Heads3:
    """Operands of an equation of heads. b of the weights is a slice; a lies as [b, h, k] or with its heads first."""

    def __init__(self, equation: str, of: torch.dtype, b: int, h: int, k: int, n: int, generator, heads_first=False):
        self.equation, self.of, self.m, self.n, self.k, self.h = equation, of, b, n, k, h
        self.sfa: torch.Tensor | None = None
        self.sfb: torch.Tensor | None = None
        if of == FP8:
            a, sfa = quantised(h, b, k, 1, "row", generator)
            self.w, self.sfb = quantised(h, n, k, 128, "row", generator, padding=SLICE)
            self.sfa = sfa.transpose(0, 1)
        else:
            a = normal(generator, of, h, b, k)
            rows, cols = (n, k) if equation == ROWS_OF_HEADS else (k, n)
            self.w = normal(generator, of, h, rows, cols, padding=SLICE)
        self.a = a.transpose(0, 1)
        if not heads_first:
            bits = self.a.view(torch.uint8) if of == FP8 else self.a
            self.a = bits.contiguous().view(of)

    def __str__(self) -> str:
        return f"{self.equation}, b {self.m}, h {self.h}, k {self.k}, n {self.n}, {self.of}"

    def weights(self, head: int) -> torch.Tensor:
        """[n, k] of a head."""
        return self.w[head] if self.equation == ROWS_OF_HEADS else self.w[head].t()

    def explain(self, library, output: torch.dtype) -> dict:
        fields = {"groups": self.h, "expected_m": self.m} | ({} if self.of == FP8 else {"dtype": DTYPES[self.of]})
        fields |= {"b_mn_major": 1} if self.equation == COLUMNS_OF_HEADS else {}
        return library.explain(self.h * self.m, self.n, self.k, out_dtype=output, **fields)

    def prepare(self, library, d: torch.Tensor, **options):
        return library.prepare_einsum(self.equation, self.a, self.sfa, self.w, self.sfb, d, **options)

    def share(self, d: torch.Tensor) -> float:
        """The largest error over its bound."""
        shares = []
        for head in range(self.h):
            a, w = self.a[:, head], self.weights(head)
            if self.sfa is not None and self.sfb is not None:
                sfa, sfb = self.sfa[:, head], self.sfb[head]
                exact = expanded(a, sfa, 1) @ expanded(w, sfb, 128).t()
                error = (d[:, head].double() - exact).abs() / bound(a, sfa, w, sfb, exact)
                shares.append(float(error.max()))
            else:
                x, y = a.double(), w.double()
                shares.append(share_of_bound(d[:, head], x @ y.t(), x.abs() @ y.abs().t(), self.k))
        return max(shares)


class Sums3:
    """Operands of the sum of a batch, of longer rows, whose rest is NaN."""

    equation = SUM

    def __init__(self, of: torch.dtype, extents: tuple[int, int, int, int], generator, padding: int = 0):
        self.of = of
        self.b, self.m, self.n, self.k = extents
        self.x, self.y = (normal(generator, of, self.b, rows, self.k, padding=padding) for rows in (self.m, self.n))

    def __str__(self) -> str:
        return f"{SUM}, b {self.b}, {self.m}x{self.n}x{self.k}, {self.of}"

    def explain(self, library, output: torch.dtype) -> dict:
        of = {"dtype": DTYPES[self.of], "summed": self.b}
        return library.explain(self.m, self.n, self.b * self.k, out_dtype=output, **of)

    def prepare(self, library, d: torch.Tensor, **options):
        return library.prepare_einsum(SUM, self.x, None, self.y, None, d, **options)

    def share(self, d: torch.Tensor, old: float = 0.0) -> float:
        x, y = self.x.double(), self.y.double()
        exact, absolute = torch.einsum(SUM, x, y) + old, torch.einsum(SUM, x.abs(), y.abs()) + abs(old)
        # Adding to what D was is one rounding more.
        return share_of_bound(d, exact, absolute, self.b * self.k + 1)


def names_of(account: dict) -> list[str]:
    return [account["chosen"]["name"], *(x["name"] for x in account["candidates"] if "rejected" not in x)]


class Einsum(Fixture):
    def random_heads_of(self, equation: str, of: torch.dtype) -> Heads3:
        b = self.random.choice((1, 2, 7, 33, 64, 65, 128, 129, 257))
        n, k = 8 * self.random.randint(1, 60), 16 * self.random.randint(1, 90)
        h, first = self.random.choice((1, 2, 3, 8, 17)), bool(self.random.randint(0, 1))
        return Heads3(equation, of, b, h, k, n, self.generator, first)

    def random_sum(self, of: torch.dtype) -> Sums3:
        b, m = self.random.choice((1, 2, 7, 129)), self.random.choice((1, 7, 64, 65, 128, 200, 384))
        n, k = 8 * self.random.randint(1, 50), 8 * self.random.randint(1, 40)
        return Sums3(of, (b, m, n, k), self.generator, 8 * self.random.choice((0, 1)))

    def einsum(self):
        """Random heads against double, each kernel with the bits of the others; sums against double, any launch with
        the bits of its number of pieces, D rounded as the sums in f32."""
        kernels: set = set()
        ways = [(ROWS_OF_HEADS, FP8), *itertools.product((ROWS_OF_HEADS, COLUMNS_OF_HEADS, SUM), NAMES)]
        for _, (equation, of) in zip(range(2 * self.options.shapes), itertools.cycle(ways), strict=False):
            kernels |= self.one_sum(of) if equation == SUM else self.one_of_heads(equation, of)
        return {"problems": 2 * self.options.shapes, "kernels": len(kernels)}

    def one_of_heads(self, equation: str, of: torch.dtype) -> set:
        case = self.random_heads_of(equation, of)
        output = torch.bfloat16 if of == FP8 else self.random.choice(outputs(of))
        names, first = names_of(case.explain(self.tested, output)), None
        for name in {names[0], self.random.choice(names)}:
            out, launch = Guarded(case.m, case.h, case.n, dtype=output, edge=8), random_launch(self.random)
            case.prepare(self.tested, out.d, config=name, **launch)()
            if not out.intact():
                raise AssertionError(f"{case}, {name}: wrote outside of D")
            if first is None:
                first = out.d.clone()
                if (share := case.share(first)) > 1:
                    raise AssertionError(f"{case}, {name}: elements differ by {share:.3g} of the bound")
            if count := differing(out.d.contiguous(), first):
                raise AssertionError(f"{case}, {name}, {launch}: {count} elements are not those of another kernel")
        return {names[0]}

    def one_sum(self, of: torch.dtype) -> set:
        case = self.random_sum(of)
        names = names_of(case.explain(self.tested, torch.float32))
        for name in {names[0], self.random.choice(names)}:
            launch = {"num_sms": self.random.choice((0, 8, 40)), "batch_invariant": self.random.choice((0, ON))}
            sums = Guarded(case.m, case.n, dtype=torch.float32)
            case.prepare(self.tested, sums.d, config=name, **launch)()
            if (share := case.share(sums.d)) > 1 or not sums.intact():
                raise AssertionError(f"{case}, {name}, {launch}: elements differ by {share:.3g} of the bound")
            for output, accumulate in ((of, 0), (torch.float32, 1)):
                out = Guarded(case.m, case.n, dtype=output)
                case.prepare(self.tested, out.d, config=name, pdl=1, accumulate=accumulate, **launch)()
                want = sums.d + Guarded.VALUE if accumulate else sums.d.to(output)
                if (count := differing(out.d.contiguous(), want.contiguous())) or not out.intact():
                    raise AssertionError(f"{case}, {name}, {launch}, D in {output}: {count} elements differ")
        return set(names)

    def equal_calls(self, heads: tuple, sums: tuple) -> list:
        """(kernel, D, a call) of every kernel that equations take."""
        calls = []
        b, h, k, n = heads
        cases: list = [Sums3(of, sums, self.generator) for of in NAMES]
        cases += [Heads3(ROWS_OF_HEADS, FP8, b, h, k, n, self.generator)]
        cases += [Heads3(e, of, b, h, k, n, self.generator) for e in (ROWS_OF_HEADS, COLUMNS_OF_HEADS) for of in NAMES]
        for case in cases:
            for output in (torch.bfloat16,) if case.of == FP8 else outputs(case.of):
                for name in dict.fromkeys(names_of(case.explain(self.tested, output))):
                    shape = (case.m, case.n) if case.equation == SUM else (case.m, case.h, case.n)
                    d = torch.zeros(shape, device="cuda", dtype=output)
                    calls.append((f"{case}, {name}", d, case.prepare(self.tested, d, config=name)))
        return calls

    def einsum_repeat(self):
        """Many runs of every kernel give the same bits, and so does a replayed graph of all, whose sums of pieces lie
        in memory of its own."""
        calls = self.equal_calls((640, 5, 2048, 264), (129, 200, 264, 128))
        self.repeated_by_graph(calls)
        return {"kernels": len(calls), "runs": self.RUNS}

    def small_einsum(self):
        """Every kernel that equations take once, on small problems: what the sanitizers run."""
        for name, _, call in self.equal_calls((70, 2, 848, 136), (9, 100, 136, 136)):
            print(name, flush=True)
            call()

    def einsum_speed(self):
        """The rows of the table of peers, and torch."""
        rows = [
            self.speed_row(equation, torch.bfloat16, shape)
            for equation in (ROWS_OF_HEADS, COLUMNS_OF_HEADS)
            for shape in HEADS
        ]
        rows += [self.speed_row(ROWS_OF_HEADS, FP8, shape) for shape in HEADS_FP8]
        rows += [self.sum_row(shape, output) for shape in SUMS for output in (torch.float32, torch.bfloat16)]
        x, y = (normal(self.generator, torch.bfloat16, 8192, 8192) for _ in range(2))
        ceiling = median_times({"torch": functools.partial(torch.mm, x, y.t())}, self.options.rounds)["torch"]
        record = self.machine() | {
            "method": f"{ALONE}, median of {2 * self.options.rounds}",
            "ceilings_us": {"torch bf16 8192^3": round(ceiling, 1)},
            "rows": rows,
        }
        write_record(self.options.out / f"einsum_{self.card}.json", record)
        over = ratios(rows, "torch")
        if geometric_mean(over) < FLOOR_OF_MEAN or min(over) < FLOOR_OF_ROW:
            raise TooSlow(f"{geometric_mean(over):.3f} of torch, {min(over):.3f} at worst")
        return {"rows": len(rows), "over_torch": round(geometric_mean(over), 4), "least": round(min(over), 4)}

    def speed_row(self, equation: str, of: torch.dtype, shape: tuple) -> dict:
        b, h, r, d = shape
        k, n = (r, d) if equation == ROWS_OF_HEADS else (d, r)
        case = Heads3(equation, of, b, h, k, n, self.generator)
        out = torch.empty(b, h, n, device="cuda", dtype=torch.bfloat16)
        calls = {"finegemm": case.prepare(self.tested, out)}
        if of != FP8:
            a, w = case.a.transpose(0, 1), case.w.transpose(1, 2) if equation == ROWS_OF_HEADS else case.w
            calls["torch"] = functools.partial(torch.bmm, a, w, out=torch.empty_like(out.transpose(0, 1)))
        t = alone_times(calls, 2 * self.options.rounds)
        form = equation.replace(",", ", ").replace("->", " -> ")
        row = row_of("einsum", list(shape), t, case.explain(self.tested, torch.bfloat16))
        return row | {"form": form if of != FP8 else f"fp8 {form}", "out": "bf16"}

    def sum_row(self, shape: tuple, output: torch.dtype) -> dict:
        case = Sums3(torch.bfloat16, shape, self.generator)
        out = torch.zeros(case.m, case.n, device="cuda", dtype=output)
        calls = {
            "finegemm": case.prepare(self.tested, out, accumulate=int(output == torch.float32)),
            "torch": functools.partial(torch.einsum, SUM, case.x, case.y),
        }
        t = alone_times(calls, 2 * self.options.rounds)
        row = row_of("einsum", list(shape), t, case.explain(self.tested, output))
        return row | {"form": "bmk, bnk -> mn", "out": NAMES.get(output, "f32")}
