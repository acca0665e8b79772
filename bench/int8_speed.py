#!/usr/bin/env python3
"""Times of products of integers beside those of FP8, in turn in one run: the dense table and the masked rows of the
grouped one.

Usage: int8_speed.py --library FILE [--rounds N] [--output FILE]
"""

import argparse
import itertools
import json
import pathlib

import torch

from dense_table import DENSE_SHAPES
from gpu_cases import E4M3, blocks, quantise, rounded_up
from gpu_grouped import expected_m_of, table_cases
from gpu_library import DTYPES, MASKED, Library
from gpu_timing import median_times
from records import geometric_mean, write_record

TYPES = {"fp8": E4M3, "int8": torch.int8}
PIECE = 1 << 25  # values that are floats at a time
POOL = 1 << 28  # codes; what needs more has them again


class Rows:
    """Operands of any shape, of codes of normal values, with MN-major scales of A."""

    def __init__(self, tested: Library, rounds: int):
        self.tested, self.rounds = tested, rounds
        self.generator = torch.Generator("cuda").manual_seed(1)
        self.pools = {name: torch.empty(POOL, dtype=torch.uint8, device="cuda") for name in TYPES}
        for begin in range(0, POOL, PIECE):
            values = torch.randn(1, PIECE // 128, 128, device="cuda", generator=self.generator)
            for name, dtype in TYPES.items():
                self.pools[name][begin : begin + PIECE] = quantise(values, 1, dtype)[0].view(torch.uint8).flatten()

    def codes(self, name: str, *shape: int) -> torch.Tensor:
        count = torch.Size(shape).numel()
        times = -(-count // POOL)
        pool = self.pools[name] if times == 1 else self.pools[name].repeat(times)
        return pool[:count].view(shape).view(TYPES[name])

    def scales(self, *shape: int, mn_major: bool = False) -> torch.Tensor:
        """About as large as those of normal values; columns of MN-major ones at multiples of 16 bytes."""
        *stacks, rows, cols = shape
        scales = torch.rand(*stacks, cols, rounded_up(rows, 4), device="cuda", generator=self.generator) * 0.004 + 0.004
        scales = scales[..., :rows].transpose(-1, -2)
        return scales if mn_major else scales.contiguous()

    def row(self, kind: str, shape: tuple[int, int, int], fields: dict, calls: dict) -> dict:
        """Both types' times, and the kernels that they are of."""
        kernels = {}
        m, n, k = shape
        for name, dtype in TYPES.items():
            of = {} if dtype == E4M3 else {"dtype": DTYPES[dtype], "dtype_of_b": DTYPES[dtype]}
            kernels[name] = self.tested.explain(m, n, k, **fields, **of)["chosen"]["name"]
        us = {name: round(t, 2) for name, t in median_times(calls, self.rounds, 1 << 29).items()}
        return {"kind": kind, "shape": [*fields.values(), *shape], "us": us, "kernels": kernels}

    def dense(self, m: int, n: int, k: int) -> dict:
        sfa, sfb = self.scales(m, blocks(k), mn_major=True), self.scales(blocks(n), blocks(k))
        d = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
        calls = {x: self.tested.prepare(self.codes(x, m, k), sfa, self.codes(x, n, k), sfb, d) for x in TYPES}
        return self.row("dense", (m, n, k), {}, calls)

    def masked(self, rows, typical: int, n: int, k: int) -> dict:
        a, b = (rows.groups, rows.m, k), (rows.groups, n, k)
        sfa, sfb = self.scales(*a[:2], blocks(k), mn_major=True), self.scales(rows.groups, blocks(n), blocks(k))
        d = torch.empty(*a[:2], n, dtype=torch.bfloat16, device="cuda")
        numbers = torch.tensor(rows.numbers, dtype=torch.int32, device="cuda")
        told = expected_m_of(rows, typical)
        calls = {}
        for x in TYPES:
            operands = self.codes(x, *a), sfa, self.codes(x, *b), sfb, d, numbers, MASKED
            calls[x] = self.tested.prepare_grouped(*operands, expected_m=told)
        return self.row("masked", (rows.groups * rows.m, n, k), {"groups": rows.groups, "expected_m": told}, calls)

    def all(self):
        for shape in DENSE_SHAPES:
            yield self.dense(*shape)
        for kind, rows, typical, n, k in table_cases():
            if kind == "masked":
                yield self.masked(rows, typical, n, k)


def summary_of(rows: list[dict], other: str) -> dict:
    """FP8's times over those of another type, by kind and rows: of one product M, of a group as many as expected."""

    def extent(row: dict) -> int:
        return row["shape"][0 if row["kind"] == "dense" else 1]

    def of(some: list[dict]) -> dict:
        ratios = [row["us"]["fp8"] / row["us"][other] for row in some]
        return {"rows": len(some), "mean": round(geometric_mean(ratios), 3), "least": round(min(ratios), 3)}

    ordered = sorted(rows, key=lambda row: (row["kind"], extent(row)))
    said = {kind: of(list(some)) for kind, some in itertools.groupby(ordered, lambda row: row["kind"])}
    by_extent = itertools.groupby(ordered, lambda row: f"{row['kind']} {extent(row)}")
    return said | {name: of(list(some)) for name, some in by_extent}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", dest="tested", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output")
    options = parser.parse_args()
    rows = []
    for row in Rows(Library(options.tested), options.rounds).all():
        rows.append(row)
        print(row["kind"], row["shape"], row["us"], row["kernels"], flush=True)
    method = f"bench/int8_speed.py: CUPTI, L2 flushed, both types in turn, median of {options.rounds}"
    said = summary_of(rows, "int8")
    record = {"machine": torch.cuda.get_device_name(), "method": method, "summary": said, "rows": rows}
    print(json.dumps(said, indent=1))
    if options.output:
        write_record(pathlib.Path(options.output), record)


if __name__ == "__main__":
    main()
