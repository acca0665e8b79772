#!/usr/bin/env python3
"""Draws records of `finegemm bench` or gpu_check.py, and writes README.md's measured table from one.

Usage: report.py [RECORD...] [--out DIR]   draws NAME_roofline and NAME_speedup as .svg and .png, and writes the table
       report.py --check                   fails when README.md's table is not what its record says; draws nothing

Without RECORD it is bench/results/dense_h200.json, and DIR is docs/figures. The table is always that record's.
"""

import argparse
import json
import pathlib
import sys

from records import dense_rows, geometric_mean, operations, ratios

ROOT = pathlib.Path(__file__).resolve().parent.parent
README, RECORD, FIGURES = ROOT / "README.md", ROOT / "bench/results/dense_h200.json", ROOT / "docs/figures"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
NO_RECORD = "No record has been made yet: `finegemm bench --peers --output` on a machine with an H200 makes one.\n"
ROWS_OF_A = (1, 16, 64, 128, 512, 4096)
PEERS = {
    "deep_gemm": "DeepGEMM",
    "cublas_block": "cuBLASLt with block scales",
    "cublas_tensor": "cuBLASLt with one scale per tensor",
}
SKIPPED = 77


def cell(shape: list[int], us: float) -> str:
    return f"{us:.1f} us, {operations(shape) / us * 1e-6:.0f}"


def table(record: dict) -> str:
    rows = dense_rows(record)
    times = {tuple(row["shape"]): row["us"]["finegemm"] for row in rows}
    layers = list(dict.fromkeys((n, k) for _, n, k in times))
    machine = record["machine"]
    lines = [f"{machine['name']}, driver {machine.get('driver_version', 'unknown')}: time and TFLOP/s of one product.",
             f"Method and all rows: [{RECORD.name}](bench/results/{RECORD.name}).", "",
             "| N x K | " + " | ".join(f"M = {m}" for m in ROWS_OF_A) + " |", "| --- |" + " --- |" * len(ROWS_OF_A)]
    if none := record.get("baselines_us", {}).get("no launch"):
        lines.insert(1, f"Between events; by the same method no launch at all takes {none} us.")
    for n, k in layers:
        cells = [cell([m, n, k], times[m, n, k]) if (m, n, k) in times else "" for m in ROWS_OF_A]
        lines.append(f"| {n} x {k} | " + " | ".join(cells) + " |")
    lines.append("")
    for peer, name in PEERS.items():
        if found := ratios(rows, peer):
            lines.append(f"- {name} takes {geometric_mean(found):.2f} times as long, in geometric mean over "
                         f"{len(found)} shapes.")
    return "\n".join(lines) + "\n"


def readme_parts() -> tuple[str, str, str]:
    before, rest = README.read_text().split(BEGIN)
    section, after = rest.split(END)
    return before, section, after


def section() -> str:
    return table(json.loads(RECORD.read_text())) if RECORD.exists() else NO_RECORD


def check() -> int:
    if readme_parts()[1] != section():
        print("README.md does not show what the record says: run ./dev report")
        return 1
    if not RECORD.exists():
        print(f"there is no {RECORD.name}: README.md has no measured table")
        return SKIPPED
    print("README.md shows the record")
    return 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Draws records, and writes README.md's measured table.")
    parser.add_argument("records", nargs="*", type=pathlib.Path, default=[RECORD], metavar="RECORD")
    parser.add_argument("--out", type=pathlib.Path, default=FIGURES, metavar="DIR")
    parser.add_argument("--check", action="store_true", help="only compare README.md's table with its record")
    options = parser.parse_args(arguments)
    if options.check:
        return check()
    import figures

    for path in options.records:
        for drawn in figures.draw(json.loads(path.read_text()), path.stem, options.out):
            print(drawn)
    before, _, after = readme_parts()
    README.write_text(before + BEGIN + section() + END + after)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
