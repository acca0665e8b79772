"""What gpu_check.py checks and times of D = alpha A B + beta C + bias: one product and groups of rows."""

import functools
import itertools
import math
from collections.abc import Callable

import torch

from gpu_cases import CODES, LAYOUTS, Guarded, Operands, bound, differing, expanded, operands, sample_rows
from gpu_fixture import Fixture, row_of
from gpu_grouped_cases import Problem, masked_rows, offset_rows, random_launch, random_rows
from gpu_library import DTYPES, HOPPER, INDICES, MASKED, OFFSETS, ON, PREFIX_SUMS, Epilogue
from gpu_timing import median_times
from gpu_unscaled_cases import LAYOUTS as MAJORS
from gpu_unscaled_cases import NAMES, OfRows, fields_of, layouts_of, normal, outputs, product
from records import write_record

FORMS = (OFFSETS, INDICES, PREFIX_SUMS, MASKED)
OUTPUTS = (torch.bfloat16, torch.float16, torch.float32)
E4M3, E5M2 = CODES
E5M2_FIELDS = {"dtype": DTYPES[E5M2], "dtype_of_b": DTYPES[E4M3]}
ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-23}
SMALLEST = {torch.bfloat16: 2.0**-133, torch.float16: 2.0**-24, torch.float32: 2.0**-148}
SPEED = ((64, 7168, 2048), (4096, 7168, 2048), (4096, 4096, 7168))


def over_bound(d, exact, of_sums, epilogue: Epilogue, rows=slice(None)) -> float:
    """The largest error over its bound: `of_sums` bounds that of the sums before the epilogue, which rounds thrice."""
    scaled = abs(epilogue.alpha) * (exact.abs() + of_sums)
    want, magnitudes = epilogue.alpha * exact, scaled
    if epilogue.c is not None and epilogue.beta != 0:
        added = epilogue.beta * epilogue.c.double()[rows]
        want, magnitudes = want + added, magnitudes + added.abs()
    if epilogue.bias is not None:
        want, magnitudes = want + epilogue.bias.double(), magnitudes + epilogue.bias.double().abs()
    error = abs(epilogue.alpha) * of_sums + magnitudes * 2.0**-22 + 2.0**-146
    largest = torch.finfo(d.dtype).max
    allowed = error + (want.abs() + error) * ROUNDING[d.dtype] + SMALLEST[d.dtype]
    infinite = d.isinf() & (want.abs() + error >= largest) & (d.sign() == want.sign())  # beyond f16
    share = torch.where(infinite, 0.0, (d.double() - want).abs() / allowed)
    return math.inf if bool(share.isnan().any()) else float(share.max()) if share.numel() else 0.0


def bound_of_sums(absolute: torch.Tensor, k: int) -> torch.Tensor:
    """Of sums of k products without scales, whose magnitudes add up to `absolute`."""
    return absolute * math.expm1((k + k // 128 + 2) * 2.0**-24) + k * 2.0**-125


class Affine(Fixture):
    def padded(self, *shape: int, dtype: torch.dtype, padding: int = 8) -> torch.Tensor:
        """Values of the magnitude of sums, NaN in what lies between rows, and behind matrices."""
        *stacks, rows, cols = shape
        whole = torch.full((*stacks, rows + 3, cols + padding), math.nan, device="cuda", dtype=dtype)
        part = whole[..., :rows, :cols]
        part.copy_(30 * torch.randn(shape, device="cuda", generator=self.generator))
        return part

    def epilogue(self, c_shape: tuple, n: int, dtype: torch.dtype) -> Epilogue:
        """Any of alpha, beta, C and bias, and now and then none."""
        alpha = self.random.choice((1.0, 1.0, -0.37, 2.5, 0.0))
        beta = self.random.choice((0.0, 1.0, 1.0, -1.7, 0.3))
        padding = 8 * self.random.randint(1, 9)
        c = self.padded(*c_shape, dtype=dtype, padding=padding) if beta != 0 or self.random.random() < 0.2 else None
        if beta == 0 and c is not None:
            c.fill_(math.nan)  # is not read
        bias = 30 * torch.randn(n, device="cuda", generator=self.generator) if self.random.random() < 0.6 else None
        return Epilogue(alpha, beta, c, bias)

    def affine_names(self, m: int, n: int, k: int, output: torch.dtype, **fields) -> list:
        account = self.tested.explain(m, n, k, out_dtype=output, affine=1, **fields)
        names = [row["name"] for row in account["candidates"] if "rejected" not in row]
        return [account["chosen"]["name"], self.random.choice(names)]

    def types_and_fields(self, dtype: torch.dtype) -> tuple:
        """Types of A and B for D of this type, and the fields of a problem that has them."""
        mixed = dtype == torch.bfloat16 and self.random.random() < 0.5
        return ((E5M2, E4M3), E5M2_FIELDS) if mixed else ((E4M3, E4M3), {})

    @staticmethod
    def config_for(name: str, epilogue: Epilogue, d: torch.Tensor) -> str | None:
        """The kernel by name, where the call asks for an affine one."""
        added = epilogue.beta != 0 and epilogue.c is not None
        plain = epilogue.alpha == 1 and not added and epilogue.bias is None
        return None if plain and d.dtype == torch.bfloat16 else name

    def dense_affine(self) -> set:
        m = self.random.choice((1, 2, 7, 33, 64, 65, 128, 129, 200, 257, 500, 777))
        n, k = 8 * self.random.randint(1, 120), 16 * self.random.randint(1, 150)
        dtype, layout = self.random.choice(OUTPUTS), self.random.choice(LAYOUTS)
        types, fields = self.types_and_fields(dtype)
        x = operands(m, n, k, layout, self.generator, 16 * self.random.choice((0, 1)), types=types)
        epilogue = self.epilogue((m, n), n, dtype)
        exact = expanded(x[0], x[1], 1) @ expanded(x[2], x[3], 128).t()
        of_sums = bound(*x, exact)
        names = self.affine_names(m, n, k, dtype, **fields)
        for name, in_place in zip(names, (False, epilogue.c is not None), strict=True):
            out = Guarded(m, n, dtype=dtype)
            if in_place and epilogue.c is not None:
                out.d.copy_(epilogue.c)
            used = epilogue.with_c(out.d) if in_place else epilogue
            config = self.config_for(name, epilogue, out.d)
            self.tested.gemm(*x, out.d, config=config, epilogue=used, **random_launch(self.random))
            share = over_bound(out.d, exact, of_sums, epilogue)
            rows = sample_rows(m, 4, self.generator)
            want = torch.empty(len(rows), n, dtype=dtype)
            of_rows = (x[0][rows].cpu(), x[1][rows].cpu(), x[2].cpu(), x[3].cpu(), want)
            self.tested.gemm(*of_rows, numerics=HOPPER, batch_invariant=ON, epilogue=epilogue.on_cpu(rows))
            wrong = differing(out.d[rows], want) if config else 0
            if share > 1 or wrong or not out.intact():
                raise AssertionError(
                    f"{name}, {m}x{n}x{k}, {types}, {dtype}, {epilogue.text()}, in place {in_place}: {share:.3g} of "
                    f"the bound, {wrong} bits differ from the model's, or wrote outside of D"
                )
        return set(names)

    def dense_affine_unscaled(self) -> set:
        m = self.random.choice((1, 7, 64, 129, 257, 500))
        n, k = 8 * self.random.randint(1, 120), 8 * self.random.randint(1, 200)
        of, major = self.random.choice(tuple(NAMES)), self.random.choice(tuple(MAJORS))
        dtype = self.random.choice(outputs(of))
        a, b = (
            normal(self.generator, of, rows, k, padding=8, mn_major=mn_major)
            for rows, mn_major in zip((m, n), MAJORS[major], strict=True)
        )
        epilogue = self.epilogue((m, n), n, dtype)
        exact, absolute = product(a, b)
        of_sums = bound_of_sums(absolute, k)
        names = self.affine_names(m, n, k, dtype, dtype=DTYPES[of], **fields_of(major))
        for name in names:
            out = Guarded(m, n, dtype=dtype)
            plain = epilogue.changes_nothing()
            self.tested.gemm(a, None, b, None, out.d, config=None if plain else name, epilogue=epilogue)
            share = over_bound(out.d, exact, of_sums, epilogue)
            if share > 1 or not out.intact():
                what = f"{name}, {m}x{n}x{k}, {epilogue.text()}"
                raise AssertionError(f"{what}: {share:.3g} of the bound")
        return set(names)

    def rows_affine_unscaled(self) -> set:
        rows, of = random_rows(self.random, self.random.choice(FORMS)), self.random.choice(tuple(NAMES))
        n, k = 8 * self.random.randint(1, 12 if rows.groups > 100 else 60), 8 * self.random.randint(1, 60)
        layout, dtype = self.random.choice(layouts_of(rows.form)), self.random.choice(outputs(of))
        case = OfRows(rows, n, k, self.generator, of, padding=8, layout=layout)
        epilogue = self.epilogue(case.shape, n, dtype)
        names = self.affine_names(case.m, n, k, dtype, dtype=DTYPES[of], **case.fields)
        for name in names:
            out = Guarded(*case.shape, dtype=dtype)
            c = None if epilogue.c is None or rows.form == MASKED else epilogue.c[0]
            used = epilogue if rows.form == MASKED else epilogue.with_c(c)
            config = None if epilogue.changes_nothing() else name
            case.prepare(self.tested, out.d, config=config, epilogue=used, **random_launch(self.random))()
            d, worst = out.d.clone(), 0.0
            for where, a, b in case.parts():
                exact, absolute = product(a, b)
                of_part = epilogue.with_c(None if epilogue.c is None else epilogue.c[where])
                worst = max(worst, over_bound(d[where], exact, bound_of_sums(absolute, k), of_part))
                d[where] = case.elsewhere
            if worst > 1 or not bool((d == case.elsewhere).all()) or not out.intact():
                raise AssertionError(f"{name}, {case}, {epilogue.text()}: {worst:.3g} of the bound, or wrote elsewhere")
        return set(names)

    def rows_affine(self, form: int) -> set:
        rows = random_rows(self.random, form)
        small = rows.groups > 100
        n, k = 8 * self.random.randint(1, 12 if small else 60), 16 * self.random.randint(1, 10 if small else 60)
        dtype = self.random.choice(OUTPUTS)
        types, fields = self.types_and_fields(dtype)
        layout, gap = self.random.choice(LAYOUTS), self.random.choice((0, 2))
        problem = Problem(rows, n, k, layout, self.generator, 16, gap, types=types)
        shape = (rows.stacks, rows.m, n) if form == MASKED else (rows.m, n)
        epilogue = self.epilogue(shape, n, dtype)
        if epilogue.c is not None:  # of rows without a group, too
            epilogue.c.view(rows.stacks, rows.m, n)[~problem.owned] = math.nan
        of = {"groups": rows.groups, "alignment": rows.planned_alignment} | fields
        names = self.affine_names(max(1, rows.stacks * rows.m), n, k, dtype, **of)
        for name in names:
            outside = torch.full((rows.stacks, rows.m + 8, n + 32), 7.0, device="cuda", dtype=dtype)
            stacked = outside[:, 4 : 4 + rows.m, 16 : 16 + n]
            problem.d = stacked if form == MASKED else stacked[0]
            config = self.config_for(name, epilogue, stacked)
            problem.prepare(self.tested, config=config, epilogue=epilogue, **random_launch(self.random))()
            share = self.share_of_groups(problem, stacked, epilogue)
            kept = bool((stacked[~problem.owned] == (0 if form == INDICES else 7)).all())
            stacked.fill_(7)
            if share > 1 or not kept or not bool((outside == 7).all()):
                what = "" if kept else ", rows without a group are not as they must be"
                raise AssertionError(
                    f"{name}, form {form}, {rows.m}x{n}x{k}, {types}, {dtype}, {epilogue.text()}: {share:.3g} of "
                    f"the bound{what}"
                )
        return set(names)

    def share_of_groups(self, problem: Problem, d: torch.Tensor, epilogue: Epilogue) -> float:
        """Of at most 70 groups: of thousands, a sample."""
        a, sfa, _ = problem.stacked
        c = None if epilogue.c is None else epilogue.c.view(d.shape)
        worst = 0.0
        spans = [span for span in problem.rows.spans if span[1] != span[2]]
        for group, begin, end in self.random.sample(spans, min(len(spans), 70)):
            at = problem.rows.matrix_of(group), slice(begin, end)
            x = a[at], sfa[at], problem.b[group], problem.sfb[group]
            exact = expanded(x[0], x[1], 1) @ expanded(x[2], x[3], 128).t()
            of_group = epilogue.with_c(None if c is None else c[at])
            worst = max(worst, over_bound(d[at], exact, bound(*x, exact), of_group))
        return worst

    def affine(self):
        """Random products of every form, each by the planner's choice and by another kernel."""
        ways: list[Callable[[], set]] = [
            self.dense_affine,
            *(functools.partial(self.rows_affine, form) for form in FORMS),
            self.dense_affine_unscaled,
            self.rows_affine_unscaled,
        ]
        kernels: set = set()
        for _, way in zip(range(self.options.shapes), itertools.cycle(ways), strict=False):
            kernels |= way()
        return {"problems": self.options.shapes, "kernels": len(kernels)}

    def affine_calls(self, m: int, n: int, k: int, sizes: list) -> list:
        """(kernel, D, a call) for every affine kernel; D is apart from C, so that calls can be repeated."""
        rows = offset_rows(sizes, 0, m - sum(sizes))
        products = {a: operands(m, n, k, "row", self.generator, types=(a, E4M3)) for a in CODES}
        grouped = {a: Problem(rows, n, k, "row", self.generator, types=(a, E4M3)) for a in CODES}
        calls = []
        kinds = (*CODES, *itertools.product(NAMES, MAJORS))  # of A with scales; of both without
        for dtype, of, kind in itertools.product(OUTPUTS, ({}, {"groups": len(sizes)}), kinds):
            scaled = kind in CODES
            element, major = (torch.bfloat16, "nt") if scaled else kind
            if (kind == E5M2 and dtype != torch.bfloat16) or (not scaled and dtype not in outputs(element)):
                continue
            a_major, b_major = MAJORS[major]
            a = normal(self.generator, element, m, k, mn_major=a_major)
            b = normal(self.generator, element, n, k, mn_major=b_major)
            many = OfRows(masked_rows(sizes, m), n, k, self.generator, element, layout=major)
            epilogue = Epilogue(0.5, -2.0, self.padded(m, n, dtype=dtype), torch.randn(n, device="cuda"))
            fields = of | (E5M2_FIELDS if kind == E5M2 else {})
            if not scaled:
                fields |= {"dtype": DTYPES[element]} | fields_of(major)
            for row in self.tested.explain(m, n, k, out_dtype=dtype, affine=1, **fields)["candidates"]:
                d = torch.zeros(m, n, device="cuda", dtype=dtype)
                how = {"config": row["name"], "epilogue": epilogue}
                if of and not scaled:
                    d = torch.zeros(many.shape, device="cuda", dtype=dtype)
                    of_groups = epilogue.with_c(self.padded(*many.shape, dtype=dtype))
                    call = many.prepare(self.tested, d, **how | {"epilogue": of_groups})
                elif of:
                    p = grouped[kind]
                    call = self.tested.prepare_grouped(p.a, p.sfa, p.b, p.sfb, d, p.numbers, OFFSETS, **how)
                elif not scaled:
                    call = self.tested.prepare(a, None, b, None, d, **how)
                else:
                    call = self.tested.prepare(*products[kind], d, **how)
                calls.append((row["name"], d, call))
        return calls

    def affine_repeat(self):
        """200 runs of every kernel give the same bits; so do a replayed graph of all, and two streams at once."""
        calls = self.affine_calls(640, 2112, 2048, [0, 300, 70, 270])
        firsts = self.repeated_by_graph(calls)
        for _, d, _ in calls:
            d.fill_(Guarded.VALUE)
        torch.cuda.synchronize()
        streams = [torch.cuda.Stream() for _ in range(2)]
        for i, (_, _, call) in enumerate(calls):
            with torch.cuda.stream(streams[i % 2]):
                call()
        torch.cuda.synchronize()
        for (name, d, _), first in zip(calls, firsts, strict=True):
            if differing(d, first):
                raise AssertionError(f"{name}: other bits by way of two streams")
        return {"kernels": len(calls), "runs": self.RUNS}

    def affine_options(self):
        """The same bits of a row for any M, fewer SMs and dependent launches that make C; D beyond 2^31 elements."""
        n, k = 2112, 7168
        x = operands(4096, n, k, "row", self.generator)
        c, bias = self.padded(4096, n, dtype=torch.bfloat16), torch.randn(n, device="cuda")
        first = None
        for m, num_sms, pdl in ((1, 0, 0), (64, 0, 1), (65, 0, 0), (300, 40, 0), (4096, 0, 1), (4096, 100, 0)):
            d = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
            epilogue = Epilogue(0.5, 2.0, c[:m], bias)
            how = {"batch_invariant": ON, "num_sms": num_sms, "pdl": pdl, "epilogue": epilogue}
            self.tested.gemm(x[0][:m], x[1][:m], x[2], x[3], d, **how)
            first = d[:1].clone() if first is None else first
            if differing(d[:1], first):
                raise AssertionError(f"row 0 of {m} rows with num_sms {num_sms}, pdl {pdl} has other bits")
        self.chain_of_dependent_launches(x, n)
        for m, n, k in ((300_000, 14_400, 64), (256, 200_064, 11_008)):
            x = operands(m, n, k, "row", self.generator)
            d = torch.full((m, n), 3.0, device="cuda", dtype=torch.bfloat16)
            epilogue = Epilogue(0.5, 2.0, d, torch.randn(n, device="cuda"))
            self.tested.gemm(*x, d, epilogue=epilogue)
            for rows in (slice(0, 2), slice(m - 2, m)):
                some = x[0][rows], x[1][rows], x[2], x[3]
                exact = expanded(some[0], some[1], 1) @ expanded(some[2], some[3], 128).t()
                threes = epilogue.with_c(torch.full_like(d[rows], 3))
                share = over_bound(d[rows], exact, bound(*some, exact), threes)
                if share > 1:
                    raise AssertionError(f"{m}x{n}x{k}, rows {rows}: {share:.3g} of the bound")
            del x, d, epilogue
            torch.cuda.empty_cache()
        return {"calls": 18}

    def chain_of_dependent_launches(self, x: Operands, n: int) -> None:
        """Ten times D += A B by launches that overlap, each of which reads what the one before it wrote."""
        results = []
        for pdl in (0, 1):
            d = torch.ones(4096, n, device="cuda", dtype=torch.float32)
            a, sfa, b, sfb = x
            call = self.tested.prepare(a, sfa, b, sfb, d, pdl=pdl, epilogue=Epilogue(0.125, 1.0, d, None))
            for _ in range(10):
                call()
            results.append(d)
        if differing(*results):
            raise AssertionError("dependent launches read C before the kernel before them has written it")

    def small_affine(self):
        """Every affine kernel once, on a small problem: what the sanitizers run."""
        for name, _, call in self.affine_calls(257, 136, 512, [1, 69, 0, 180]):
            print(name, flush=True)
            call()

    def affine_speed(self):
        """Each shape with and without C and a bias, in turn."""
        rows = []
        for m, n, k in SPEED:
            x = operands(m, n, k, "row", self.generator)
            c, bias = self.padded(m, n, dtype=torch.bfloat16), torch.randn(n, device="cuda")
            d = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
            calls = {
                "the product": self.tested.prepare(*x, d),
                "with alpha": self.tested.prepare(*x, d, epilogue=Epilogue(0.5, 0.0, None, None)),
                "with a bias": self.tested.prepare(*x, d, epilogue=Epilogue(1.0, 0.0, None, bias)),
                "with C": self.tested.prepare(*x, d, epilogue=Epilogue(1.0, 1.0, c, None)),
                "with all": self.tested.prepare(*x, d, epilogue=Epilogue(0.5, -2.0, c, bias)),
                "D += the product": self.tested.prepare(*x, d, epilogue=Epilogue(1.0, 1.0, d, None)),
            }
            t = median_times(calls, self.options.rounds)
            rows.append(row_of("affine", [m, n, k], t, self.tested.explain(m, n, k, affine=1)))
        method = f"bench/gpu_timing.py: CUPTI, L2 flushed, interleaved, median of {self.options.rounds}"
        write_record(self.options.out / f"{self.card}_affine.json", self.machine() | {"method": method, "rows": rows})
        return {"rows": [(row["shape"], row["us"]) for row in rows]}
