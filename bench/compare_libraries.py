#!/usr/bin/env python3
"""Times two builds of the library in turn on a GPU, in the same process and on the same operands; needs torch.

Usage: compare_libraries.py BASE.so OTHER.so [--rounds N] [--out FILE]

The record has the times of each shape of the dense table, and what OTHER takes of BASE's time: the geometric mean and
the extremes. BASE runs twice, so that `noise` says what two equal builds differ by.
"""

import argparse
import json
import math
import pathlib

import torch
from dense_table import DENSE_SHAPES
from gpu_cases import operands
from gpu_library import Library
from gpu_timing import median_times


def summary(ratios: list) -> dict:
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return {"geomean": round(mean, 4), "least": round(min(ratios), 3), "most": round(max(ratios), 3)}


def measure(libraries: dict, shape: tuple, rounds: int, generator) -> dict:
    m, n, k = shape
    x = operands(m, n, k, "mn", generator)
    d = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    calls = {name: library.prepare(*x, d) for name, library in libraries.items()}
    return {name: round(us, 2) for name, us in median_times(calls, rounds).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("base", type=pathlib.Path)
    parser.add_argument("other", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("compared.json"))
    options = parser.parse_args()
    base, other = (Library(str(path.resolve())) for path in (options.base, options.other))
    libraries = {"base": base, "other": other, "base_again": base}
    generator = torch.Generator("cuda").manual_seed(1)
    rows = [{"shape": shape, "us": measure(libraries, shape, options.rounds, generator)} for shape in DENSE_SHAPES]
    record = {
        "gpu": torch.cuda.get_device_name(),
        "base": options.base.name,
        "other": options.other.name,
        "other_over_base": summary([row["us"]["other"] / row["us"]["base"] for row in rows]),
        "noise": summary([row["us"]["base_again"] / row["us"]["base"] for row in rows]),
    }
    lines = ",\n  ".join(map(json.dumps, rows))
    options.out.write_text(json.dumps(record, indent=1)[:-2] + f',\n "rows": [\n  {lines}\n ]\n}}\n')
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
