#!/usr/bin/env python3
"""What the choice of a kernel costs where few groups of rows have sizes that only the device knows, on a GPU.

Usage: spread_table.py --library libfinegemm.so [--draws N] [--rounds N] [--kinds KIND,...] [--out DIR] [--commit ID]

Of each shape N vectors of sizes are drawn, each size from 0.7 to 1.3 of what is expected, and each kernel that can take
the call is timed with each. The record DIR/spread_CARD.json has by shape the sizes, each kernel's times, and how much
longer the chosen kernels take, all draws together, than the one kernel that suits the draws best (`loss`), and than the
best kernel of each draw (`loss_to_each`), which no choice on the host can reach.
"""

import argparse
import pathlib
import random
import subprocess
import sys
import time
from collections.abc import Callable

import torch

from clients_rows import Clients
from gpu_fixture import ROOT, facts_at_work
from gpu_grouped import EXPERT_NK
from gpu_library import Library
from gpu_timing import median_times
from records import geometric_mean, write_record

SPREAD = (0.7, 1.3)
REST_S = 0.3  # between rows of long products, for which the card lowers its clock
MASKED = ((1, 1024), (2, 512), (4, 256), (6, 1024))
CONTIG, CONTIG_NK = ((4, 8192), (8, 4096)), ((4096, 2048), (7168, 2048))
SHAPES = {
    "masked": [(*groups, *nk) for groups in MASKED for nk in EXPERT_NK],
    "contig": [(*groups, *nk) for groups in CONTIG for nk in CONTIG_NK],
}


def drawn(groups: int, expected: int, draws: int) -> list[list[int]]:
    chance = random.Random(groups * expected)
    return [[int(expected * chance.uniform(*SPREAD)) for _ in range(groups)] for _ in range(draws)]


def timed(clients: Clients, kind: str, shape: tuple[int, ...], draws: int, rounds: int) -> dict:
    groups, expected, n, k = shape
    vectors = drawn(groups, expected, draws)
    calls: dict[tuple[int, str], Callable[[], None]] = {}
    chosen, names = [], set[str]()
    for i, sizes in enumerate(vectors):
        row = clients.grouped(kind, sizes, expected, n, k)
        chosen.append(row.account["chosen"]["name"])
        able = [candidate["name"] for candidate in row.account["candidates"] if "rejected" not in candidate]
        names |= set(able)
        calls |= {(i, name): row.named(name) for name in able}
    us = median_times(calls, rounds)
    by_kernel = {name: [round(us[i, name], 2) for i in range(draws)] for name in sorted(names)}
    took = [us[i, name] for i, name in enumerate(chosen)]
    each = [min(us[i, name] for name in names) for i in range(draws)]
    best = min(by_kernel, key=lambda name: sum(by_kernel[name]))
    return {
        "kind": kind,
        "shape": list(shape),
        "kernel": max(set(chosen), key=chosen.count),
        "best": best,
        "loss": round(sum(took) / sum(by_kernel[best]) - 1, 4),
        "loss_to_each": round(sum(took) / sum(each) - 1, 4),
        "sizes": vectors,
        "us": by_kernel,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", dest="tested", required=True)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--kinds", default=",".join(SHAPES))
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results")
    parser.add_argument("--commit", default="", help="for the record, where git cannot say")
    options = parser.parse_args()
    git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    commit = options.commit or subprocess.run(git, capture_output=True, text=True).stdout.strip()
    machine, rows = facts_at_work(), []
    clients = Clients(Library(options.tested), {})
    for kind in options.kinds.split(","):
        for shape in SHAPES[kind]:
            rows.append(timed(clients, kind, shape, options.draws, options.rounds))
            time.sleep(REST_S if kind == "contig" else 0)
            facts = {name: rows[-1][name] for name in ("kind", "shape", "kernel", "best", "loss", "loss_to_each")}
            print(*facts.values(), flush=True)
    means = {of: round(geometric_mean([1 + row[of] for row in rows]) - 1, 4) for of in ("loss", "loss_to_each")}
    print("mean", means)
    record = {
        "machine": machine,
        "torch": torch.__version__,
        "commit": commit,
        "date": time.strftime("%Y-%m-%d"),
        "method": "bench/spread_table.py: CUPTI time of each kernel with each vector of sizes, MN-major scales, 1 GB "
        f"memset before each launch, all in turn, median of {options.rounds}",
        "mean": means,
        "rows": rows,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    write_record(options.out / f"spread_{machine['name'].split()[1].lower()}.json", record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
