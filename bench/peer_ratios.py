#!/usr/bin/env python3
"""Compares records of bench/results with a table of what a peer took, and prints a line for each kind of rows.

Usage: peer_ratios.py --peers FILE [RECORD...]

Both have rows {kind, shape, us} and ceilings_us. A ratio is the peer's time over its ceiling, over ours over our own:
what cuBLASLt took for a large product, or, where a row has it, for the same one (`cublas_tensor`). Of products in bf16
the peer is the faster one of the table's and of what torch took beside ours; a call that also fills is held against the
peer's logits and its filling together.
"""

import argparse
import json
import pathlib

from records import geometric_mean

RESULTS = pathlib.Path(__file__).parents[1] / "bench/results"
CLIENTS = "contig psum masked kgroup wgrad dense"
OTHERS = "mqa einsum prenorm head_gaps"
BF16, FP8 = "torch bf16 8192^3", "cublas_tensor fp8 8192^3"
CEILINGS = {"bf16": BF16, "einsum": BF16, "prenorm": BF16}
FIELDS = ("context_parallel", "compressed", "logits", "form", "out", "splits")  # beside kind and shape


def key(row: dict) -> tuple:
    return (row["kind"], *row["shape"], *(row.get(name) for name in FIELDS))


def class_of(row: dict) -> str:
    """Kinds in which few and many rows, or short and long keys, have floors of their own."""
    kind, first = row["kind"], row["shape"][0]
    if kind == "bf16":
        return f"{kind}, M up to 128" if first <= 128 else f"{kind}, M = {first}"
    if kind == "prenorm" and first < 4096:
        return f"{kind}, M = 13 and 137, {'with' if row['splits'] else 'without'} slices"
    return f"{kind}, D {'= 128' if row['shape'][3] == 128 else '< 128'}" if kind == "mqa" else kind


def ratios_of(row: dict, peer: dict, ceilings: dict, of_peer: dict) -> dict[str, float]:
    """By name of ours."""
    us, theirs = row["us"], peer["us"]
    own = "cublas_tensor"
    name = CEILINGS.get(row["kind"], FP8)
    scale = us[own] / theirs[own] if own in us and own in theirs else ceilings[name] / of_peer[name]
    found = {}
    for ours in (name for name in us if name.startswith("finegemm")):
        took = theirs["deep_gemm"]
        if ours.endswith("_filled"):
            if "deep_gemm_clean" not in theirs:
                continue
            took += theirs["deep_gemm_clean"]
        took *= scale
        found[ours] = (min(took, us["torch"]) if row["kind"] == "bf16" else took) / us[ours]
    return found


def compare(record: dict, peers: dict) -> dict[str, list[tuple[float, list[int]]]]:
    """By class of rows and name of ours: (ratio, shape) of each row that the table has."""
    table = {key(row): row for row in peers["rows"]}
    classes: dict[str, list[tuple[float, list[int]]]] = {}
    for row in record["rows"]:
        if peer := table.get(key(row)):
            for name, ratio in ratios_of(row, peer, record["ceilings_us"], peers["ceilings_us"]).items():
                classes.setdefault(f"{class_of(row)}: {name}", []).append((ratio, row["shape"]))
    return classes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peers", type=pathlib.Path, required=True)
    parser.add_argument("records", type=pathlib.Path, nargs="*", help="those of an H200, if none are named")
    options = parser.parse_args()
    named = [f"clients_{kind}_h200" for kind in CLIENTS.split()] + [f"{kind}_h200" for kind in OTHERS.split()]
    files = options.records or [RESULTS / f"{name}.json" for name in ("h200_bf16", *named)]
    peers = json.loads(options.peers.read_text())
    for file in files:
        for name, found in compare(json.loads(file.read_text()), peers).items():
            least, shape = min(found)
            mean = geometric_mean([ratio for ratio, _ in found])
            print(f"{name}: {mean:.3f} in the mean of {len(found)}, least {least:.3f} ({'x'.join(map(str, shape))})")


if __name__ == "__main__":
    main()
