#!/usr/bin/env python3
"""What packing of scales and quantisation of columns take beside copies of as many bytes, and beside kernels that load
and store the same in the same order and compute nothing; writes a record.

Usage: pass_bytes.py PROBE [--out FILE] [--rounds N] [--commit ID]

PROBE is what pass_bytes.cu is built to. Packs are timed on several sets of buffers: a copy of 12 MB takes 4.4 to 4.8
us, by where its buffers lie. Needs the Python package, torch and a Hopper GPU.
"""

import argparse
import ctypes
import functools
import itertools
import pathlib
import statistics
import sys
from collections.abc import Iterator
from typing import Any

import hopper
from host_time import ROOT, machine
from records import write_record

SETS = 5  # of buffers
PACKS = ((16384, 144), (40960, 56), (32768, 64), (262144, 8), (131072, 56))  # rows, columns: row-major vectors
COLUMNS = ((4096, 7168, 0), (65536, 7168, 0), (8192, 4096, 256))  # rows, columns, groups


def of(x: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if x is None else x.data_ptr())


def stream() -> ctypes.c_void_p:
    import torch

    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def copied(count: int) -> functools.partial:
    """A copy that reads and writes so many bytes together."""
    import torch

    half = torch.empty(count // 2, dtype=torch.uint8, device="cuda").random_()
    return functools.partial(torch.empty_like(half).copy_, half)


def pack_calls(probe: ctypes.CDLL, rows: int, cols: int) -> dict:
    import torch

    import finegemm

    scales = torch.rand(rows, cols, device="cuda")
    packed = torch.empty(cols // 4, rows, dtype=torch.int32, device="cuda").t()
    sizes = ctypes.c_uint32(rows), ctypes.c_uint32(cols // 4)
    return {
        "finegemm": functools.partial(finegemm.scale_layout, scales, packed),
        "bytes": lambda: probe.pack_rows(of(scales), of(packed), *sizes, stream()),
        "copy": copied(5 * rows * cols),
    }


def columns_calls(probe: ctypes.CDLL, rows: int, cols: int, groups: int, with_rows: bool) -> dict:
    import torch

    import finegemm

    x = torch.randn(rows, cols, device="cuda").bfloat16()
    columns = (rows + 127 * groups) // 128 * 128
    q = torch.empty(cols, columns, dtype=torch.float8_e4m3fn, device="cuda")
    scales = torch.empty(columns // 128, cols, device="cuda").t()
    row_q = torch.empty(rows, cols, dtype=q.dtype, device="cuda") if with_rows else None
    row_scales = torch.empty(cols // 128, rows, device="cuda").t() if with_rows else None
    options: dict[str, Any] = {"row_q": row_q, "row_scales": row_scales} if with_rows else {}
    if groups:
        options["offsets"] = (torch.arange(groups + 1, device="cuda") * (rows // groups)).int()
        options["begins"] = torch.empty(groups + 1, dtype=torch.int32, device="cuda")
    sizes = tuple(ctypes.c_uint32(n) for n in (rows, cols, columns, groups))
    return {
        "finegemm": functools.partial(finegemm.quantize_columns, x, q, scales, **options),
        "bytes": lambda: probe.quantize_columns(of(x), of(q), of(scales), of(row_q), of(row_scales), *sizes, stream()),
        "copy": copied((3 if with_rows else 2) * x.numel() + q.numel()),
    }


def table(probe: ctypes.CDLL, rounds: int) -> Iterator[dict]:
    import torch

    from gpu_timing import median_times

    def row(kind: str, shape: tuple, sets: list[dict]) -> dict:
        us = {name: statistics.median(times[name] for times in sets) for name in sets[0]}
        shares = {name: [times[name] / times["finegemm"] for times in sets] for name in ("copy", "bytes")}
        return {
            "kind": kind,
            "shape": list(shape),
            "us": {name: round(x, 2) for name, x in us.items()},
            "of_copy": round(statistics.median(shares["copy"]), 3),
            "of_bytes": round(statistics.median(shares["bytes"]), 3),
            "least_of_copy": round(min(shares["copy"]), 3),
        }

    for size in PACKS:
        sets, kept = [], []
        for i in range(SETS):
            kept.append(torch.empty(1 + i * 7_000_003, dtype=torch.uint8, device="cuda"))  # others begin elsewhere
            sets.append(median_times(pack_calls(probe, *size), rounds))
        yield row("pack", size, sets)
    for shape, with_rows in itertools.product(COLUMNS, (False, True)):
        calls = columns_calls(probe, *shape, with_rows)
        yield row("columns and rows" if with_rows else "columns", shape, [median_times(calls, rounds)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("probe", type=ctypes.CDLL)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/pass_bytes_h200.json")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--commit", default="", help="of the sources, where there is no git")
    options = parser.parse_args()
    hopper.require("pass_bytes")
    record = {"bench": "pass_bytes"} | machine(options.commit)
    record["method"] = f"CUPTI, L2 flushed before each launch, interleaved, median of {options.rounds}; packs of {SETS}"
    record["method"] += " sets of buffers, of which the median, and the least share of a copy"
    record["rows"] = []
    for row in table(options.probe, options.rounds):
        print(row, flush=True)
        record["rows"].append(row)
    write_record(options.out, record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
