#!/usr/bin/env python3
"""Runs the tests of deep_gemm's interface on a GPU, and writes a record of what passed.

Usage: conformance.py [--out FILE] [--commit ID] [ARGUMENTS OF PYTEST]

These are python/tests/conformance, which holds the interface to its specification, and python/tests/test_deep_gemm_*.py
of each of its areas. A row for each file of tests. The program ends with 1 where a test failed. Needs the Python
package, torch, NumPy, ml_dtypes, pytest and a Hopper GPU.
"""

import argparse
import collections
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

import hopper
from host_time import ROOT, machine
from records import write_record


def rows_of(report: pathlib.Path) -> list[dict]:
    """How many tests of each file passed, failed and were skipped, from JUnit's XML."""
    rows: dict[str, collections.Counter] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        counts = rows.setdefault(case.attrib["classname"].rpartition(".")[2], collections.Counter())
        ends = {child.tag for child in case}
        counts["failed" if ends & {"failure", "error"} else "skipped" if "skipped" in ends else "passed"] += 1
        counts["ms"] += round(1e3 * float(case.attrib["time"]))
    return [{"file": file, **{name: counts[name] for name in NAMES}} for file, counts in sorted(rows.items())]


NAMES = ("passed", "failed", "skipped", "ms")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/conformance_h200.json")
    parser.add_argument("--commit", default="", help="for the record, where git cannot say")
    options, others = parser.parse_known_args()
    hopper.require("conformance")
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.xml"
        tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *others]
        areas = sorted((ROOT / "python/tests").glob("test_deep_gemm_*.py"))
        done = subprocess.run([*tests, "python/tests/conformance", *areas], cwd=ROOT)
        rows = rows_of(report)
    record = {"bench": "conformance"} | machine(options.commit) | {"arguments": " ".join(others), "rows": rows}
    write_record(options.out, record)
    return 1 if done.returncode or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
