"""The planner's model of how long a kernel takes: that of src/plan/cost.cpp, without rules of what may be used."""

import math
import re
from typing import NamedTuple

import numpy as np

NAME = re.compile(r"m(\d+)n(\d+)s(\d+)w(\d+)(?:_(None|[Ss]plitK|[Ss]hare[AB])(\d+))?(?:_[xo](\d+))?")

# Constants of src/plan/cost.cpp and device_spec.cpp.
LAUNCH_US, OVERLAP = 2.2, 4
BYTES_PER_US = {"h200": 4.2e6, "h100": 2.9e6}
L2_ADDS_PER_US = {"h200": 1.23e6, "h100": 0.96e6}
SPREAD, QUARTERS, REREAD = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3), (-1.2, -0.4, 0.4, 1.2), 0.3
FEW_GROUPS = 8
L2_BETWEEN_SECTORS, L2_BETWEEN_LINES = 6.6e6, 10.3e6
CLUSTERS = {1: (132, 264), 2: (66, 132), 3: (39, 79), 4: (30, 62), 5: (22, 47), 8: (15, 30)}


class Case(NamedTuple):
    """A product that kernels were measured for. k: that of all groups together; expected: rows of a group, or 0."""

    shape: tuple
    groups: int = 0
    expected: int = 0
    k_groups: int = 0
    d: str = ""  # bf16 or f32: with scales for each row of B, or without scales
    accumulate: bool = False
    element: str = ""  # bf16 or f16, of A and B without scales
    layout: str = "nt"  # of A and B, as names of kernels say it
    mx: bool = False  # with MX scales of A and B
    device: str = "h200"

    @classmethod
    def of(cls, row, device="h200"):
        known = {name: value for name, value in row.items() if name in cls._fields}
        return cls(**known | {"shape": tuple(row["shape"]), "device": device})

    def table(self):
        if self.element:
            return " ".join(("unscaled", self.layout, self.d, *(["groups"] if self.groups else [])))
        if self.mx:
            return "mx groups" if self.groups else "mx"
        return "groups" if self.groups else self.d or "dense"

    def bytes(self):
        """Of an element of A or B."""
        return 2 if self.element else 1


class Rates(NamedTuple):
    """As in src/plan/plan.h. spared: 0 but in groups of rows; source: 0 but for kernels that load the old D."""

    block: float
    block_alone: float
    tile: float
    spared: float = 0
    source: float = 0


def ceil_div(a, b):
    return -(-a // b)


def key_of(name):
    """Tile, stages, warpgroups, cluster use and size, CTAs per SM: what tells the kernels of a sweep apart."""
    match = NAME.match(name)
    if not match:
        raise ValueError(f"{name}: is no name of a kernel, such as m64n128s6w1")
    tile_m, tile_n, stages, warpgroups, use, cluster, ctas = match.groups()
    use = "alone" if use in (None, "None") else use.lower()
    return int(tile_m), int(tile_n), int(stages), int(warpgroups), use, int(cluster or 1), int(ctas or 1)


def name_of(key):
    """As in src/plan/candidates.cpp."""
    tile_m, tile_n, stages, warpgroups, use, cluster, ctas = key
    shared = "" if use == "alone" else f"_{use[:-1]}{use[-1].upper()}{cluster}"
    return f"m{tile_m}n{tile_n}s{stages}w{warpgroups}{shared}" + (f"_x{ctas}" if ctas > 1 else "")


def l2_time(key, row_bytes):
    tile_m, tile_n, _, _, use, cluster, _ = key
    if row_bytes % 64 == 0:
        return 0
    rows = tile_m // (cluster if use == "sharea" else 1) + tile_n // (cluster if use == "shareb" else 1)
    return rows * 128 / (L2_BETWEEN_LINES if row_bytes % 32 == 0 else L2_BETWEEN_SECTORS)


def waves_time(key, rates, ctas, blocks, row_bytes):
    (*_, cluster, ctas_per_sm), (block, block_alone, tile, *_) = key, rates
    alone, slots = CLUSTERS[cluster][0] * cluster, CLUSTERS[cluster][ctas_per_sm - 1] * cluster
    l2 = l2_time(key, row_bytes)

    def wave(size):
        return tile + blocks * max(block_alone if size <= alone else block, size * l2)

    waves, rest = divmod(ctas, slots)
    return waves * wave(slots) + (wave(rest) if rest >= 1 else 0)


def total_time(launch, compute, memory):
    return launch + (compute**OVERLAP + memory**OVERLAP) ** (1 / OVERLAP)


def memory_time(case, rates, loaded, elements):
    if case.accumulate and not rates.source:
        return loaded / BYTES_PER_US[case.device] + elements * 4 / L2_ADDS_PER_US[case.device]
    of_d = 8 if case.accumulate else 4 if case.d == "f32" else 2
    return (loaded + elements * of_d) / BYTES_PER_US[case.device]


def predict(key, rates, case):
    (tile_m, tile_n, _, _, use, cluster, _), (m, n, k) = key, case.shape
    if case.groups:
        return predict_grouped(key, rates, case)
    tiles_m = ceil_div(m, tile_m * (cluster if use == "shareb" else 1))
    tiles_n = ceil_div(n, tile_n * (cluster if use == "sharea" else 1))
    products = max(1, case.k_groups)
    blocks = ceil_div(ceil_div(ceil_div(k * case.bytes(), 128), products), cluster if use == "splitk" else 1)
    if case.accumulate:
        rates = rates._replace(tile=rates.tile + rates.source)
    compute = waves_time(key, rates, tiles_m * tiles_n * cluster * products, blocks, k * case.bytes())
    return total_time(LAUNCH_US, compute, memory_time(case, rates, (m * k + n * k) * case.bytes(), m * n * products))


def sums_of(of_one, groups):
    """(What `groups` groups make together if each makes one of the numbers `of_one`, how likely it is)."""
    one = np.bincount(np.array(of_one, dtype=int)) / len(of_one)
    parts: np.ndarray = np.ones(1)
    for _ in range(groups):
        parts = np.convolve(parts, one)
    return [(number, part) for number, part in enumerate(parts) if part > 0]


def row_step(key, case):
    """Rows that take time together: as GemmConfig has it in groups of rows."""
    tile_m, tile_n, _, warpgroups, *_ = key
    swapped = tile_m < 64 or (case.bytes() == 2 and tile_m > 64 * warpgroups and tile_n == 64 * warpgroups)
    return 16 if swapped else tile_m // warpgroups


def predict_grouped(key, rates, case):
    (tile_m, tile_n, *_, cluster, _), (m, n, k) = key, case.shape
    groups, expected, spared = case.groups, case.expected, rates.spared
    rows = expected or m / groups
    # M is known if none are expected: a group has the more, the less others have. All are expected if groups are equal.
    apart = (0 if groups * expected == m else 1) if expected else math.sqrt(1 - 1 / groups)
    counts, strays, whole = [], [], 0  # of tiles one below the other, for each spread; what is not known of them
    for spread in SPREAD:
        rows_here = max(1.0, rows * (1 + (spread - 1) * apart))
        full, rest = divmod(rows_here, tile_m)
        unit = row_step(key, case)
        used = math.ceil(rest / unit) * unit / tile_m
        counts.append(full + (rest > 0))
        strays.append(counts[-1] - (0 if expected else rows_here / tile_m))
        whole += full + (1 - spared * (1 - used) if rest > 0 else 0)
    below = sum(counts) / len(SPREAD)
    deviation = math.sqrt(groups * np.var(strays))
    across, blocks = ceil_div(n, tile_n * cluster) * cluster, ceil_div(k * case.bytes(), 128) * whole / sum(counts)
    if expected and groups <= FEW_GROUPS:
        numbers = sums_of(counts, groups)
    else:
        numbers = [(max(1, groups * below + quantile * deviation), 1 / len(QUARTERS)) for quantile in QUARTERS]
    compute = sum(part * waves_time(key, rates, number * across, blocks, k * case.bytes()) for number, part in numbers)
    m, weights = groups * rows, groups * n * k * (1 + REREAD * min(below - 1, 1))
    return total_time(LAUNCH_US, compute, memory_time(case, rates, (m * k + weights) * case.bytes(), m * n))
