#!/usr/bin/env python3
"""Times of products with MX scales beside those of FP8, in turn in one run: the dense table and the masked rows of the
grouped one.

Usage: mx_speed.py --library FILE [--rounds N] [--rows M] [--reencoded] [--sweep FOLDER] [--output FILE]

--rows: of products, and expected ones of groups, at most. --sweep: where times of every kernel go, for fit_costs.py.
--reencoded: of one product also the same numbers with a scale for each row and 128 columns, re-encoded in each call
("reencoded"; needs the Python package) and before ("rows").
"""

import argparse
import json
import pathlib
from collections.abc import Callable

import torch

from dense_table import DENSE_SHAPES
from gpu_cases import blocks
from gpu_grouped import expected_m_of, table_cases
from gpu_library import MASKED, Library
from gpu_mx import with_exponents
from gpu_timing import median_times
from int8_speed import Rows, summary_of
from records import write_record

MX = {"a_mx": 1, "b_mx": 1}


class MxRows(Rows):
    every_kernel = False
    reencode: Callable | None = None  # of finegemm.mxfp8

    def names(self, shape: tuple[int, int, int], fields: dict) -> dict:
        """Kernels by what the row calls them: the planner's choice, and perhaps all."""
        m, n, k = shape
        account = self.tested.explain(m, n, k, **fields, **MX)
        all_of = [x["name"] for x in account["candidates"] if "rejected" not in x] if self.every_kernel else []
        return {"mx": account["chosen"]["name"]} | {name: name for name in all_of}

    def measured(self, kind: str, shape: tuple[int, int, int], rows: int, fields: dict, others: dict, mx) -> dict:
        """`rows`: of all groups together; `mx` makes the call of a kernel by name."""
        names = self.names(shape, fields)
        calls = others | {of: mx(name) for of, name in names.items()}
        us = {of: round(t, 2) for of, t in median_times(calls, self.rounds, 1 << 29).items()}
        kernels = {"fp8": self.tested.explain(*shape, **fields)["chosen"]["name"], "mx": names["mx"]}
        return {"kind": kind, "shape": [*fields.values(), *shape], "rows": rows, "us": us, "kernels": kernels}

    def words(self, *shape: int, mn_major: bool = False) -> torch.Tensor:
        return with_exponents(self.scales(*shape, mn_major=mn_major), self.generator)

    def dense(self, m: int, n: int, k: int) -> dict:
        a, b = self.codes("fp8", m, k), self.codes("fp8", n, k)
        d = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
        sfa, sfb = self.scales(m, blocks(k), mn_major=True), self.scales(blocks(n), blocks(k))
        words = a, self.words(m, blocks(k), mn_major=True), b, self.words(n, blocks(k)), d
        others = {"fp8": self.tested.prepare(a, sfa, b, sfb, d)}
        if self.reencode:
            others |= self.reencoded(self.reencode, *words)
        return self.measured("dense", (m, n, k), m, {}, others, lambda name: self.tested.prepare(*words, config=name))

    def reencoded(self, reencode: Callable, a, sfa, b, sfb, d) -> dict:
        x, w = reencode(a, sfa), reencode(b, sfb)
        product = self.tested.prepare(x.codes, x.scales, w.codes, w.scales, d)

        def at_each_call():
            reencode(a, sfa)
            reencode(b, sfb)
            product()

        return {"rows": product, "reencoded": at_each_call}

    def masked(self, rows, typical: int, n: int, k: int) -> dict:
        a, b = self.codes("fp8", rows.groups, rows.m, k), self.codes("fp8", rows.groups, n, k)
        d = torch.empty(rows.groups, rows.m, n, dtype=torch.bfloat16, device="cuda")
        of = {"expected_m": expected_m_of(rows, typical)}
        groups = torch.tensor(rows.numbers, dtype=torch.int32, device="cuda"), MASKED
        sfa = self.scales(rows.groups, rows.m, blocks(k), mn_major=True)
        fp8 = self.tested.prepare_grouped(a, sfa, b, self.scales(rows.groups, blocks(n), blocks(k)), d, *groups, **of)
        sfa, sfb = self.words(rows.groups, rows.m, blocks(k), mn_major=True), self.words(rows.groups, n, blocks(k))

        def mx(name: str):
            return self.tested.prepare_grouped(a, sfa, b, sfb, d, *groups, config=name, **of)

        fields = {"groups": rows.groups, **of}
        return self.measured("masked", (rows.groups * rows.m, n, k), rows.total(), fields, {"fp8": fp8}, mx)

    def at_most(self, rows: int):
        for shape in DENSE_SHAPES:
            if shape[0] <= rows:
                yield self.dense(*shape)
        for kind, groups, typical, n, k in table_cases():
            if kind == "masked" and typical <= rows:
                yield self.masked(groups, typical, n, k)


def of_sweep(row: dict) -> dict:
    """A row as fit_costs.py reads it."""
    *groups, _, n, k = row["shape"]
    us = {name.removesuffix("_mx").replace("_grouped", ""): t for name, t in row["us"].items() if name.endswith("_mx")}
    told = dict(zip(("groups", "expected"), groups, strict=False))
    return {"shape": [row["rows"], n, k], **told, "mx": True, "us": us}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", dest="tested", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, default=1 << 30)
    parser.add_argument("--reencoded", action="store_true")
    parser.add_argument("--sweep", type=pathlib.Path)
    parser.add_argument("--output")
    options = parser.parse_args()
    rows, of = [], MxRows(Library(options.tested), options.rounds)
    of.every_kernel = options.sweep is not None
    if options.reencoded:
        from finegemm.mxfp8 import reencode

        of.reencode = reencode
    for row in of.at_most(options.rows):
        rows.append(row)
        print(row["kind"], row["shape"], row["us"], row["kernels"], flush=True)
    method = f"bench/mx_speed.py: CUPTI, L2 flushed, both in turn, median of {options.rounds}"
    said = summary_of(rows, "mx")
    if options.reencoded:
        said["least over mx"] = {
            name: round(min(row["us"][name] / row["us"]["mx"] for row in rows if name in row["us"]), 3)
            for name in ("rows", "reencoded")
        }
    record = {"machine": torch.cuda.get_device_name(), "method": method, "summary": said, "rows": rows}
    print(json.dumps(said, indent=1))
    if options.sweep:
        for kind, name in (("dense", "sweep_mx"), ("masked", "sweep_mx_grouped")):
            lines = ",\n ".join(json.dumps(of_sweep(row)) for row in rows if row["kind"] == kind)
            (options.sweep / f"{name}_h200.json").write_text(f"[\n {lines}\n]\n")
    if options.output:
        write_record(pathlib.Path(options.output), record)


if __name__ == "__main__":
    main()
