#!/usr/bin/env python3
"""What the names of deep_gemm cost beside our own calls on the same tensors, on a GPU; writes a record.

Usage: deep_gemm_time.py [--out FILE] [--rounds N] [--batches N] [--processes N] [--commit ID]

Times of kernels and of the host for each kind of call, of settings, of the import, and of the first product of a
process whose disk cache is empty. A row says whether it is within its bar; the program ends with 1 where one is not.
Needs the Python package, torch and a Hopper GPU.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable
from typing import Any, NamedTuple

import hopper
from host_time import ROOT, machine, measure
from records import write_record

PROCESSES, TRIES = 5, 3
KERNEL_BAR = "1% + 0.1 us above our own call"
HOST_US, SETTING_US, IMPORT_MS, FIRST_MS = 8.0, 0.3, 60.0, 50.0

IMPORT = """
import time, torch
begin = time.perf_counter()
from finegemm import deep_gemm
print((time.perf_counter() - begin) * 1e3)
"""
FIRST = (
    IMPORT
    + """
m, n, k = 128, 4096, 7168
a = torch.zeros((m, k), device="cuda").to(torch.float8_e4m3fn), torch.ones((m, k // 128), device="cuda")
b = torch.zeros((n, k), device="cuda").to(torch.float8_e4m3fn), torch.ones((n // 128, k // 128), device="cuda")
d = torch.empty((m, n), dtype=torch.bfloat16, device="cuda")
torch.cuda.synchronize()
begin = time.perf_counter()
deep_gemm.fp8_gemm_nt(a, b, d)
torch.cuda.synchronize()
print((time.perf_counter() - begin) * 1e3)
"""
)


class Calls(NamedTuple):
    """A call under its name of deep_gemm, our own, and what both write to; None where they return it."""

    named: Callable[[], object]
    own: Callable[[], object]
    d: Any = None


def dense(device: str, m: int = 128, n: int = 4096, k: int = 7168) -> dict[str, Calls]:
    import torch

    import finegemm
    from finegemm import deep_gemm

    x, w = (torch.randn(rows, k, device=device, dtype=torch.bfloat16) for rows in (m, n))
    a, b, rows_of_b = finegemm.quantize_rows(x), finegemm.quantize_blocks(w), finegemm.quantize_rows(w)
    d, f32 = (torch.zeros(m, n, device=device, dtype=dtype) for dtype in (torch.bfloat16, torch.float32))
    c, turned = torch.randn_like(d), tuple(t.t() for t in b)
    return {
        "fp8_gemm_nt": Calls(lambda: deep_gemm.fp8_gemm_nt(a, b, d), lambda: finegemm.gemm(*a, *b, d), d),
        "fp8_gemm_nn": Calls(lambda: deep_gemm.fp8_gemm_nn(a, turned, d), lambda: finegemm.gemm(*a, *b, d), d),
        "fp8_gemm_nt, c, alpha": Calls(
            lambda: deep_gemm.fp8_gemm_nt(a, b, d, c, alpha=0.5), lambda: finegemm.gemm(*a, *b, d, c=c, alpha=0.5), d
        ),
        "fp8_gemm_nt, scales for rows of b, c=d": Calls(
            lambda: deep_gemm.fp8_gemm_nt(a, rows_of_b, f32, f32),
            lambda: finegemm.gemm(*a, *rows_of_b, f32, accumulate=True),
            f32,
        ),
        "bf16_gemm_nt": Calls(lambda: deep_gemm.bf16_gemm_nt(x, w, d), lambda: finegemm.gemm(x, None, w, None, d), d),
        "bf16_gemm_nt, c=d in float32": Calls(
            lambda: deep_gemm.bf16_gemm_nt(x, w, f32, f32),
            lambda: finegemm.gemm(x, None, w, None, f32, accumulate=True),
            f32,
        ),
    }


def groups_of_rows(device: str, m: int = 1024, n: int = 4096, k: int = 2048) -> dict[str, Calls]:
    import torch

    import finegemm
    from finegemm import deep_gemm

    groups = 8
    x = torch.randn(m, k, device=device, dtype=torch.bfloat16)
    w = torch.randn(groups, n, k, device=device, dtype=torch.bfloat16)
    a, (codes, scales) = finegemm.quantize_rows(x), finegemm.quantize_blocks(w.view(-1, k))
    b = codes.view(groups, n, k), scales.view(groups, n // 128, -1)
    each = a[0].view(groups, m // groups, -1), a[1].view(groups, m // groups, -1)
    d = torch.zeros(m, n, device=device, dtype=torch.bfloat16)
    matrices, x3 = d.view(groups, -1, n), x.view(groups, -1, k)
    numbers = torch.arange(groups, device=device, dtype=torch.int32)
    indices, ends = numbers.repeat_interleave(m // groups), (numbers + 1) * (m // groups)
    rows = torch.full((groups,), m // groups, device=device, dtype=torch.int32)
    by_row, of_row = (t.transpose(0, 1).contiguous() for t in each)
    by_head = d.view(-1, groups, n)
    xh = x3.transpose(0, 1).contiguous()
    return {
        "m_grouped_fp8_gemm_nt_contiguous": Calls(
            lambda: deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, indices),
            lambda: finegemm.grouped_gemm(*a, *b, d, m_indices=indices),
            d,
        ),
        "m_grouped_fp8_gemm_nt_contiguous, ends": Calls(
            lambda: deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, ends, use_psum_layout=True),
            lambda: finegemm.grouped_gemm(*a, *b, d, prefix_sums=ends),
            d,
        ),
        "m_grouped_fp8_gemm_nt_masked": Calls(
            lambda: deep_gemm.m_grouped_fp8_gemm_nt_masked(each, b, matrices, rows, m // groups),
            lambda: finegemm.grouped_gemm(*each, *b, matrices, masked_m=rows, expected_m=m // groups),
            d,
        ),
        "fp8_einsum": Calls(
            lambda: deep_gemm.fp8_einsum("bhr,hdr->bhd", (by_row, of_row), b, by_head),
            lambda: finegemm.grouped_gemm(by_row, of_row, *b, by_head, heads=True),
            d,
        ),
        "einsum": Calls(
            lambda: deep_gemm.einsum("bhr,hdr->bhd", xh, w, by_head),
            lambda: finegemm.grouped_gemm(xh, None, w, None, by_head, heads=True),
            d,
        ),
        "m_grouped_bf16_gemm_nt_contiguous": Calls(
            lambda: deep_gemm.m_grouped_bf16_gemm_nt_contiguous(x, w, d, indices),
            lambda: finegemm.grouped_gemm(x, None, w, None, d, m_indices=indices),
            d,
        ),
        "m_grouped_bf16_gemm_nt_masked": Calls(
            lambda: deep_gemm.m_grouped_bf16_gemm_nt_masked(x3, w, matrices, rows, m // groups),
            lambda: finegemm.grouped_gemm(x3, None, w, None, matrices, masked_m=rows, expected_m=m // groups),
            d,
        ),
    }


def groups_of_k(device: str, m: int = 2048, n: int = 4096) -> dict[str, Calls]:
    import torch

    import finegemm
    from finegemm import deep_gemm

    sizes = [512, 256, 1024, 256]
    k = sum(sizes)
    x, y = (torch.randn(rows, k, device=device, dtype=torch.bfloat16) for rows in (m, n))
    # Groups one behind the other: of random codes any order is one.
    a, b = ((codes.view(-1), scales.t().contiguous().t()) for codes, scales in map(finegemm.quantize_rows, (x, y)))
    d = torch.zeros(len(sizes), m, n, device=device)
    xt, yt = x.t(), y.t()
    return {
        "k_grouped_fp8_gemm_nt_contiguous, c=d": Calls(
            lambda: deep_gemm.k_grouped_fp8_gemm_nt_contiguous(a, b, d, sizes, None, d),
            lambda: finegemm.k_grouped_gemm(*a, *b, d, sizes=sizes, accumulate=True),
            d,
        ),
        "k_grouped_bf16_gemm_tn_contiguous, c=d": Calls(
            lambda: deep_gemm.k_grouped_bf16_gemm_tn_contiguous(xt, yt, d, sizes, None, d),
            lambda: finegemm.k_grouped_gemm(x, None, y, None, d, sizes=sizes, accumulate=True),
            d,
        ),
    }


def others(device: str, m: int = 256, n: int = 2048, k: int = 1024, keys: int = 4096) -> dict[str, Calls]:
    """Logits, the product before a norm, gaps in heads, and sums of products."""
    import torch

    import finegemm
    from finegemm import deep_gemm

    heads, dim, page = 64, 128, 64
    f8 = torch.float8_e4m3fn
    q, codes = (torch.randn(rows, dim, device=device).to(f8) for rows in (m * heads, keys))
    q, w, scales = q.view(m, heads, dim), torch.randn(m, heads, device=device), torch.rand(keys, device=device)
    starts, ends = (torch.full((m,), i, device=device, dtype=torch.int32) for i in (0, keys - 5))
    pages = torch.cat((codes.view(torch.uint8).view(-1, page * dim), scales.view(torch.uint8).view(-1, page * 4)), 1)
    cache, table = pages.view(-1, page, 1, dim + 4), torch.arange(keys // page, device=device, dtype=torch.int32)
    lengths, table, q4 = ends[:, None], table.expand(m, -1).contiguous(), q[:, None]
    schedule = deep_gemm.get_paged_mqa_logits_metadata(lengths, page, 132)
    x, fn = torch.randn(m, k, device=device).bfloat16(), torch.randn(24, k, device=device)
    sums, squares = torch.empty(m, 24, device=device), torch.empty(m, device=device)
    a, b = finegemm.quantize_rows(x), finegemm.quantize_blocks(torch.randn(n, k, device=device).bfloat16())
    d = torch.zeros(m, n // 2 * 3, device=device, dtype=torch.bfloat16)
    part = n // 4
    y, square = torch.randn(8, 128, k, device=device).bfloat16(), torch.empty(128, 128, device=device)
    return {
        "fp8_mqa_logits": Calls(
            lambda: deep_gemm.fp8_mqa_logits(q, (codes, scales), w, starts, ends),
            lambda: finegemm.mqa_logits(q, codes, scales, w, starts, ends),
        ),
        "fp8_paged_mqa_logits": Calls(
            lambda: deep_gemm.fp8_paged_mqa_logits(q4, cache, w, lengths, table, schedule, keys, True),
            lambda: finegemm.paged_mqa_logits(q4, cache, w, lengths, table),
        ),
        "get_paged_mqa_logits_metadata": Calls(
            lambda: deep_gemm.get_paged_mqa_logits_metadata(lengths, page, 132),
            lambda: finegemm.paged_mqa_schedule(lengths, 132),
        ),
        "tf32_hc_prenorm_gemm": Calls(
            lambda: deep_gemm.tf32_hc_prenorm_gemm(x, fn, sums, squares),
            lambda: finegemm.prenorm_gemm(x, fn, sums, squares)[0],
            sums,
        ),
        "fp8_gemm_nt_skip_head_mid": Calls(
            lambda: deep_gemm.fp8_gemm_nt_skip_head_mid(a, b, d, (part, part, part)),
            lambda: finegemm.gemm(*a, *b, d, head_left=part, head_gap=part, head_right=part),
            d,
        ),
        "einsum, bmk,bnk->mn": Calls(
            lambda: deep_gemm.einsum("bmk,bnk->mn", y, y, square),
            lambda: finegemm.einsum("bmk,bnk->mn", y, y, square),
            square,
        ),
    }


def rows_of_calls(device: str, rounds: int, batches: int) -> list[dict]:
    from gpu_timing import median_times  # which imports torch

    rows = []
    for kinds in (dense, groups_of_rows, groups_of_k, others):
        for name, calls in kinds(device).items():
            both = {"deep_gemm": calls.named, "finegemm": calls.own}
            # Both launch the same kernel, of which medians differ by 2% now and then: by noise not three times.
            for _ in range(TRIES):
                kernels = median_times(both, rounds)
                limit = kernels["finegemm"] * 1.01 + 0.1
                if kernels["deep_gemm"] <= limit:
                    break
            host = measure(both, batches)
            rows.append(
                {
                    "kind": "call",
                    "name": name,
                    "kernel_us": {who: round(us, 3) for who, us in kernels.items()},
                    "kernel_bar": KERNEL_BAR,
                    "host_us": host,
                    # Results that calls return are allocated by torch, which takes most of what is above.
                    "host_bar_us": None if calls.d is None else HOST_US,
                    "within": kernels["deep_gemm"] <= limit
                    and (calls.d is None or host["deep_gemm"]["median"] <= HOST_US),
                }
            )
    return rows


def beside(batches: int) -> dict:
    """What a product of torch takes of this host: microseconds of another hour say little."""
    import torch

    x, w, d = (torch.randn(n, n, device="cuda").bfloat16() for n in (128, 128, 128))
    return measure({"torch.matmul bf16 into d": lambda: torch.matmul(x, w, out=d)}, batches)


def rows_of_settings() -> list[dict]:
    from finegemm import deep_gemm

    layout = deep_gemm.utils.layout
    calls = {
        "get_num_sms": deep_gemm.get_num_sms,  # while it is not set, which takes longer
        "set_num_sms": lambda: deep_gemm.set_num_sms(64),
        "set_pdl": lambda: deep_gemm.set_pdl(False),
        "get_pdl": deep_gemm.get_pdl,
        "set_mk_alignment_for_contiguous_layout": lambda: layout.set_mk_alignment_for_contiguous_layout(128),
        "get_mk_alignment_for_contiguous_layout": layout.get_mk_alignment_for_contiguous_layout,
    }
    count = 100_000
    return [
        bounded("setting", name, "us", min(timeit.repeat(call, number=count, repeat=5)) / count * 1e6, SETTING_US)
        for name, call in calls.items()
    ]


def bounded(kind: str, name: str, unit: str, value: float, bar: float) -> dict:
    return {"kind": kind, "name": name, unit: round(value, 3), f"bar_{unit}": bar, "within": value <= bar}


def in_new_processes(code: str, processes: int = PROCESSES) -> list[float]:
    """Milliseconds that `code` prints, on a line each: medians over processes, whose disk caches stay empty."""
    times = []
    for _ in range(processes):
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "FINEGEMM_CACHE_DIR": cache}
            done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"deep_gemm_time: {done.stderr.strip()}")
            if kept := list(pathlib.Path(cache).rglob("*.kernel")):
                sys.exit(f"deep_gemm_time: a kernel was compiled, not taken from the pack: {kept[0].name}")
            times.append([float(line) for line in done.stdout.split()])
    return [statistics.median(each) for each in zip(*times, strict=True)]


def show(row: dict) -> None:
    value = {name: x for name, x in row.items() if name not in ("kind", "name", "within")}
    print(f"{'' if row['within'] else 'NOT within: '}{row['kind']} {row['name']}: {json.dumps(value)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/deep_gemm_h200.json")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--batches", type=int, default=31)
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--commit", default="", help="for the record, where git cannot say")
    options = parser.parse_args()
    hopper.require("deep_gemm_time")
    record = {"bench": "deep_gemm_time"} | machine(options.commit)
    record["host_us"] = beside(options.batches)
    imported, first = in_new_processes(FIRST, options.processes)
    record["rows"] = [
        *rows_of_calls("cuda", options.rounds, options.batches),
        *rows_of_settings(),
        bounded("import", "finegemm.deep_gemm, after torch", "ms", imported, IMPORT_MS),
        bounded("first product", "fp8_gemm_nt 128x4096x7168", "ms", first, FIRST_MS),
    ]
    write_record(options.out, record)
    for row in record["rows"]:
        show(row)
    return 0 if all(row["within"] for row in record["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
