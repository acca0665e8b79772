"""What gpu_check.py asks of products of integers beyond the bits of each kernel: the same bits whenever they run, in
graphs, on fewer SMs, with dependent launches and for any M, and right ones where memory has more than 2^31 elements."""

import itertools

import torch

from gpu_cases import LAYOUTS, Guarded, differing, model, operands, sample_rows
from gpu_grouped_cases import Problem, masked_rows, offset_rows
from gpu_library import ON
from gpu_types import BF16, I8, Types

BOTH = (I8, I8)


class Integers(Types):
    REPEATED: tuple[int, int, int] = (640, 2112, 2048)
    ROWS: tuple[int, ...] = (0, 300, 70, 270)  # of groups
    LAYOUTS_REPEATED: tuple[str, ...] = LAYOUTS
    KERNELS_REPEATED: int | None = None  # of each kind at most
    # M, N, K, M a multiple of 128: D has more than 2^31 elements, then B, then A.
    HUGE: tuple[tuple[int, int, int], ...] = ((300_032, 14_400, 128), (256, 300_032, 7168), (300_032, 256, 7168))
    # M, num_sms and pdl of calls whose first row is the same.
    WAYS_TO_CALL = ((1, 0, 0), (64, 0, 1), (65, 5, 0), (300, 40, 0), (640, 0, 1), (640, 100, 1))

    def integers_repeat(self):
        """Many runs of every kernel give the same bits, and so does a replayed graph of all."""
        calls, (m, n, k) = [], self.REPEATED
        for row_b_scales, layout in itertools.product((False, True), self.LAYOUTS_REPEATED):
            x = operands(m, n, k, layout, self.generator, 0, row_b_scales, BOTH)
            for name in self.names(m, n, k, BOTH, row_b_scales, BF16)[: self.KERNELS_REPEATED]:
                d = torch.empty(m, n, dtype=BF16, device=self.generator.device)
                calls.append((f"{name}, {layout}", d, self.tested.prepare(*x, d, config=name)))
            rows = masked_rows(list(self.ROWS), max(self.ROWS) + 4)
            names = self.names(rows.m * rows.stacks, n, k, BOTH, row_b_scales, BF16, groups=rows.groups)
            for name in names[: self.KERNELS_REPEATED]:
                p = Problem(rows, n, k, layout, self.generator, row_b_scales=row_b_scales, types=BOTH)
                calls.append((f"{name}, {layout}", p.d, p.prepare(self.tested, config=name)))
        self.repeated_by_graph(calls)
        return {"kernels": len(calls), "runs": self.RUNS}

    def integers_options(self):
        """The same bits of a row for any M, on fewer SMs and with dependent launches; the same of groups."""
        n, k = self.REPEATED[1:]
        for row_b_scales in (False, True):
            a, sfa, b, sfb = operands(640, n, k, "mn", self.generator, 0, row_b_scales, BOTH)
            first = None
            for m, num_sms, pdl in self.WAYS_TO_CALL:
                d = torch.empty(m, n, dtype=BF16, device=a.device)
                self.tested.gemm(a[:m], sfa[:m], b, sfb, d, batch_invariant=ON, num_sms=num_sms, pdl=pdl)
                first = d[:1].clone() if first is None else first
                if count := differing(d[:1], first):
                    raise AssertionError(f"row 0 of {m}, num_sms {num_sms}, pdl {pdl}: {count} elements differ")
            p = Problem(offset_rows(list(self.ROWS), 3, 5), n, k, "row", self.generator, 0, 0, row_b_scales, BOTH)
            for _, num_sms, pdl in self.WAYS_TO_CALL:
                p.out.all.fill_(p.VALUE)
                p.prepare(self.tested, num_sms=num_sms, pdl=pdl)()
                self.demand(p.wrong(self.tested, self.random, 3, 4), f"groups, num_sms {num_sms}, pdl {pdl}")
        return {"calls": 4 * len(self.WAYS_TO_CALL)}

    def integers_beyond_31_bits(self):
        """A, B or D with more than 2^31 elements, with both kinds of scales."""
        for (m, n, k), row_b_scales in itertools.product(self.HUGE, (False, True)):
            x = operands(m, n, k, "mn", self.generator, 0, row_b_scales, BOTH)
            out = Guarded(m, n, device=self.generator.device)
            name = self.names(m, n, k, BOTH, row_b_scales, BF16)[0]
            self.tested.gemm(*x, out.d, config=name)
            rows = sample_rows(m, 4, self.generator)
            wrong = differing(out.d[rows], model(self.tested, *x, rows, name))
            self.demand("" if not wrong and out.intact() else f"{wrong} elements", m, n, k, name)
            del x, out
            torch.cuda.empty_cache()
        return {"shapes": self.HUGE}
