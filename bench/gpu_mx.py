"""What gpu_check.py asks of products with MX scales: each kernel's bits against the CPU's model, or where the tensor cores
add all of K sums within the bound of that, the values of all codes by all exponents, the same bits whenever a kernel runs, in graphs, on fewer SMs, with dependent launches and for any M, and right ones where memory has more than 2^31
elements."""

import itertools
import math

import torch

from gpu_cases import LAYOUTS, Guarded, Operands, differing, model, operands, sample_rows
from gpu_grouped_cases import Problem, masked_rows, offset_rows, small_rows
from gpu_library import ON, Library
from gpu_types import BF16, Types
from gpu_unscaled_cases import share_of_bound


def with_exponents(scales: torch.Tensor, generator) -> torch.Tensor:
    """Words of four exponents from 2^-24 to 2^15 in the place of scales, whose strides they have; now and then 0."""
    exponents = torch.randint(103, 143, (*scales.shape, 4), device=scales.device, generator=generator)
    none = torch.rand(exponents.shape, device=scales.device, generator=generator) < 0.01
    exponents[none] = 0
    shifts = torch.arange(0, 32, 8, device=scales.device)
    words = scales.view(torch.int32)
    words.copy_((exponents << shifts).sum(-1).to(torch.int32))
    return words


def mx_operands(m: int, n: int, k: int, layout: str, generator, padding: int, of_a: bool) -> Operands:
    """a, sfa, b, sfb with MX scales of b, and of a or not."""
    a, sfa, b, sfb = operands(m, n, k, layout, generator, padding, row_b_scales=True)
    return a, with_exponents(sfa, generator) if of_a else sfa, b, with_exponents(sfb, generator)


def mx_values(codes: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """In double."""
    shifts = torch.arange(0, 32, 8, device=codes.device)
    e = (words.view(torch.int32)[..., None] >> shifts & 255).flatten(1).double()
    scales = torch.where(e == 0, 0.0, torch.where(e == 255, math.nan, torch.exp2(e - 127)))
    return codes.double() * scales.repeat_interleave(32, 1)[:, : codes.shape[1]]


def over_mx_bound(d: torch.Tensor, a, sfa, b, sfb) -> float:
    """The largest error of rows of D over the bound of sums of all of K in f32."""
    x, share = mx_values(a, sfa), 0.0
    for part in torch.arange(len(b), device=b.device).split(1 << 14):
        y = mx_values(b[part], sfb[part])
        share = max(share, share_of_bound(d[:, part], x @ y.t(), x.abs() @ y.abs().t(), a.shape[1]))
    return share


def codes_but_nan(rows: int, k: int, generator) -> torch.Tensor:
    codes = torch.randint(0, 256, (rows, k), dtype=torch.uint8, device=generator.device, generator=generator)
    codes[codes & 0x7F == 0x7F] = 0x33
    return codes.view(torch.float8_e4m3fn)


def words_of(exponents: torch.Tensor) -> torch.Tensor:
    """Of [rows, 4 * blocks]."""
    return exponents.to(torch.uint8).contiguous().view(torch.int32)


class MxProblem(Problem):
    """Groups of rows with such scales; those of rows without a group are anything."""

    def __init__(self, rows, n: int, k: int, layout: str, generator, padding: int = 0, gap: int = 0, of_a: bool = True):
        super().__init__(rows, n, k, layout, generator, padding, gap, row_b_scales=True)
        a, sfa, d = self.stacked
        if of_a:
            self.stacked = a, with_exponents(sfa, generator), d
            self.sfa = with_exponents(self.sfa, generator)  # the same memory
        self.sfb = with_exponents(self.sfb, generator)
        self.of_a = of_a

    def sums_wrong(self, d: torch.Tensor, group: int, at: int, picked: list, library: Library) -> str:
        if not self.of_a:
            return super().sums_wrong(d, group, at, picked, library)
        a, sfa, _ = self.stacked
        share = over_mx_bound(d[at, picked], a[at, picked], sfa[at, picked], self.b[group], self.sfb[group])
        return f"{share:.3g} of the bound" if share > 1 else ""

    def way_of_model(self, dtype: torch.dtype) -> dict:
        return {"batch_invariant": ON}


class Mx(Types):
    MX_SHAPES: tuple[tuple[int, int, int], ...] = ((1, 520, 2048), (33, 72, 1552), (257, 520, 2048), (1000, 136, 4096))
    MX_REPEATED: tuple[int, int, int] = (640, 2112, 2048)
    MX_ROWS: tuple[int, ...] = (0, 300, 70, 270)  # of groups
    MX_LAYOUTS: tuple[str, ...] = LAYOUTS
    MX_KERNELS: int | None = None  # of each kind at most that are repeated
    # M, N, K, M a multiple of 128: D has more than 2^31 elements, then B, then A.
    MX_HUGE: tuple[tuple[int, int, int], ...] = ((300_032, 14_400, 128), (256, 300_032, 7168), (300_032, 256, 7168))
    # M, num_sms and pdl of calls whose first row is the same.
    MX_CALLS = ((1, 0, 0), (64, 0, 1), (65, 5, 0), (300, 40, 0), (640, 0, 1), (640, 100, 1))

    def mx_names(self, m: int, n: int, k: int, of_a: bool, **fields) -> list:
        """Of the kernels that can take such a product."""
        account = self.tested.explain(m, n, k, a_mx=int(of_a), b_mx=1, **fields)
        return [x["name"] for x in account["candidates"] if "rejected" not in x]

    def mx(self):
        """Every kernel, dense and of groups in every form, in three layouts of scales."""
        count = 0
        for of_a in (True, False):
            for layout in self.MX_LAYOUTS:
                count += self.mx_dense(of_a, layout) + self.mx_of_rows(of_a, layout)
        return {"products": count}

    def small_mx(self):
        """Every kernel, on small problems: what the sanitizers run."""
        self.MX_SHAPES, self.MX_LAYOUTS = self.MX_SHAPES[-2:-1], self.MX_LAYOUTS[-2:]
        return self.mx()

    def mx_dense(self, of_a: bool, layout: str) -> int:
        count = 0
        for m, n, k in self.MX_SHAPES:
            for name in self.mx_names(m, n, k, of_a):
                x = mx_operands(m, n, k, layout, self.generator, self.random.choice((0, 16)), of_a)
                out = Guarded(m, n, device=self.generator.device)
                self.tested.gemm(*x, out.d, config=name)
                wrong = self.mx_wrong(x, out, name, of_a, 8)
                self.demand(wrong, m, n, k, name, layout)
                count += 1
        return count

    def mx_wrong(self, x: Operands, out: Guarded, name: str, of_a: bool, count: int) -> str:
        """What is wrong with some rows of D, or nothing."""
        a, sfa, b, sfb = x
        rows = sample_rows(len(a), count, self.generator)
        if of_a:
            share = over_mx_bound(out.d[rows], a[rows], sfa[rows], b, sfb)
            wrong = f"{share:.3g} of the bound" if not share <= 1 else ""
        else:
            elements = differing(out.d[rows], model(self.tested, *x, rows, name))
            wrong = f"{elements} elements" if elements else ""
        return wrong if out.intact() else "wrote outside of D"

    def mx_decode(self):
        """Each code by each exponent whose product bf16 has, of A and of B: exactly; NaN where there is one."""
        n, k, count = 512, 128, 0
        for name in self.mx_names(64, n, k, True):
            for (low, high), base in itertools.product(((3, 110), (110, 140), (130, 180), (180, 247)), range(0, k, 32)):
                for of_a in (False, True):
                    few, many = (n, 64) if of_a else (64, n)
                    at = (torch.arange(few, device="cuda") + base) % k
                    one = torch.zeros(few, k, dtype=torch.uint8, device="cuda")
                    one[torch.arange(few), at] = 0x38
                    codes = codes_but_nan(many, k, self.generator)
                    words = words_of(torch.randint(low, high, (many, 4), device="cuda", generator=self.generator))
                    of_one = words_of(torch.full((few, 4), 127, device="cuda"))
                    x = one.view(codes.dtype), of_one, codes, words
                    d = torch.empty(64, n, dtype=BF16, device="cuda")
                    self.tested.gemm(*(x[2:] + x[:2] if of_a else x), d, config=name)
                    want = mx_values(codes, words)[:, at]
                    wrong = int((d.double() != (want if of_a else want.t())).sum())
                    self.demand(f"{wrong} values" if wrong else "", name, f"exponents from {low}, A {of_a}")
                    count += d.numel()
            self.demand("" if self.mx_nan_is_kept(name) else "NaN is not where it must be, or elsewhere", name)
        return {"values": count}

    def mx_nan_is_kept(self, name: str) -> bool:
        m, n, k = 64, 512, 128
        a, b = codes_but_nan(m, k, self.generator), codes_but_nan(n, k, self.generator)
        sfa, sfb = (torch.full((rows, 4), 127, dtype=torch.uint8, device="cuda") for rows in (m, n))
        nan = torch.zeros(m, n, dtype=torch.bool, device="cuda")
        a.view(torch.uint8)[3, 100], b.view(torch.uint8)[5, 77], b.view(torch.uint8)[9, 30] = 0xFF, 0x7F, 0xFF
        sfa[7, 2], sfb[20, 3] = 255, 255
        nan[[3, 7]], nan[:, [5, 9, 20]] = True, True
        d = torch.empty(m, n, dtype=BF16, device="cuda")
        self.tested.gemm(a, words_of(sfa), b, words_of(sfb), d, config=name)
        return torch.equal(d.isnan(), nan)

    def mx_of_rows(self, of_a: bool, layout: str) -> int:
        count = 0
        for rows in small_rows():
            for name in self.mx_names(74, 136, 1536, of_a, groups=4):
                p = MxProblem(rows, 136, 1536, layout, self.generator, 16, 1, of_a)
                p.prepare(self.tested, config=name)()
                self.demand(p.wrong(self.tested, self.random, 3, 6), rows.form, name, layout)
                count += 1
        return count

    def mx_repeat(self):
        """Many runs of every kernel give the same bits, and so does a replayed graph of all."""
        calls, (m, n, k) = [], self.MX_REPEATED
        rows = masked_rows(list(self.MX_ROWS), max(self.MX_ROWS) + 4)
        for of_a, layout in ((of_a, layout) for of_a in (True, False) for layout in self.MX_LAYOUTS):
            x = mx_operands(m, n, k, layout, self.generator, 0, of_a)
            for name in self.mx_names(m, n, k, of_a)[: self.MX_KERNELS]:
                d = torch.empty(m, n, dtype=BF16, device=self.generator.device)
                calls.append((f"{name}, {layout}", d, self.tested.prepare(*x, d, config=name)))
            for name in self.mx_names(rows.m * rows.stacks, n, k, of_a, groups=rows.groups)[: self.MX_KERNELS]:
                p = MxProblem(rows, n, k, layout, self.generator, of_a=of_a)
                calls.append((f"{name}, {layout}", p.d, p.prepare(self.tested, config=name)))
        self.repeated_by_graph(calls)
        return {"kernels": len(calls), "runs": self.RUNS}

    def mx_options(self):
        """The same bits of a row for any M, on fewer SMs and with dependent launches; the same of groups."""
        n, k = self.MX_REPEATED[1:]
        for of_a in (True, False):
            a, sfa, b, sfb = mx_operands(640, n, k, "mn", self.generator, 0, of_a)
            first = None
            for m, num_sms, pdl in self.MX_CALLS:
                d = torch.empty(m, n, dtype=BF16, device=a.device)
                self.tested.gemm(a[:m], sfa[:m], b, sfb, d, batch_invariant=ON, num_sms=num_sms, pdl=pdl)
                first = d[:1].clone() if first is None else first
                if count := differing(d[:1], first):
                    raise AssertionError(f"row 0 of {m}, num_sms {num_sms}, pdl {pdl}: {count} elements differ")
            p = MxProblem(offset_rows(list(self.MX_ROWS), 3, 5), n, k, "row", self.generator, of_a=of_a)
            for _, num_sms, pdl in self.MX_CALLS:
                p.out.all.fill_(p.VALUE)
                p.prepare(self.tested, num_sms=num_sms, pdl=pdl)()
                self.demand(p.wrong(self.tested, self.random, 3, 4), f"groups, num_sms {num_sms}, pdl {pdl}")
        return {"calls": 4 * len(self.MX_CALLS)}

    def mx_beyond_31_bits(self):
        """A, B or D with more than 2^31 elements."""
        for m, n, k in self.MX_HUGE:
            x = mx_operands(m, n, k, "mn", self.generator, 0, True)
            out = Guarded(m, n, device=self.generator.device)
            name = self.mx_names(m, n, k, True)[0]
            self.tested.gemm(*x, out.d, config=name)
            wrong = self.mx_wrong(x, out, name, True, 4)
            self.demand(wrong, m, n, k, name)
            del x, out
            torch.cuda.empty_cache()
        return {"shapes": self.MX_HUGE}
