"""What gpu_check.py asks of products with MX scales: each kernel's bits against the CPU's model, the same ones whenever
it runs, in graphs, on fewer SMs, with dependent launches and for any M, and right ones where memory has more than 2^31
elements."""

import itertools

import torch

from gpu_cases import LAYOUTS, Guarded, Operands, blocks, differing, model, operands, sample_rows
from gpu_grouped_cases import Problem, index_rows, masked_rows, offset_rows, prefix_rows, small_rows
from gpu_library import ON
from gpu_types import BF16, Types


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


class MxProblem(Problem):
    """Groups of rows with such scales; those of rows without a group are anything."""

    def __init__(self, rows, n: int, k: int, layout: str, generator, padding: int = 0, gap: int = 0, of_a: bool = True):
        super().__init__(rows, n, k, layout, generator, padding, gap, row_b_scales=True)
        a, sfa, d = self.stacked
        if of_a:
            self.stacked = a, with_exponents(sfa, generator), d
            self.sfa = with_exponents(self.sfa, generator)  # the same memory
        self.sfb = with_exponents(self.sfb, generator)

    def way_of_model(self, dtype: torch.dtype) -> dict:
        return {"batch_invariant": ON}


class Mx(Types):
    MX_SHAPES: tuple[tuple[int, int, int], ...] = ((1, 520, 2048), (33, 72, 1552), (257, 520, 2048), (1000, 136, 4096))
    MX_REPEATED: tuple[int, int, int] = (640, 2112, 2048)
    MX_ROWS: tuple[int, ...] = (0, 300, 70, 270)  # of groups
    MX_FEW = (1, 7, 15, 16, 17, 31, 32, 33, 64, 100, 129, 200)  # rows of random products
    MX_LAYOUTS: tuple[str, ...] = LAYOUTS
    MX_KERNELS: int | None = None  # of each kind at most that are repeated
    MX_REENCODED: tuple[tuple[int, int, int], ...] = ((2100, 4096, 2048), (4096, 2120, 1552))
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
                rows = sample_rows(m, 8, self.generator)
                wrong = differing(out.d[rows], model(self.tested, *x, rows, name))
                self.demand("" if not wrong and out.intact() else f"{wrong} elements", m, n, k, name, layout)
                count += 1
        return count

    def mx_many(self):
        """Random products: all of D has the same bits by every kernel that adds up in one order."""
        count = 0
        while count < self.options.shapes:
            m, n, k = self.random.choice(self.MX_FEW), 8 * self.random.randint(1, 300), 16 * self.random.randint(1, 400)
            layout, padding = self.random.choice(LAYOUTS), self.random.choice((0, 16))
            x = mx_operands(m, n, k, layout, self.generator, padding, True)
            first = None
            for name in self.mx_names(m, n, k, True, batch_invariant=1):
                out = Guarded(m, n, device=self.generator.device)
                self.tested.gemm(*x, out.d, config=name)
                first = out.d.clone() if first is None else first
                wrong = differing(out.d, first)
                self.demand("" if not wrong and out.intact() else f"{wrong} elements", m, n, k, name, layout, padding)
                count += 1
        return {"products": count}

    def mx_of_rows(self, of_a: bool, layout: str) -> int:
        count = 0
        for rows in small_rows():
            for name in self.mx_names(74, 136, 1536, of_a, groups=4):
                p = MxProblem(rows, 136, 1536, layout, self.generator, 16, 1, of_a)
                p.prepare(self.tested, config=name)()
                self.demand(p.wrong(self.tested, self.random, 3, 6), rows.form, name, layout)
                count += 1
        return count

    def some_rows(self, sizes: list):
        """Groups of these sizes in any form."""
        of = self.random.randint(0, 3)
        if of == 0:
            return masked_rows(sizes, max(sizes) + self.random.randint(1, 9))
        if of == 1:
            return offset_rows(sizes, self.random.randint(0, 9), self.random.randint(0, 9))
        if of == 2:
            return prefix_rows(sizes, 64, 5)
        return index_rows(sizes, 128, self.random.sample(range(len(sizes)), len(sizes)), 7)

    def mx_groups(self):
        """Random groups of rows in every form, by every kernel."""
        count = 0
        while count < self.options.shapes:
            rows = self.some_rows([self.random.randint(0, 150) for _ in range(self.random.randint(1, 12))])
            n, k = 8 * self.random.randint(1, 60), 16 * self.random.randint(1, 150)
            layout, padding = self.random.choice(LAYOUTS), self.random.choice((0, 16))
            p = MxProblem(rows, n, k, layout, self.generator, padding, self.random.choice((0, 1)))
            for name in self.mx_names(rows.m * rows.stacks, n, k, True, groups=rows.groups):
                p.out.all.fill_(p.VALUE)
                p.prepare(self.tested, config=name)()
                self.demand(p.wrong(self.tested, self.random, 3, 6), rows.form, rows.numbers[:8], n, k, name, layout)
                count += 1
        return {"products": count}

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
                p.prepare(self.tested, num_sms=num_sms, pdl=pdl, batch_invariant=ON)()
                self.demand(p.wrong(self.tested, self.random, 3, 4), f"groups, num_sms {num_sms}, pdl {pdl}")
        return {"calls": 4 * len(self.MX_CALLS)}

    def by_steps(self, a, sfa, b, sfb, prepare) -> torch.Tensor:
        """D of a call that re-encodes its operands, made by a call for each step. `prepare` makes that of a product."""
        operands = []
        for codes, scales in ((a, sfa), (b, sfb)):
            if scales.dtype == torch.int32:
                *stacks, rows, k = codes.shape
                to, words = torch.empty_like(codes, memory_format=torch.contiguous_format), scales
                scales = torch.empty(*stacks, blocks(k), rows + -rows % 4, device=codes.device)[..., :rows].mT
                self.tested.reencode(codes, words, to, scales)
                codes = to
            operands += [codes, scales]
        d, call = prepare(*operands)
        call()
        return d

    def mx_reencoded(self):
        """Calls that re-encode their operands have the bits of those steps, each time, in graphs and with dependent
        launches."""
        calls, wanted = [], []
        for (m, n, k), of_a, layout in itertools.product(self.MX_REENCODED, (True, False), self.MX_LAYOUTS):
            x = mx_operands(m, n, k, layout, self.generator, 16, of_a)

            def product(a, sfa, b, sfb, pdl=0):
                d = torch.empty(a.shape[0], b.shape[0], dtype=BF16, device=a.device)
                return d, self.tested.prepare(a, sfa, b, sfb, d, pdl=pdl, prefetch_weights=pdl)

            wanted.append(self.by_steps(*x, product))
            calls.append((f"{m}x{n}x{k} {of_a} {layout}", *product(*x, pdl=self.random.randint(0, 1))))
            self.demand("" if self.is_reencoded(m, n, k, of_a) else "nothing is re-encoded", m, n, k, of_a)
        for of_a in (True, False):
            p = MxProblem(
                offset_rows([0, 900, 70, 1500], 3, 5), *self.MX_REENCODED[0][1:], "mn", self.generator, of_a=of_a
            )

            def of_rows(a, sfa, b, sfb, p=p):
                d = torch.empty_like(p.d)
                return d, self.tested.prepare_grouped(a, sfa, b, sfb, d, p.numbers, p.rows.form, p.rows.alignment)

            want = self.by_steps(p.a, p.sfa, p.b, p.sfb, of_rows)
            p.prepare(self.tested)()
            begin, end = p.rows.spans[0][1], p.rows.spans[-1][2]
            wrong = differing(p.d[begin:end], want[begin:end]) if want.is_cuda else 0
            self.demand("" if not wrong and p.out.intact() else f"{wrong} elements", "groups", of_a)
        firsts = self.repeated_by_graph(calls)
        for (what, *_), first, want in zip(calls, firsts, wanted, strict=True):
            wrong = differing(first, want) if want.is_cuda else 0  # the CPU re-encodes nothing
            self.demand(f"{wrong} elements" if wrong else "", what)
        return {"products": len(calls) + 2, "runs": self.RUNS}

    def is_reencoded(self, m: int, n: int, k: int, of_a: bool) -> bool:
        return self.tested.explain(m, n, k, a_mx=int(of_a), b_mx=1)["reencoded"]["taken"]

    def mx_beyond_31_bits(self):
        """A, B or D with more than 2^31 elements."""
        for m, n, k in self.MX_HUGE:
            x = mx_operands(m, n, k, "mn", self.generator, 0, True)
            names = self.mx_names(m, n, k, True)
            for name in (names[0], names[-1]):  # columns of D are rows of WGMMAs, and rows are
                out = Guarded(m, n, device=self.generator.device)
                self.tested.gemm(*x, out.d, config=name)
                rows = sample_rows(m, 4, self.generator)
                wrong = differing(out.d[rows], model(self.tested, *x, rows, name))
                self.demand("" if not wrong and out.intact() else f"{wrong} elements", m, n, k, name)
                del out
            del x
            torch.cuda.empty_cache()
        return {"shapes": self.MX_HUGE}
