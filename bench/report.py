#!/usr/bin/env python3
"""Draws records of `finegemm bench` or gpu_check.py, and writes what documents show of records.

Usage: report.py [RECORD...] [--out DIR]   draws NAME_roofline and NAME_speedup as .svg and .png, and the documents'
                                           drawings of layouts; writes the documents
       report.py --documents               writes the documents only
       report.py --check                   fails when a document does not show what its records say; writes nothing

Without RECORD it is bench/results/dense_h200.json, and DIR is docs/figures. Which parts of documents are written, and
of which records, bench/measured.py says.
"""

import argparse
import json
import pathlib
import sys

import measured

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD, FIGURES = ROOT / "bench/results/dense_h200.json", ROOT / "docs/figures"


def check() -> int:
    stale = [path for path, text in measured.documents().items() if path.read_text() != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)} does not show what the records say: run ./dev report --documents")
    if not stale:
        print("documents show the records")
    return 1 if stale else 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Draws records, and writes what documents show of records.")
    parser.add_argument("records", nargs="*", type=pathlib.Path, default=[RECORD], metavar="RECORD")
    parser.add_argument("--out", type=pathlib.Path, default=FIGURES, metavar="DIR")
    parser.add_argument("--documents", action="store_true", help="draw nothing")
    parser.add_argument("--check", action="store_true", help="only compare documents with their records")
    options = parser.parse_args(arguments)
    if options.check:
        return check()
    if not options.documents:
        import diagrams
        import figures

        for path in options.records:
            for drawn in figures.draw(json.loads(path.read_text()), path.stem, options.out):
                print(drawn)
        diagrams.draw(FIGURES)
    for path, text in measured.documents().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
