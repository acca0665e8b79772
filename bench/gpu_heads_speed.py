"""What gpu_check.py times of products whose D is in heads with a gap in each, beside which panels fit."""

import itertools

import torch

from gpu_cases import Guarded, differing, operands
from gpu_fixture import Fixture, TooSlow, row_of
from gpu_library import ON, Epilogue
from gpu_timing import ALONE, alone_times, ceilings
from records import ratios, write_record

# Shapes of the table of peers, whose heads have 128 columns, a gap of 64, and 128 more.
SHAPES = tuple((m, n, 512) for m, n in itertools.product((128, 4096), (32768, 8192)))
LEFT, GAP, RIGHT = 128, 64, 128
FLOOR_OF_ROW = 0.9  # of the product without gaps


class HeadsSpeed(Fixture):
    def head_gaps_speed(self):
        """The rows of the table of peers: with the bits of the product without gaps, and its time."""
        rows = [self.head_row(*shape) for shape in SHAPES]
        record = self.machine() | {
            "method": f"{ALONE}, median of {2 * self.options.rounds}",
            "ceilings_us": ceilings(),
            "rows": rows,
        }
        write_record(self.options.out / f"head_gaps_{self.card}.json", record)
        over = ratios(rows, "without gaps")
        if min(over) < FLOOR_OF_ROW:
            raise TooSlow(f"{min(over):.3f} of the product without gaps")
        return {"rows": len(rows), "least": round(min(over), 4)}

    def head_row(self, m: int, n: int, k: int) -> dict:
        x = operands(m, n, k, "row", self.generator)
        heads = n // (LEFT + RIGHT)
        d = torch.full((m, heads, LEFT + GAP + RIGHT), Guarded.VALUE, device="cuda", dtype=torch.bfloat16)
        parts, d = d.split((LEFT, GAP, RIGHT), 2), d.view(m, -1)
        plain, epilogue = torch.empty_like(d[:, :n]), Epilogue(1.0, 0.0, None, None, LEFT, GAP, RIGHT)
        self.tested.gemm(*x, d, epilogue=epilogue)
        self.tested.gemm(*x, plain, batch_invariant=ON)  # by a kernel that does not divide K, as those with gaps
        wrong = differing(torch.cat((parts[0], parts[2]), 2).view(m, n), plain)
        if wrong or (parts[1] != Guarded.VALUE).any():
            raise AssertionError(f"{m}x{n}x{k} in heads: {wrong} bits differ, or gaps were written")
        calls = {
            "finegemm": self.tested.prepare(*x, d, epilogue=epilogue),
            "without gaps": self.tested.prepare(*x, plain),
        }
        t = alone_times(calls, 2 * self.options.rounds)
        return row_of("skip_head_mid", [m, n, k], t, self.tested.explain(m, n, k, head_gaps=1))
