#!/usr/bin/env python3
"""Writes the measured table of README.md from bench/results/h200.json.

Usage: readme_table.py            rewrites the section between the markers
       readme_table.py --check    fails when the section is not what the record says
"""

import json
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
README, RECORD = ROOT / "README.md", ROOT / "bench/results/h200.json"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
NO_RECORD = "No record has been made yet: `./dev gpu-check` on a machine with an H200 makes one.\n"
ROWS_OF_A = (1, 16, 64, 128, 512, 4096)
PEERS = {
    "deep_gemm": "DeepGEMM",
    "cublas_block": "cuBLASLt with block scales",
    "cublas_tensor": "cuBLASLt with one scale per tensor",
}
SKIPPED = 77


def cell(shape: list[int], us: float) -> str:
    return f"{us:.1f} us, {2 * math.prod(shape) / us * 1e-6:.0f}"


def ratio(rows: list[dict], peer: str) -> tuple[float, int]:
    """How many times as long the peer takes, in geometric mean, and over how many rows."""
    logs = [math.log(row["us"][peer] / row["us"]["finegemm"]) for row in rows if peer in row["us"]]
    return (math.exp(sum(logs) / len(logs)) if logs else 0.0), len(logs)


def table(record: dict) -> str:
    rows = [row for row in record["rows"] if row["kind"] == "dense" and "finegemm" in row["us"]]
    times = {tuple(row["shape"]): row["us"]["finegemm"] for row in rows}
    layers = list(dict.fromkeys((n, k) for _, n, k in times))
    machine = record["machine"]
    lines = [f"{machine['name']}, driver {machine['driver_version']}: time and TFLOP/s of one product.",
             f"Method and all rows: [{RECORD.name}](bench/results/{RECORD.name}).", "",
             "| N x K | " + " | ".join(f"M = {m}" for m in ROWS_OF_A) + " |", "| --- |" + " --- |" * len(ROWS_OF_A)]
    for n, k in layers:
        cells = [cell([m, n, k], times[m, n, k]) if (m, n, k) in times else "" for m in ROWS_OF_A]
        lines.append(f"| {n} x {k} | " + " | ".join(cells) + " |")
    lines.append("")
    for peer, name in PEERS.items():
        mean, count = ratio(rows, peer)
        if count:
            lines.append(f"- {name} takes {mean:.2f} times as long, in geometric mean over {count} shapes.")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    section = table(json.loads(RECORD.read_text())) if RECORD.exists() else NO_RECORD
    before, rest = README.read_text().split(BEGIN)
    old, after = rest.split(END)
    if "--check" not in arguments:
        README.write_text(before + BEGIN + section + END + after)
        return 0
    if old != section:
        print("README.md does not show what the record says: run tools/readme_table.py")
        return 1
    if not RECORD.exists():
        print("there is no bench/results/h200.json: README.md has no measured table")
        return SKIPPED
    print("README.md shows the record")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
