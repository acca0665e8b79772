#!/usr/bin/env python3
"""Times builds of the library in turn on a GPU, in one process and on the same operands; needs torch.

Usage: compare_builds.py BUILD.so... [--cases CASE...] [--file FILE] [--rounds N] [--json FILE]

A case is M,N,K or M,N,K:KERNEL,... ; FILE has one to a line. "chosen", which is meant where no kernel is named, is what
a build itself takes. Without cases they are those of the dense table. There is a line for each case, with median times
and, in parentheses, what they are of the first build's; then the geometric means of these. A build that is given twice
shows what two equal ones differ by.
"""

import argparse
import pathlib
import re
import string

import hopper
from dense_table import DENSE_SHAPES
from records import geometric_mean, write_record

CASE = re.compile(r"(\d+),(\d+),(\d+)(?::([^,\s]+(?:,[^,\s]+)*))?")
CHOSEN = "chosen"


def case_of(text: str) -> tuple:
    """(m, n, k) and the names of the kernels."""
    match = CASE.fullmatch(text.strip())
    if not match:
        raise SystemExit(f"'{text}' is no case: give M,N,K or M,N,K:KERNEL,KERNEL,... without blanks")
    *shape, kernels = match.groups()
    return tuple(map(int, shape)), kernels.split(",") if kernels else [CHOSEN]


def cases_of(words: list, lines: list) -> list:
    """Those of the command line and of the lines of a file, which may be blank; without any the dense table."""
    texts = [*words, *(line for line in lines if line.strip())]
    return [case_of(text) for text in texts] or [(shape, [CHOSEN]) for shape in DENSE_SHAPES]


def runnable(libraries: dict, kernels: list, operands: tuple) -> dict:
    """By (kernel, build) the calls that can run. Of each other one it prints why not, as the build says."""
    calls = {}
    for kernel in kernels:
        for build, library in libraries.items():
            call = library.prepare(*operands, config=None if kernel == CHOSEN else kernel)
            try:
                call()
                calls[kernel, build] = call
            except RuntimeError as error:
                print(f"{kernel} is left out of {build}: {error}")
    return calls


def rows_of(shape: tuple, times: dict) -> list:
    """A row of the record for each kernel; `times` by (kernel, build)."""
    by_kernel: dict[str, dict[str, float]] = {}
    for (kernel, build), us in times.items():
        by_kernel.setdefault(kernel, {})[build] = round(us, 2)
    return [{"shape": shape, "kernel": kernel, "us": us} for kernel, us in by_kernel.items()]


def line_of(shape: tuple, rows: list, first: str) -> str:
    def shown(us, build):
        of_first = f" ({us[build] / us[first]:.3f})" if first in us and build != first else ""
        return f"{build} {us[build]:.2f}{of_first}"

    kernels = (" ".join([row["kernel"], *(shown(row["us"], build) for build in row["us"])]) for row in rows)
    return "; ".join([",".join(map(str, shape)), *kernels])


def ratios_of(rows: list, builds: list) -> dict:
    """Of each build but the first: what it takes of the first one's time, over the rows that both have."""
    first, *others = builds
    found = {}
    for build in others:
        ratios = [row["us"][build] / row["us"][first] for row in rows if first in row["us"] and build in row["us"]]
        if ratios:
            ends = {"least": round(min(ratios), 3), "most": round(max(ratios), 3)}
            found[build] = {"geomean": round(geometric_mean(ratios), 4), **ends, "rows": len(ratios)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", type=pathlib.Path, nargs="+", metavar="BUILD.so")
    parser.add_argument("--cases", nargs="+", default=[], metavar="CASE")
    parser.add_argument("--file", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    cases = cases_of(options.cases, options.file.read_text().splitlines() if options.file else [])

    hopper.require("compare_builds")
    import torch  # here, so that what needs no GPU can be had without it

    from gpu_cases import operands
    from gpu_library import Library
    from gpu_timing import median_times

    paths = {name: str(path.resolve()) for name, path in zip(string.ascii_lowercase, options.builds, strict=False)}
    libraries = {name: Library(path) for name, path in paths.items()}
    print(*(f"{name}: {path}" for name, path in paths.items()), sep="\n")
    generator = torch.Generator("cuda").manual_seed(1)
    rows = []
    for shape, kernels in cases:
        m, n, k = shape
        d = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        calls = runnable(libraries, kernels, (*operands(m, n, k, "mn", generator), d))
        rows += (measured := rows_of(shape, median_times(calls, options.rounds) if calls else {}))
        print(line_of(shape, measured, "a"), flush=True)
    ratios = ratios_of(rows, list(paths))
    for build, of in ratios.items():
        print(f"{build} takes {of['geomean']} of a's time over {of['rows']} rows, {of['least']} to {of['most']}")
    if options.json:
        head = {"gpu": torch.cuda.get_device_name(), "rounds": options.rounds, "builds": paths, "ratios": ratios}
        write_record(options.json, head | {"rows": rows})


if __name__ == "__main__":
    main()
