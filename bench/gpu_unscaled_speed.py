"""What gpu_check.py times of products without scales, beside torch, whose dense products are cuBLAS's."""

import functools
import itertools
from collections.abc import Callable

import torch

from gpu_fixture import Fixture, TooSlow, row_of
from gpu_grouped import EXPERT_NK, expected_m_of, table_cases
from gpu_timing import median_times
from gpu_unscaled_cases import LAYOUTS, NAMES, Case, OfRows, One, normal
from records import geometric_mean, ratios, write_record

SPEED_NK = ((2112, 7168), (576, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048))
CEILING_EXTENT = 8192
# Rows of A: what torch takes over FineGEMM's time at least, in geometric mean and in each row.
FLOORS = {(1, 128): (1.12, 0.98), (4096,): (0.97, 0.94)}
# The logits of a router, in f32: tokens, experts.
ROUTER_ROWS, ROUTER_NK, ROUTER_FLOORS = (1, 4, 16, 64), ((256, 7168), (384, 7168)), (1.3, 1.0)
# Groups, rows of each, and what torch's grouped product takes over FineGEMM's time at least.
EXPERTS = {("masked", 32, 192), ("masked", 6, 1024), ("masked", 32, 20), ("masked", 6, 20)} | {
    ("contiguous", 4, 8192),
    ("contiguous", 8, 4096),
}
EXPERT_FLOORS = (1.0, 0.9)
FLOP_PER_US = 786e6  # of the tensor cores, at the power that the GPU has


class UnscaledSpeed(Fixture):
    def compared(self, kind: str, case: Case, d: torch.dtype, torch_call: Callable) -> dict:
        """A row of a record: a product in turn with torch's."""
        out = torch.empty(case.shape, device="cuda", dtype=d)
        expected = {"expected_m": case.fields["expected_m"]} if case.fields.get("expected_m") else {}
        calls = {"finegemm": case.prepare(self.tested, out, **expected), "torch": torch_call}
        t = median_times(calls, 2 * self.options.rounds)
        return row_of(kind, [case.m, case.n, case.k], t, case.explain(self.tested, d))

    def one(self, kind: str, shape: tuple[int, int, int], of: torch.dtype, d: torch.dtype, layout: str = "nt") -> dict:
        case = One(*shape, self.generator, of, layout=layout)
        a, b = case.operands
        wanted = {"out_dtype": d} if d != of else {"out": torch.empty(*case.shape[1:], device="cuda", dtype=d)}
        return self.compared(kind, case, d, functools.partial(torch.mm, a, b.t(), **wanted))

    def experts(self, kind: str, rows, typical: int, n: int, k: int) -> dict:
        """Torch gets the rows of all groups in one matrix."""
        case = OfRows(rows, n, k, self.generator, torch.bfloat16)
        case.fields["expected_m"] = expected_m_of(rows, typical)
        a, b = case.operands
        packed = a[rows.owned(a.device)]
        ends = list(itertools.accumulate(end - begin for _, begin, end in rows.spans))
        offsets = torch.tensor(ends, dtype=torch.int32, device="cuda")
        row = self.compared(
            kind, case, torch.bfloat16, functools.partial(torch._grouped_mm, packed, b.mT, offs=offsets)
        )
        m = rows.total()
        moved = 2 * (m * k + rows.busy() * n * k + m * n)
        bound = max(moved / self.bytes_per_us, 2 * m * n * k / FLOP_PER_US)
        more = {"groups": rows.groups, "expected": typical, "bound_us": round(bound, 2)}
        return row | {"shape": [m, n, k]} | more

    def recorded(self, file: str, rows: list, **more) -> None:
        method = f"bench/gpu_timing.py: CUPTI, L2 flushed, interleaved, median of {2 * self.options.rounds}"
        write_record(self.options.out / file, self.machine() | {"method": method} | more | {"rows": rows})

    @staticmethod
    def held(what: str, rows: list, floors: tuple[float, float]) -> dict:
        over = ratios(rows, "torch")
        mean, least = geometric_mean(over), min(over)
        if mean < floors[0] or least < floors[1]:
            raise TooSlow(f"{what}: {mean:.3f} of torch's speed, {least:.3f} at least: {rows}")
        return {"rows": len(rows), "geomean_over_torch": round(mean, 4), "least": round(least, 4)}

    def unscaled_layouts_speed(self):
        """Some products of the table in bf16 in every layout, of few rows and of many; no floor holds before they are
        on record."""
        nk, of = ((2112, 7168), (4096, 7168), (7168, 2048)), torch.bfloat16
        rows = [
            self.one(layout, (m, n, k), of, of, layout)
            for m, (n, k), layout in itertools.product((16, 4096), nk, LAYOUTS)
        ]
        self.recorded(f"layouts_{self.card}.json", rows)
        return {"rows": len(rows), "geomean_over_torch": round(geometric_mean(ratios(rows, "torch")), 4)}

    def unscaled_speed(self):
        """The table of each type, with few rows and with many."""
        return {name: self.speed_of(of, name) for of, name in NAMES.items()}

    def speed_of(self, of: torch.dtype, name: str) -> dict:
        table = {
            of_rows: [self.one(name, (m, n, k), of, of) for (n, k), m in itertools.product(SPEED_NK, of_rows)]
            for of_rows in FLOORS
        }
        x, y = (normal(self.generator, of, CEILING_EXTENT, CEILING_EXTENT) for _ in range(2))
        ceiling = median_times({"torch": functools.partial(torch.mm, x, y.t())}, self.options.rounds)["torch"]
        ceilings = {f"torch {name} {CEILING_EXTENT}^3": round(ceiling, 1)}
        self.recorded(
            f"{self.card}_{name}.json", [row for rows in table.values() for row in rows], ceilings_us=ceilings
        )
        return {
            f"M of {', '.join(map(str, of_rows))}": self.held(f"{name}, M of {of_rows}", rows, FLOORS[of_rows])
            for of_rows, rows in table.items()
        }

    def router_speed(self):
        """Logits of a router: few rows, few columns, D in f32."""
        shapes = itertools.product(ROUTER_ROWS, ROUTER_NK)
        rows = [self.one("router", (m, n, k), torch.bfloat16, torch.float32) for m, (n, k) in shapes]
        self.recorded(f"router_{self.card}.json", rows)
        return self.held("router", rows, ROUTER_FLOORS)

    def unscaled_experts_speed(self):
        """Groups of rows in bf16 beside torch's grouped product, and what memory and tensor cores allow."""
        rows = [
            self.experts(kind, rows, typical, n, k)
            for kind, rows, typical, n, k in table_cases()
            if (kind, rows.groups, typical) in EXPERTS and (n, k) in EXPERT_NK[:4]
        ]
        self.recorded(f"experts_bf16_{self.card}.json", rows)
        of_bound = geometric_mean([row["bound_us"] / row["us"]["finegemm"] for row in rows])
        return self.held("experts", rows, EXPERT_FLOORS) | {"geomean_of_bound": round(of_bound, 4)}
