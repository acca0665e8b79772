"""What gpu_check.py checks and times of products without scales, of each type: one, groups of rows, groups of K."""

import functools
import itertools
from collections.abc import Callable

import torch

from gpu_cases import differing
from gpu_fixture import Fixture
from gpu_grouped_cases import masked_rows, offset_rows, random_launch, random_rows, small_rows
from gpu_library import INDICES, MASKED, OFFSETS, ON, PREFIX_SUMS
from gpu_unscaled_cases import (
    LAYOUTS,
    LAYOUTS_OF_K,
    NAMES,
    Case,
    OfK,
    OfRows,
    One,
    layouts_of,
    normal,
    outputs,
    parts_of_k,
    product,
    share_of_bound,
)
from gpu_wgrad import WAYS

FORMS = (OFFSETS, INDICES, PREFIX_SUMS, MASKED)


class Unscaled(Fixture):
    def random_one(self, of: torch.dtype) -> Case:
        m = self.random.choice((1, 2, 7, 33, 64, 65, 128, 129, 200, 257, 500, 777))
        n, k = 8 * self.random.randint(1, 120), 8 * self.random.randint(1, 300)
        return One(m, n, k, self.generator, of, self.random_padding(), self.random.choice(tuple(LAYOUTS)))

    def random_of_rows(self, form: int, of: torch.dtype) -> Case:
        rows = random_rows(self.random, form)
        small = rows.groups > 100
        n, k = 8 * self.random.randint(1, 12 if small else 60), 8 * self.random.randint(1, 20 if small else 120)
        gap, layout = self.random.choice((0, 0, 1, 5)), self.random.choice(layouts_of(form))
        return OfRows(rows, n, k, self.generator, of, self.random_padding(), gap, layout)

    def random_of_k(self, of: torch.dtype) -> Case:
        blocks = [self.random.choice((0, 1, 2, 3, 5)) for _ in range(self.random.randint(1, 8))]
        m, n = self.random.choice((8, 64, 130, 257)), 8 * self.random.randint(1, 60)
        before, after = (self.random.randint(0, 1) for _ in range(2))
        layout = self.random.choice(LAYOUTS_OF_K)
        return OfK(m, n, blocks, self.generator, of, before, after, self.random_padding(), layout)

    def random_padding(self) -> int:
        return 8 * self.random.choice((0, 0, 1, 7))

    def kinds_of_d(self, case: Case) -> list:
        """(type of D, D before it is added to, or None)"""
        old = torch.randn(case.shape, device=self.generator.device, generator=self.generator)
        return [*((output, None) for output in outputs(case.of)), *([(torch.float32, old)] if case.accumulates else [])]

    def one_unscaled(self, case: Case) -> set:
        """The sums of one kernel against double; the planner's choice and another one against these, to the bit."""
        first = self.random.choice(case.names_without_parts(self.tested))
        sums, kernels = case.sums(self.tested, first), {first}
        for output, old in self.kinds_of_d(case):
            names = case.names(self.tested, output, int(old is not None))
            used = {names[0], self.random.choice(names)}
            if all(parts_of_k(name) != (1, 1) for name in used):  # bits are compared with those of the others alone
                used.add(self.random.choice([name for name in names if parts_of_k(name) == (1, 1)]))
            for name in sorted(used):
                # Kernels that split K may need more SMs than a launch allows.
                launch = random_launch(self.random) if parts_of_k(name) == (1, 1) else {}
                ways = WAYS if case.layout == "nt" else [way for way in WAYS if way != "blocks"]
                way = {"way": self.random.choice(ways)} if isinstance(case, OfK) else {}
                case.check(self.tested, sums, output, old, config=name, **launch, **way)
                kernels.add(name)
        return kernels

    def unscaled(self):
        """Random products of every grouping and type."""
        ways: tuple[Callable[[torch.dtype], Case], ...]
        ways = (self.random_one, *(functools.partial(self.random_of_rows, form) for form in FORMS), self.random_of_k)
        kernels: set = set()
        for of in NAMES:
            for _, way in zip(range(self.options.shapes), itertools.cycle(ways), strict=False):
                kernels |= self.one_unscaled(way(of))
        return {"problems": self.options.shapes * len(NAMES), "kernels": len(kernels)}

    def unscaled_repeat(self):
        """Many runs of every kernel give the same bits, and so does a replayed graph of all."""
        m, n, k = 640, 2112, 2048
        calls, wanted = [], []
        cases: tuple[Callable[..., Case], ...] = (
            *(functools.partial(One, m, n, k, layout=x) for x in LAYOUTS),
            *(functools.partial(OfRows, masked_rows([0, 300, 70, 270], 304), n, k, layout=x) for x in LAYOUTS),
            *(functools.partial(OfK, m, n, [4, 0, 4, 8], layout=x) for x in LAYOUTS_OF_K),
        )
        for of, make in itertools.product(NAMES, cases):
            case = make(self.generator, of)
            sums = case.sums(self.tested)
            for output in outputs(of):
                for name in case.names(self.tested, output):
                    d = torch.empty(case.shape, device=sums.device, dtype=output)
                    calls.append((name, d, case.prepare(self.tested, d, config=name)))
                    wanted.append(case.wanted(sums, output) if parts_of_k(name) == (1, 1) else None)
        self.repeated_by_graph(calls, wanted)
        return {"kernels": len(calls), "runs": self.RUNS}

    def unscaled_options(self):
        """The same bits of a row for any M, on fewer SMs and with dependent launches."""
        n, k = 2112, 7168
        calls = ((1, 0, 0), (64, 0, 1), (65, 0, 0), (300, 40, 0), (4096, 0, 1), (4096, 100, 0))
        for of in NAMES:
            a, b = normal(self.generator, of, 4096, k), normal(self.generator, of, n, k)
            first = None
            for m, num_sms, pdl in calls:
                d = torch.empty(m, n, device=a.device, dtype=of)
                self.tested.gemm(a[:m], None, b, None, d, batch_invariant=ON, num_sms=num_sms, pdl=pdl)
                first = d[:1].clone() if first is None else first
                if differing(d[:1], first):
                    raise AssertionError(f"row 0 of {m} of {of} with num_sms {num_sms}, pdl {pdl} has other bits")
        return {"calls": len(calls) * len(NAMES)}

    # M, N, K of one product; groups with A, D and B, then groups of K with D and A, of more than 2^31 elements.
    LARGE: tuple[Callable[..., Case], ...] = (
        functools.partial(One, 300_000, 14_400, 64),
        functools.partial(One, 256, 200_064, 11_000),
        functools.partial(OfRows, offset_rows([0, 299_000, 1, 999], first=3, spare=5), 14_400, 64),
        functools.partial(OfRows, masked_rows([5, 40_000, 0, 77] * 8, 40_000), 2048, 1736),
        functools.partial(OfRows, offset_rows([0, 3, 200, 1] * 16), 8192, 8192),
        functools.partial(OfK, 16_384, 16_384, [1, 0, 3, 1] * 4),
        functools.partial(OfK, 70_000, 520, [64, 0, 63, 129]),
        functools.partial(One, 300_000, 264, 7232, layout="tn"),
        functools.partial(One, 264, 300_000, 7232, layout="nn"),
        functools.partial(OfRows, offset_rows([0, 3, 200, 1] * 16), 8192, 8192, layout="nn"),
        functools.partial(OfRows, masked_rows([5, 40_000, 0, 77] * 8, 40_000), 2048, 1736, layout="tn"),
        functools.partial(OfK, 70_000, 520, [64, 0, 63, 129], layout="tn"),
    )

    def unscaled_beyond_31_bits(self):
        """Corners of D where an operand or D has more than 2^31 elements."""
        for make, of in zip(self.LARGE, itertools.cycle(NAMES)):
            case = make(self.generator, of)
            for output in outputs(of):
                d = torch.empty(case.shape, device=self.generator.device, dtype=output)
                case.prepare(self.tested, d)()
                for where, a, b in case.parts():
                    for rows in (slice(0, 2), slice(-2, None)):
                        corner = a[rows], b[-300:]
                        share = share_of_bound(d[where][rows, -300:], *product(*corner), a.shape[1])
                        if share > 1:
                            raise AssertionError(f"{case}, D in {output}, {where}, {rows}: {share:.3g} of the bound")
                del d
            del case
            torch.cuda.empty_cache()
        return {"problems": 2 * len(self.LARGE)}

    def small_unscaled(self):
        """Every kernel, on small problems that go around its ring of stages: what the sanitizers run."""
        cases: tuple[Callable[..., Case], ...] = (
            *(functools.partial(One, 257, 136, 840, layout=x) for x in LAYOUTS),
            *(
                functools.partial(OfRows, rows, 136, 840, gap=1, layout=x)
                for rows in small_rows()
                for x in layouts_of(rows.form)
            ),
            *(functools.partial(OfK, 257, 136, [1, 0, 7], before=1, after=1, layout=x) for x in LAYOUTS_OF_K),
        )
        for of, make in itertools.product(NAMES, cases):
            case = make(generator=self.generator, of=of, padding=8)
            sums = case.sums(self.tested)
            for output, old in self.kinds_of_d(case):
                for name in case.names(self.tested, output, int(old is not None)):
                    print(case, name, flush=True)
                    case.check(self.tested, sums, output, old, config=name)
        for of in NAMES:  # of so much K that eight ranks go around their rings
            case = One(5, 136, 64 * 130, generator=self.generator, of=of)
            sums = case.sums(self.tested)
            for output, name in ((d, name) for d in outputs(of) for name in case.names(self.tested, d)):
                if parts_of_k(name)[0] > 1:
                    print(case, name, flush=True)
                    case.check(self.tested, sums, output, config=name)
