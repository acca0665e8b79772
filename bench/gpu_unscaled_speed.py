"""What gpu_check.py times of products without scales, beside torch, whose dense products are cuBLAS's."""

import functools
import itertools
import time
from collections.abc import Callable

import torch

from gpu_fixture import Fixture, TooSlow, row_of
from gpu_grouped import EXPERT_NK, capacity_of, expected_m_of
from gpu_grouped_cases import masked_rows, offset_rows
from gpu_timing import median_times
from gpu_unscaled_cases import LAYOUTS, LAYOUTS_OF_K, NAMES, Case, OfK, OfRows, One, normal
from gpu_wgrad import K_GROUPED_ROWS, REST_S
from records import geometric_mean, ratios, write_record

SPEED_NK = ((2112, 7168), (576, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048))
CEILING_EXTENT = 8192
# Rows of A: what torch takes over FineGEMM's time at least, in geometric mean and in each row.
FLOORS = {(1, 128): (1.12, 0.98), (4096,): (0.98, 0.95)}
# The logits of a router, in f32: tokens, experts.
ROUTER_ROWS, ROUTER_NK, ROUTER_FLOORS = (1, 4, 16, 64), ((256, 7168), (384, 7168)), (1.3, 1.0)


def sizes(text: str) -> list[int]:
    return [int(word) for word in text.split()]


# Rows of each group, of which so many are expected; what torch's grouped product takes over FineGEMM's time at least,
# and what part of the best possible speed that is in geometric mean.
EXPERTS = (
    (
        "masked",
        192,
        sizes(
            "239 167 190 247 203 161 211 207 216 155 178 137 227 188 231 223 140 234 145 196 149 184 176 243 172 "
            "199 166 142 238 157 192 219"
        ),
    ),
    ("masked", 1024, sizes("1106 879 1287 1162 753 1016")),
    (
        "masked",
        20,
        sizes("15 20 24 14 21 22 16 15 25 20 25 21 25 18 14 18 17 14 15 19 20 21 18 19 16 17 19 24 22 23 24 23"),
    ),
    ("masked", 20, sizes("20 23 16 24 14 18")),
    ("contiguous", 8192, sizes("9721 6974 8748 6772")),
    ("contiguous", 4096, sizes("3880 3321 3781 5205 2922 4662 4727 4287")),
)
EXPERT_FLOORS, EXPERT_OF_BOUND = (1.0, 0.9), 0.80
FLOP_PER_US = 786e6  # of the tensor cores, at the power that the GPU has
# Groups of K as K_GROUPED_ROWS has them: the k of each, by their number; what part of FLOP_PER_US they take at least.
K_SIZES = {
    4: sizes("6144 7424 8448 9984"),
    8: sizes("5120 4352 4992 3712 3328 4096 4608 2944"),
    16: sizes("2688 2048 1792 2176 2560 2432 1664 2432 2304 1920 2688 2176 1536 1920 1664 2048"),
}
K_GROUPED_FLOOR = 0.85


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

    def experts(self, kind: str, typical: int, of_groups: list[int], n: int, k: int) -> dict:
        """Torch gets the rows of all groups in one matrix."""
        rows = offset_rows(of_groups) if kind == "contiguous" else masked_rows(of_groups, capacity_of(typical))
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
            self.experts(kind, typical, rows, n, k)
            for (kind, typical, rows), (n, k) in itertools.product(EXPERTS, EXPERT_NK[:4])
        ]
        self.recorded(f"experts_bf16_{self.card}.json", rows)
        of_bound = geometric_mean([row["bound_us"] / row["us"]["finegemm"] for row in rows])
        if of_bound < EXPERT_OF_BOUND:
            raise TooSlow(f"experts: {of_bound:.3f} of the best possible speed: {rows}")
        return self.held("experts", rows, EXPERT_FLOORS) | {"geomean_of_bound": round(of_bound, 4)}

    def unscaled_k_grouped_speed(self):
        """Groups of K in bf16, added to D in f32, with rows and with columns of A and B contiguous."""
        rows = [
            self.k_groups(groups, m, n, layout)
            for layout, (groups, m, n, _) in itertools.product(LAYOUTS_OF_K, K_GROUPED_ROWS)
        ]
        self.recorded(f"k_grouped_bf16_{self.card}.json", rows, rest_s=REST_S)
        shares = [row["tflop_per_s"] * 1e6 / FLOP_PER_US for row in rows]
        mean, least = geometric_mean(shares), min(shares)
        if mean < K_GROUPED_FLOOR:
            raise TooSlow(f"groups of K: {mean:.3f} of {FLOP_PER_US:.3g} FLOP/us, {least:.3f} at least: {rows}")
        return {"rows": len(rows), "geomean_of_flop": round(mean, 4), "least": round(least, 4)}

    def k_groups(self, groups: int, m: int, n: int, layout: str) -> dict:
        """After a rest, as long kernels lower the clock of those behind them."""
        case = OfK(m, n, [k // 128 for k in K_SIZES[groups]], self.generator, torch.bfloat16, layout=layout)
        d = torch.zeros(case.shape, device="cuda")
        time.sleep(REST_S)
        t = median_times({"finegemm": case.prepare(self.tested, d, accumulate=1)}, self.options.rounds)
        row = row_of(layout, [m, n, case.k], t, case.explain(self.tested, torch.float32, accumulate=1))
        return row | {"groups": groups, "tflop_per_s": round(2e-6 * m * n * case.k / t["finegemm"], 1)}
