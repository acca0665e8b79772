#!/usr/bin/env python3
"""Correctness and speed on a machine with an H200; needs torch and NumPy. Writes bench/results/ and gpu-validated.json.

Usage: gpu_check.py [--library FILE] [--racecheck-library FILE] [--out DIR] [--shapes N] [--rounds N] [--only NAME,...]

Every check prints one line and raises on failure. What passed is kept in DIR/checks_so_far.json: the next run with the
same sources and numbers goes on with what is missing. When all checks have passed, gpu-validated.json is written.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

import torch

from gpu_fixture import ROOT
from gpu_grouped import Grouped
from gpu_moe import Moe
from gpu_progress import Progress
from gpu_sanitize import Sanitized
from gpu_speed import Speed


class Check(Speed, Sanitized, Grouped, Moe):
    """All of them. Each check is a method that returns what to record of it, or raises."""


CHECKS = (
    "shapes",
    "table",
    "beyond_31_bits",
    "repeat",
    "streams",
    "batch_invariant",
    "num_sms",
    "graph",
    "dependent_launch",
    "quantize",
    "grouped",
    "grouped_repeat",
    "grouped_capacity",
    "grouped_threads",
    "grouped_tall",
    "one_d_one_d",
    "k_grouped",
    "moe",
    "memcheck",
    "racecheck",
    "layouts",
    "bandwidth",
    "wgrad",
    "k_grouped_speed",
    "speed",
    "grouped_speed",
    "grouped_skew",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", dest="tested", default=str(ROOT / "build/libfinegemm.so"))
    racecheck = str(ROOT / "build-racecheck/libfinegemm.so")
    parser.add_argument("--racecheck-library", default=racecheck, type=os.path.abspath)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results")
    parser.add_argument("--shapes", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="")
    parser.add_argument("--commit", default="", help="of the sources, where there is no git")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("skipped: torch sees no GPU; run this on a machine with an H200")
        return 77
    arguments.tested = os.path.abspath(arguments.tested)
    arguments.out.mkdir(parents=True, exist_ok=True)
    check = Check(arguments)
    head = check.machine()
    of = {"gpu": head["machine"]["name"], "shapes": arguments.shapes, "rounds": arguments.rounds}
    of |= {name: head[name] for name in ("digest", "commit")}
    progress = Progress(arguments.out / "checks_so_far.json", of)
    names = arguments.only.split(",") if arguments.only else progress.missing(CHECKS)
    failed = []
    for name in names:
        print(f"begins  {name}", flush=True)
        start = time.time()
        try:
            result = getattr(check, name)()
            print(f"passed  {name:<16} {time.time() - start:6.1f} s  {json.dumps(result)}", flush=True)
            if name in CHECKS:
                progress.add(name, result)
        except (AssertionError, RuntimeError, subprocess.SubprocessError) as e:
            failed.append(name)
            print(f"FAILED  {name:<16} {e}", flush=True)
    print(f"{len(names) - len(failed)} passed, {len(failed)} failed")
    if not failed and not progress.missing(CHECKS):
        record = check.machine() | {"checks": {name: progress.passed[name] for name in CHECKS}}
        (arguments.out / "h200_checks.json").write_text(json.dumps(record, indent=1) + "\n")
        validated = (
            arguments.out / "gpu-validated.json"
            if arguments.out != ROOT / "bench/results"
            else ROOT / "gpu-validated.json"
        )
        validated.write_text(
            json.dumps({key: record[key] for key in ("digest", "date", "machine", "commit")}, indent=1) + "\n"
        )
        progress.done()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
