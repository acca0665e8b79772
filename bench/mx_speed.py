#!/usr/bin/env python3
"""Times of products with MX scales beside those of FP8, in turn in one run: the dense table and the masked rows of the
grouped one.

Usage: mx_speed.py --library FILE [--rounds N] [--rows M] [--sweep FOLDER] [--output FILE]

--rows: of products, and expected ones of groups, at most. --sweep: where times of every kernel go, for fit_costs.py.
"mx": exponents of both operands, a call; "kernel": its kernel without re-encoding, where the call does that. "rows":
weights that were re-encoded before with scales of rows, for groups row-major, and activations with scales for 128;
with scales of 128x128 blocks they are FP8's own. "on the fly": both operands re-encoded, then the product.
"""

import argparse
import json
import pathlib

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

    def names(self, shape: tuple[int, int, int], fields: dict) -> dict:
        """Kernels by what the row calls them: the planner's choice, and perhaps all."""
        m, n, k = shape
        account = self.tested.explain(m, n, k, **fields, **MX)
        all_of = [x["name"] for x in account["candidates"] if "rejected" not in x] if self.every_kernel else []
        return {"mx": account["chosen"]["name"]} | {name: name for name in all_of}

    def measured(self, kind: str, shape: tuple[int, int, int], rows: int, fields: dict, others: dict, mx) -> dict:
        """`rows`: of all groups together; `mx` makes the call of a kernel by name, or as it comes."""
        names = self.names(shape, fields)
        m, n, k = shape
        account = self.tested.explain(m, n, k, **fields, **MX)
        calls = others | {"mx": mx(None)} | {of: mx(name) for of, name in names.items() if of != "mx"}
        if account["reencoded"]["taken"]:
            calls["kernel"] = mx(names["mx"])
        us = {of: round(t, 2) for of, t in median_times(calls, self.rounds, 1 << 29).items()}
        kernels = {"fp8": self.tested.explain(*shape, **fields)["chosen"]["name"], "mx": names["mx"]}
        return {"kind": kind, "shape": [*fields.values(), *shape], "rows": rows, "us": us, "kernels": kernels}

    def words(self, *shape: int, mn_major: bool = False) -> torch.Tensor:
        return with_exponents(self.scales(*shape, mn_major=mn_major), self.generator)

    def forms(self, a, b, words: tuple, prepare) -> dict:
        """Calls of the same codes with other scales. `prepare` makes a product of operands and scales."""

        def of_rows(x: torch.Tensor, mn_major: bool = True) -> torch.Tensor:
            return self.scales(*x.shape[:-1], blocks(x.shape[-1]), mn_major=mn_major)

        one = b.dim() == 2  # kernels for groups of rows read scales of B row by row fastest
        x, of_x, w, of_w = torch.empty_like(a), of_rows(a), torch.empty_like(b), of_rows(b, one)
        late = prepare(x, of_x, w, of_w, pdl=1)

        def on_the_fly():
            self.tested.reencode(b, words[1], w, of_w)
            self.tested.reencode(a, words[0], x, of_x, pdl=1)
            late()

        *stacks, n, k = b.shape
        of_blocks = self.scales(*stacks, blocks(n), blocks(k))
        return {
            "fp8": prepare(a, of_rows(a), b, of_blocks),
            "rows": prepare(a, of_rows(a), b, of_rows(b, one)),
            "on the fly": on_the_fly,
        }

    def dense(self, m: int, n: int, k: int) -> dict:
        a, b = self.codes("fp8", m, k), self.codes("fp8", n, k)
        d = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
        words = self.words(m, blocks(k), mn_major=True), self.words(n, blocks(k))

        def prepare(a, sfa, b, sfb, pdl=0, config=None):
            return self.tested.prepare(a, sfa, b, sfb, d, pdl=pdl, config=config)

        others = self.forms(a, b, words, prepare)
        return self.measured("dense", (m, n, k), m, {}, others, lambda name: prepare(a, words[0], b, words[1], 0, name))

    def masked(self, rows, typical: int, n: int, k: int) -> dict:
        a, b = self.codes("fp8", rows.groups, rows.m, k), self.codes("fp8", rows.groups, n, k)
        d = torch.empty(rows.groups, rows.m, n, dtype=torch.bfloat16, device="cuda")
        of = {"expected_m": expected_m_of(rows, typical)}
        groups = torch.tensor(rows.numbers, dtype=torch.int32, device="cuda"), MASKED
        words = self.words(rows.groups, rows.m, blocks(k), mn_major=True), self.words(rows.groups, n, blocks(k))

        def prepare(a, sfa, b, sfb, pdl=0, config=None):
            return self.tested.prepare_grouped(a, sfa, b, sfb, d, *groups, **of, pdl=pdl, config=config)

        others = self.forms(a, b, words, prepare)
        shape, fields = (rows.groups * rows.m, n, k), {"groups": rows.groups, **of}
        return self.measured(
            "masked", shape, rows.total(), fields, others, lambda name: prepare(a, words[0], b, words[1], 0, name)
        )

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
    parser.add_argument("--sweep", type=pathlib.Path)
    parser.add_argument("--output")
    options = parser.parse_args()
    rows, of = [], MxRows(Library(options.tested), options.rounds)
    of.every_kernel = options.sweep is not None
    for row in of.at_most(options.rows):
        rows.append(row)
        print(row["kind"], row["shape"], row["us"], row["kernels"], flush=True)
    method = f"bench/mx_speed.py: CUPTI, L2 flushed, both in turn, median of {options.rounds}"
    said = {name: summary_of(rows, name) for name in ("mx", "rows")}
    said["least of on the fly over mx"] = round(min(row["us"]["on the fly"] / row["us"]["mx"] for row in rows), 3)
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
