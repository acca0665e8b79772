#!/usr/bin/env python3
"""Times builds of the library in turn on a GPU, in one process and on the same operands; needs torch.

Usage: compare_builds.py BUILD.so... [--cases CASE...] [--file FILE] [--table NAME] [--rounds N] [--repeats N]
                         [--json FILE]

A case is M,N,K or M,N,K:KERNEL,... ; FILE has one to a line. "chosen", which is meant where no kernel is named, is what
a build itself takes. Groups of K stand before a case, how many and how much K each has: even, ragged or sparse (half of
them have none, the others twice as much), as in 16ragged*7168,2048,2048, where 2048 is the mean; D is of f32 and added
to, scales are row-major. Without cases they are those of --table: dense, or k-groups.

There is a line for each case, with median times and, in parentheses, what they are of the first build's, in the least,
the median and the most of the repeats if there are several; then the geometric means of the medians. A build that is
given twice shows what two equal ones differ by.
"""

import argparse
import itertools
import pathlib
import random
import re
import statistics
import string

import hopper
from dense_table import DENSE_SHAPES
from records import geometric_mean, write_record

CASE = re.compile(r"((?:[1-9]\d*(?:even|ragged|sparse)\*)?)(\d+),(\d+),(\d+)(?::([^,\s]+(?:,[^,\s]+)*))?")
CHOSEN = "chosen"
# One K in 4 to 256 groups, and the kernels that read their row-major scales as vectors.
K_GROUPS = [
    f"{count}{spread}*{m},{n},{32768 // count}:m128n128s4w2_1d1d_f32_kgrouped,m128n128s5w2_1d1d_f32_kgrouped"
    for count, (m, n), spread in itertools.product(
        (4, 8, 16, 64, 256), ((7168, 2048), (4096, 7168)), ("even", "ragged", "sparse")
    )
]
TABLES = {"dense": [",".join(map(str, shape)) for shape in DENSE_SHAPES], "k-groups": K_GROUPS}


def case_of(text: str) -> tuple:
    """(m, n, k), or ("16even", m, n, k), and the names of the kernels."""
    match = CASE.fullmatch(text.strip())
    if not match:
        raise SystemExit(
            f"'{text}' is no case: give M,N,K or M,N,K:KERNEL,KERNEL,... without blanks; groups of K stand before it, "
            "as in 16ragged*M,N,K, and are even, ragged or sparse"
        )
    groups, *shape, kernels = match.groups()
    return (*filter(None, [groups[:-1]]), *map(int, shape)), kernels.split(",") if kernels else [CHOSEN]


def cases_of(words: list, lines: list, table: str = "dense") -> list:
    """Those of the command line and of the lines of a file, which may be blank; without any those of a table."""
    texts = [*words, *(line for line in lines if line.strip())]
    return [case_of(text) for text in texts or TABLES[table]]


def k_sizes(groups: str, k: int) -> list:
    """K of each group, in multiples of 128, of a case's groups and its K."""
    spread = groups.lstrip("0123456789")
    count = int(groups.removesuffix(spread))
    chance = random.Random(0)
    shares = {
        "even": lambda i: 1,
        "ragged": lambda i: chance.uniform(0.7, 1.3),
        "sparse": lambda i: 2 * (i % 2),
    }[spread]
    return [128 * round(k * shares(i) / 128) for i in range(count)]


def runnable(libraries: dict, kernels: list, prepare) -> dict:
    """By (kernel, build) the calls that can run. Of each other one it prints why not, as the build says."""
    calls = {}
    for kernel in kernels:
        for build, library in libraries.items():
            call = prepare(library, config=None if kernel == CHOSEN else kernel)
            try:
                call()
                calls[kernel, build] = call
            except RuntimeError as error:
                print(f"{kernel} is left out of {build}: {error}")
    return calls


def rows_of(shape: tuple, repeats: list, first: str) -> list:
    """A row of the record for each kernel; each repeat has times by (kernel, build)."""
    rows: dict[str, dict] = {}
    for kernel, build in repeats[0] if repeats else ():
        times = [repeat[kernel, build] for repeat in repeats]
        row = rows.setdefault(kernel, {"shape": shape, "kernel": kernel, "us": {}, "of_first": {}})
        row["us"][build] = round(statistics.median(times), 2)
        if build != first and (kernel, first) in repeats[0]:
            ratios = [repeat[kernel, build] / repeat[kernel, first] for repeat in repeats]
            row["of_first"][build] = [round(of(ratios), 4) for of in (min, statistics.median, max)]
    return list(rows.values())


def line_of(shape: tuple, rows: list) -> str:
    def shown(row, build):
        least, median, most = row["of_first"].get(build, (0, 0, 0))
        ratio = f"{median:.3f}" if least == most else f"{least:.3f} {median:.3f} {most:.3f}"
        return f"{build} {row['us'][build]:.2f}" + (f" ({ratio})" if median else "")

    kernels = (" ".join([row["kernel"], *(shown(row, build) for build in row["us"])]) for row in rows)
    return "; ".join([",".join(map(str, shape)), *kernels])


def ratios_of(rows: list, builds: list) -> dict:
    """Of each build but the first: what it takes of the first one's time, over the rows that both have."""
    found = {}
    for build in builds[1:]:
        ratios = [row["of_first"][build][1] for row in rows if build in row["of_first"]]
        if ratios:
            ends = {"least": round(min(ratios), 3), "most": round(max(ratios), 3)}
            found[build] = {"geomean": round(geometric_mean(ratios), 4), **ends, "rows": len(ratios)}
    return found


def prepared(shape: tuple, generator):
    """A function of a library and options that gives the call of a case."""
    import torch

    from gpu_cases import operands, rounded_up

    *groups, m, n, k = shape
    if not groups:
        d = torch.empty(m, n, device=generator.device, dtype=torch.bfloat16)
        of_d = (*operands(m, n, k, "mn", generator), d)
        return lambda library, **options: library.prepare(*of_d, **options)
    sizes = k_sizes(groups[0], k)
    offsets = torch.tensor([0, *itertools.accumulate(sizes)], device=generator.device, dtype=torch.int32)
    # Vectors of scales are of four k-blocks: K of no group is behind the last one.
    x = operands(m, n, rounded_up(sum(sizes), 512), "row", generator, row_b_scales=True)
    d = torch.zeros(len(sizes), m, n, device=generator.device)
    return lambda library, **options: library.prepare_k_grouped(*x, d, offsets, accumulate=1, **options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", type=pathlib.Path, nargs="+", metavar="BUILD.so")
    parser.add_argument("--cases", nargs="+", default=[], metavar="CASE")
    parser.add_argument("--file", type=pathlib.Path)
    parser.add_argument("--table", choices=TABLES, default="dense")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    cases = cases_of(options.cases, options.file.read_text().splitlines() if options.file else [], options.table)

    hopper.require("compare_builds")
    import torch  # here, so that what needs no GPU can be had without it

    from gpu_library import Library
    from gpu_timing import median_times

    paths = {name: str(path.resolve()) for name, path in zip(string.ascii_lowercase, options.builds, strict=False)}
    libraries = {name: Library(path) for name, path in paths.items()}
    print(*(f"{name}: {path}" for name, path in paths.items()), sep="\n")
    generator = torch.Generator("cuda").manual_seed(1)
    rows = []
    for shape, kernels in cases:
        calls = runnable(libraries, kernels, prepared(shape, generator))
        repeats = [median_times(calls, options.rounds) for _ in range(options.repeats if calls else 0)]
        rows += (measured := rows_of(shape, repeats, "a"))
        print(line_of(shape, measured), flush=True)
    ratios = ratios_of(rows, list(paths))
    for build, of in ratios.items():
        print(f"{build} takes {of['geomean']} of a's time over {of['rows']} rows, {of['least']} to {of['most']}")
    if options.json:
        head = {"gpu": torch.cuda.get_device_name(), "rounds": options.rounds, "repeats": options.repeats}
        head |= {"builds": paths, "ratios": ratios}
        write_record(options.json, head | {"rows": rows})


if __name__ == "__main__":
    main()
