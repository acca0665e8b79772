"""What gpu_check.py checks and times of products whose rows of A and of D are found by numbers."""

import ctypes
import dataclasses
import itertools
import math

import torch

from gpu_cases import LAYOUTS, NAN_CODE, Guarded, blocks, differing, quantised
from gpu_fixture import Fixture
from gpu_grouped import FORMS
from gpu_grouped_cases import Problem, Rows, offset_rows, random_launch, random_rows, small_rows
from gpu_library import INDICES, MASKED, OFFSETS, C, Library, integers, stack
from gpu_timing import median_times

OUTPUTS = (torch.bfloat16, torch.float32)


@dataclasses.dataclass
class IndexedEpilogue:
    """Numbers of rows of A and of D, and factors, each [M], or none."""

    rows_of_a: torch.Tensor | None
    rows_of_d: torch.Tensor | None
    factors_of_rows: torch.Tensor | None

    def struct(self) -> ctypes.Structure:
        given = {
            name: integers(t[:, None]) for name in ("rows_of_a", "rows_of_d") if (t := getattr(self, name)) is not None
        }
        if self.factors_of_rows is not None:
            given["factors_of_rows"] = stack(self.factors_of_rows[:, None])
        return C["epilogue"](ctypes.sizeof(C["epilogue"]), 1.0, **given)


class IndexedProduct:
    """Tokens of which all that no number names are NaN, and a D of which all that none names has to stay."""

    def __init__(self, check: Fixture, rows: Rows, n: int, k: int, layout: str, tokens: int, output: torch.dtype):
        random, generator = check.random, check.generator
        self.rows, self.n, self.k, self.output = rows, n, k, output
        self.copied = Problem(rows, n, k, layout, generator, random.choice((0, 16)), output=torch.float32)
        m, device = rows.m, generator.device
        a, sfa = quantised(1, tokens, k, 1, layout, generator, 16 * random.randint(0, 1))
        self.a, self.sfa = a[0], sfa[0]

        def chance(part: float) -> torch.Tensor:
            return torch.rand(m, device=device, generator=generator) < part

        def any_of(count: int) -> torch.Tensor:
            return torch.randint(count, (m,), device=device, generator=generator, dtype=torch.int32)

        owned = self.copied.owned[0]
        self.rows_of_a = torch.where(chance(0.1), any_of(9) - 9, any_of(tokens))
        self.rows_of_a[chance(0.02)] = tokens
        named = self.rows_of_a[owned]
        unnamed = torch.ones(tokens + 9, dtype=torch.bool, device=device)
        unnamed[named[(named >= 0) & (named < tokens)].long()] = False
        self.a.view(torch.uint8)[unnamed[:tokens]] = NAN_CODE
        self.sfa[unnamed[:tokens]] = math.nan
        self.gathers = random.random() < 0.7
        self.scatters = not self.gathers or random.random() < 0.5
        self.d_height = m + random.choice((0, 5, 300)) if self.scatters else m
        order = torch.randperm(self.d_height, device=device, generator=generator, dtype=torch.int32)
        self.rows_of_d = torch.where(chance(0.1), any_of(9) - 9, order[:m])
        self.factors = torch.randn(m, device=device, generator=generator) if random.random() < 0.5 else None
        self.clear()

    def clear(self) -> None:
        self.out = self.untouched()

    def untouched(self) -> Guarded:
        return Guarded(self.d_height, self.n, dtype=self.output, edge=64)

    def names(self, library: Library) -> list[str]:
        rows = self.rows
        of = {"groups": rows.groups, "alignment": rows.planned_alignment}
        account = library.explain(rows.m, self.n, self.k, self.output, indexed=1, **of)
        return [account["chosen"]["name"], *(x["name"] for x in account["candidates"] if "rejected" not in x)]

    def prepare(self, library: Library, **options):
        """A call that writes `out`."""
        p, d = self.copied, self.out.d
        epilogue = IndexedEpilogue(
            self.rows_of_a if self.gathers else None, self.rows_of_d if self.scatters else None, self.factors
        )
        a, sfa = (self.a, self.sfa) if self.gathers else (p.a, p.sfa)
        operands = (a, sfa, p.b, p.sfb, d, p.numbers)
        return library.prepare_grouped(
            *operands, self.rows.form, alignment=self.rows.alignment, epilogue=epilogue, **options
        )

    def wanted(self, library: Library) -> torch.Tensor:
        """What the memory of D holds after a product of copied rows, in f32, and copies of its rows."""
        p, owned = self.copied, self.copied.owned[0]
        if self.gathers:
            there = (self.rows_of_a >= 0) & (self.rows_of_a < len(self.a))
            index = torch.where(there, self.rows_of_a, 0).long()
            for to, tokens in ((p.a.view(torch.uint8), self.a.view(torch.uint8)), (p.sfa, self.sfa)):
                to[owned] = torch.where(there[:, None], tokens[index], 0)[owned]
        p.prepare(library)()
        d = p.d if self.factors is None else p.d * self.factors[:, None]
        fills = self.rows.form == INDICES and not self.scatters
        out, rows = self.untouched(), torch.arange(len(owned), device=owned.device)
        if fills:
            d = torch.where(owned[:, None], d, 0)
        wanted = torch.ones_like(owned) if fills else owned
        if self.scatters:
            wanted, rows = wanted & (self.rows_of_d >= 0) & (self.rows_of_d < self.d_height), self.rows_of_d.long()
        out.d[rows[wanted]] = d[wanted].to(self.output)
        return out.all

    def text(self) -> str:
        ways = f"A {self.gathers}, D {self.scatters}, factors {self.factors is not None}"
        return f"{FORMS[self.rows.form]}, {len(self.a)}, {self.rows.m}x{self.n}x{self.k}, {self.output}, {ways}"


class Indexed(Fixture):
    def random_indexed(self, form: int) -> IndexedProduct:
        rows = random_rows(self.random, form)
        small = rows.groups > 100  # weights of all of them shall fit
        n = 8 * self.random.randint(1, 32 if small else 200)
        k = 16 * self.random.randint(1, 20 if small else 100)
        tokens = self.random.choice((1, 7, 100, 1000))
        return IndexedProduct(self, rows, n, k, self.random.choice(LAYOUTS), tokens, self.random.choice(OUTPUTS))

    def indexed(self):
        """Bits of a product of copied rows in f32, times factors, rounded; no other byte is written."""
        kernels, forms = set(), itertools.cycle(form for form in FORMS if form != MASKED)
        count = max(12, self.options.shapes // 4)
        for _ in range(count):
            p = self.random_indexed(next(forms))
            names = p.names(self.tested)
            wanted = p.wanted(self.tested)
            for name in {names[0], self.random.choice(names)}:
                launch = random_launch(self.random)
                p.clear()
                p.prepare(self.tested, config=name, **launch)()
                if wrong := differing(p.out.all, wanted):
                    raise AssertionError(f"{name}, {p.text()}, {launch}: {wrong} elements differ")
                kernels.add(name)
        return {"problems": count, "kernels": len(kernels)}

    def indexed_calls(self, n: int, k: int) -> list:
        """(kernel, D, a call) for every kernel that finds rows by numbers."""
        calls = []
        for rows, output in itertools.product((r for r in small_rows() if r.form != MASKED), OUTPUTS):
            p = IndexedProduct(self, rows, n, k, "mn", 50, output)
            for name in dict.fromkeys(p.names(self.tested)):
                p.clear()
                calls.append((name, p.out.d, p.prepare(self.tested, config=name)))
        return calls

    def indexed_repeat(self):
        """200 runs of every kernel, and a replayed graph of all, give the same bits; so do two streams at once."""
        calls = self.indexed_calls(776, 2048)
        firsts = self.repeated_by_graph(calls)
        streams = [torch.cuda.Stream() for _ in range(2)]
        for _, d, _ in calls:
            d.fill_(Guarded.VALUE)
        torch.cuda.synchronize()
        for i, (_, _, call) in enumerate(calls):
            with torch.cuda.stream(streams[i % 2]):
                call()
        torch.cuda.synchronize()
        for (name, d, _), first in zip(calls, firsts, strict=True):
            if wrong := differing(d, first):
                raise AssertionError(f"{name}: {wrong} elements are others beside another stream")
        return {"kernels": len(calls), "runs": self.RUNS}

    def indexed_tall(self):
        """Rows whose bytes lie beyond 2^31, and elements of D beyond it."""
        k, n, tokens = 8192, 128, (1 << 31) // 8192 + 300
        rows = offset_rows([3, 70, 130])
        p = IndexedProduct(self, rows, n, k, "row", tokens, torch.bfloat16)
        p.gathers = p.scatters = True
        p.d_height = 1 << 24
        last = torch.arange(rows.m, device="cuda", dtype=torch.int32)
        p.rows_of_a, p.rows_of_d = tokens - 1 - last, p.d_height - 1 - last
        p.a.view(torch.uint8)[-rows.m :] = 0x38  # ones
        p.sfa[-rows.m :] = 1 / (1 + torch.arange(rows.m, device="cuda"))[:, None]
        p.clear()
        p.prepare(self.tested)()
        if wrong := differing(p.out.all[-1000:], p.wanted(self.tested)[-1000:]):
            raise AssertionError(f"{wrong} elements differ")
        return {"tokens": tokens, "rows of D": p.d_height}

    def small_indexed(self):
        """Every kernel that finds rows by numbers once, on a small problem: what the sanitizers run."""
        for name, _, call in self.indexed_calls(264, 528):
            print(name, flush=True)
            call()

    def indexed_speed(self):
        """Times beside a product of copied rows: with A by numbers, with D by numbers and factors, and with both."""
        table = []
        for tokens, experts, n, k in itertools.product((8, 64, 512, 4096), (8, 64), (4096,), (7168,)):
            ids = torch.rand(tokens, experts, device="cuda", generator=self.generator).argsort(1)[:, :8]
            order = ids.flatten().argsort(stable=True)
            rows = offset_rows(torch.bincount(ids.flatten(), minlength=experts).tolist())
            p = Problem(rows, n, k, "mn", self.generator)
            a, sfa = quantised(1, tokens, k, 1, "mn", self.generator)
            of_a, of_d = (order // 8).int(), order.int()
            factors = torch.rand(rows.m, device="cuda", generator=self.generator)

            def by(of_rows, x=(a[0], sfa[0]), p=p):
                operands = (x[0], x[1], p.b, p.sfb, p.d, p.numbers)
                return self.tested.prepare_grouped(*operands, form=OFFSETS, epilogue=of_rows)

            codes, index = a[0].view(torch.uint8), of_a.long()
            copied = p.a.view(torch.uint8)

            def copies(codes=codes, index=index, copied=copied, sfa=sfa[0], to=p.sfa):
                torch.index_select(codes, 0, index, out=copied)
                to.copy_(sfa[index])

            calls = {
                "product": p.prepare(self.tested),
                "rows of A by numbers": by(IndexedEpilogue(of_a, None, None)),
                "rows of D by numbers": by(IndexedEpilogue(None, of_d, factors), (p.a, p.sfa)),
                "both": by(IndexedEpilogue(of_a, of_d, factors)),
                "copies of rows": copies,
            }
            us = {name: round(t, 2) for name, t in median_times(calls, self.options.rounds).items()}
            row = {"tokens": tokens, "experts": experts, "shape": [rows.m, n, k], "us": us}
            print(row, flush=True)
            table.append(row)
        return {"rows": table, "blocks of K": blocks(7168)}
