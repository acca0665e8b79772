#!/usr/bin/env python3
"""Times the kernels that may be a shape's best, in turn, for the shapes of a sweep: what fit_costs.py fits rates to.

Usage: sweep.py BUILD.so bench/results/sweep_h200.json [--rounds N] [--within X] [--seed N] [--out FILE]

Shapes are those of the record. If they have groups, first come the rows of the table of groups, then those of the
record that were drawn ("kind": "drawn"), whose groups get 0.7 to 1.3 of their mean rows by --seed. If they have "d",
bf16 or f32, kernels for scales of each row of B are timed: with "accumulate" they add to D, with "k_groups" they are
those of so many groups, which have K together. Kernels are those of which the library's model expects at most
`--within` of the least time. Needs torch and a Hopper GPU; what imports torch is imported where it is used, so that
help can be had without it.
"""

import argparse
import json
import pathlib
import random

import hopper


def contenders(account: dict, within: float) -> list:
    rows = [row for row in account["candidates"] if "us" in row]
    least = min(row["us"] for row in rows)
    return [row["name"] for row in rows if row["us"] <= within * least]


def dense_rows(library, record: list, options, generator):
    import torch

    from gpu_cases import operands

    for m, n, k in (row["shape"] for row in record):
        x = operands(m, n, k, "mn", generator)
        d = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
        account = library.explain(m, n, k)
        names = contenders(account, options.within)
        yield (
            {"problem": account["line"], "shape": [m, n, k]},
            {name: library.prepare(*x, d, config=name) for name in names},
        )


def row_scale_rows(library, record: list, options, generator):
    import torch

    from gpu_cases import operands
    from gpu_wgrad import KGroups

    for row in record:
        (m, n, k), of_k = row["shape"], row.get("k_groups", 0)
        dtype, accumulate = {"bf16": torch.bfloat16, "f32": torch.float32}[row["d"]], int(row.get("accumulate", False))
        kind = {"k_groups": of_k} if of_k else {"row_b_scales": 1}
        account = library.explain(m, n, k, out_dtype=dtype, accumulate=accumulate, **kind)
        names = contenders(account, options.within)
        if of_k:
            p = KGroups(m, n, [k // of_k // 128] * of_k, "mn", generator)
            calls = {name: p.prepare(library, config=name, accumulate=accumulate) for name in names}
        else:
            x = operands(m, n, k, "mn", generator, row_b_scales=True)
            d = torch.zeros(m, n, dtype=dtype, device="cuda")
            calls = {name: library.prepare(*x, d, config=name, accumulate=accumulate) for name in names}
        yield {"problem": account["line"]} | {name: value for name, value in row.items() if name != "us"}, calls


def grouped_cases(record: list, seed: int):
    from gpu_grouped import expected_m_of, table_cases
    from gpu_grouped_cases import offset_rows

    for kind, rows, typical, n, k in table_cases():
        yield kind, rows, expected_m_of(rows, typical), n, k
    chance = random.Random(seed)
    for row in record:
        if row["kind"] == "drawn":
            (m, n, k), groups, expected = row["shape"], row["groups"], row.get("expected", 0)
            mean = expected or m / groups
            sizes = [round(mean * chance.uniform(0.7, 1.3)) for _ in range(groups)]
            yield "drawn", offset_rows(sizes), expected, n, k


def grouped_rows(library, record: list, options, generator):
    from gpu_grouped_cases import Problem

    for kind, rows, expected, n, k in grouped_cases(record, options.seed):
        p = Problem(rows, n, k, "mn", generator)
        account = p.explain(library, expected)
        names = contenders(account, options.within)
        head = {"problem": account["line"], "kind": kind, "shape": [rows.total(), n, k], "groups": rows.groups}
        if expected:
            head["expected"] = expected
        yield head, {name: p.prepare(library, expected_m=expected, config=name) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("record", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--within", type=float, default=1.5)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("sweep.json"))
    options = parser.parse_args()
    hopper.require("sweep")
    import torch

    from gpu_library import Library
    from gpu_timing import median_times

    generator = torch.Generator(device="cuda").manual_seed(2)
    record = json.loads(options.record.read_text())
    rows_of = grouped_rows if "groups" in record[0] else row_scale_rows if "d" in record[0] else dense_rows
    lines = []
    for head, calls in rows_of(Library(str(options.build)), record, options, generator):
        times = median_times(calls, options.rounds)
        lines.append(json.dumps(head | {"us": {name: round(us, 2) for name, us in times.items()}}))
        options.out.write_text("[\n " + ",\n ".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
