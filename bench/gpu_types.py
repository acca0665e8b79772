"""What gpu_check.py checks of the types that few calls ask for, each with every kernel of its own."""

import torch

from gpu_cases import E4M3, LAYOUTS, Guarded, differing, model, operands, sample_rows
from gpu_fixture import Fixture
from gpu_grouped_cases import Problem, small_rows
from gpu_library import DTYPES
from gpu_wgrad import KGroups

BF16, F16, F32, E5M2, I8 = torch.bfloat16, torch.float16, torch.float32, torch.float8_e5m2, torch.int8
# Types of A and B, whether each row of B has a scale, and the types of D.
DENSE = (
    ((E4M3, E4M3), 1, (F16,)),
    ((E5M2, E4M3), 0, (BF16,)),
    ((E5M2, E4M3), 1, (BF16, F32)),
    ((E4M3, E5M2), 1, (F32,)),
    ((I8, I8), 0, (BF16,)),
    ((I8, I8), 1, (BF16,)),
)
OF_ROWS = (((E4M3, E4M3), 1, (F16, F32)), ((E5M2, E4M3), 0, (BF16,)), ((I8, I8), 0, (BF16,)), ((I8, I8), 1, (BF16,)))
OF_K = (((E4M3, E4M3), 1, (BF16, F16)), ((E5M2, E4M3), 1, (F32,)), ((E4M3, E5M2), 1, (F32,)))


class Types(Fixture):
    SHAPES: tuple[tuple[int, int, int], ...] = ((33, 72, 1552), (257, 520, 2048), (1000, 136, 4096))
    SHAPES_OF_K: tuple[tuple[int, int], ...] = ((70, 136), (300, 1032))

    def types(self):
        """Each with all of its kernels, in three layouts of scales: bits against the CPU's model."""
        counts = [sum(self.each(cases, check)) for cases, check in self.checks()]
        return dict(zip(("dense", "of_rows", "of_k"), counts, strict=True))

    def small_types(self):
        """Every kernel, on small problems: what the sanitizers run."""
        self.SHAPES, self.SHAPES_OF_K = self.SHAPES[1:2], self.SHAPES_OF_K[1:]  # which every tile takes
        return self.types()

    def checks(self):
        return (DENSE, self.dense), (OF_ROWS, self.of_rows), (OF_K, self.of_k)

    def each(self, cases, check):
        """How many products of each case have been checked."""
        for types, row_b_scales, outputs in cases:
            for d in outputs:
                for layout in LAYOUTS:
                    yield check(types, bool(row_b_scales), d, layout)

    def names(self, m, n, k, types, row_b_scales, d, **fields) -> list:
        """Of the kernels that can take such a product."""
        if types != (E4M3, E4M3):
            fields |= {"dtype": DTYPES[types[0]], "dtype_of_b": DTYPES[types[1]]}
        account = self.tested.explain(m, n, k, out_dtype=d, row_b_scales=row_b_scales, **fields)
        return [x["name"] for x in account["candidates"] if "rejected" not in x]

    def dense(self, types, row_b_scales, d, layout) -> int:
        count = 0
        for m, n, k in self.SHAPES:
            for name in self.names(m, n, k, types, row_b_scales, d):
                x = operands(m, n, k, layout, self.generator, self.random.choice((0, 16)), row_b_scales, types)
                out = Guarded(m, n, dtype=d)
                out.d.copy_(torch.randn(m, n, device="cuda", generator=self.generator) * 1000)
                old, accumulate = out.d.clone(), int(d == F32 and layout != "odd")
                self.tested.gemm(*x, out.d, config=name, accumulate=accumulate)
                rows = sample_rows(m, 8, self.generator)
                wrong = differing(out.d[rows], model(self.tested, *x, rows, name, old, accumulate))
                self.demand("" if not wrong and out.intact() else f"{wrong} elements", m, n, k, types, name, layout)
                count += 1
        return count

    def of_rows(self, types, row_b_scales, d, layout) -> int:
        names, count = self.names(74, 136, 1536, types, row_b_scales, d, groups=4), 0
        for rows in small_rows():
            for name in names:
                p = Problem(rows, 136, 1536, layout, self.generator, 16, 1, row_b_scales, types, d)
                p.prepare(self.tested, config=name)()
                self.demand(p.wrong(self.tested, self.random, 3, 6), rows.form, types, name, layout)
                count += 1
        return count

    def of_k(self, types, _, d, layout) -> int:
        count = 0
        for m, n in self.SHAPES_OF_K:
            for name in self.names(m, n, 2048, types, 0, d, k_groups=4):
                p = KGroups(m, n, [3, 0, 1, 13], layout, self.generator, 1, 2, 16, types, d)
                accumulate = int(d == F32 and layout != "mn")
                p.prepare(self.tested, config=name, accumulate=accumulate)()
                wrong = p.wrong(self.tested, sample_rows(m, 8, self.generator), accumulate, name)
                self.demand(wrong, m, n, types, name, layout)
                count += 1
        return count

    def demand(self, wrong: str, *what) -> None:
        if wrong:
            raise AssertionError(f"{', '.join(map(str, what))}: {wrong}")
