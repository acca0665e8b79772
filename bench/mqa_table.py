#!/usr/bin/env python3
"""Times of an indexer's scores for the shapes that DeepGEMM's own tests measure, on a GPU; writes a record.

Usage: mqa_table.py [--out FILE] [--rounds N] [--commit ID] [--peers FILE] [--only KIND] [--bytes FILE]

`finegemm` is the abs form, `finegemm_exact` the exact one; with `_filled` the same call also writes -inf outside of
the windows. 8 GB are set before each launch. `--only few`: rows of few requests, and of four queries each. With
`--peers`, a table of rows of the same kind and shape with times of `deep_gemm`, it prints how many times as long these
take, after the ratio of both tables' ceilings. With `--bytes`, what mqa_bytes.cu is built to, `bytes` of a row of pages
is the time of a kernel that moves the same bytes and computes nothing, `bytes_and_last` of one that multiplies all but
the first tile of each ring, too, and `from_l2` that of the same logits from pages that L2 holds. Needs the Python
package, torch and a Hopper GPU.
"""

import argparse
import ctypes
import functools
import itertools
import json
import pathlib
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import hopper
from host_time import ROOT, machine
from records import geometric_mean, write_record

CEILING = "cublas_tensor fp8 8192^3"
FLUSH_BYTES = 8 << 30
LOGITS = {"f32": "float32", "bf16": "bfloat16"}


class Rows(NamedTuple):
    queries: int
    keys: int
    heads: int
    dim: int
    context_parallel: int
    compressed: int
    logits: str


# queries, keys, heads, dim, context_parallel, compressed, logits
ROWS = (
    Rows(2048, 8192, 32, 64, 1, 0, "f32"),
    Rows(2048, 8192, 64, 128, 0, 0, "f32"),
    Rows(2048, 8192, 64, 128, 1, 0, "bf16"),
    Rows(2048, 65536, 64, 32, 1, 1, "bf16"),
    Rows(8192, 8192, 64, 128, 1, 0, "f32"),
    Rows(8192, 8192, 32, 128, 1, 0, "f32"),
    Rows(2048, 8192, 64, 32, 0, 0, "f32"),
    Rows(8192, 8192, 32, 128, 0, 1, "bf16"),
    Rows(8192, 8192, 32, 64, 1, 0, "f32"),
    Rows(8192, 65536, 64, 32, 0, 1, "bf16"),
    Rows(2048, 8192, 32, 128, 0, 1, "f32"),
    Rows(2048, 8192, 64, 32, 0, 1, "bf16"),
    Rows(8192, 8192, 64, 64, 0, 0, "f32"),
    Rows(8192, 8192, 64, 128, 0, 0, "bf16"),
    Rows(8192, 8192, 32, 32, 1, 1, "bf16"),
    Rows(8192, 8192, 32, 32, 1, 0, "bf16"),
)
PAGES = tuple(
    (batch, each, heads, 128, keys, logits)
    for (batch, keys), each, heads, logits in itertools.product(
        ((256, 8192), (256, 65536), (4096, 8192)), (1, 2), (32, 64), LOGITS
    )
)
# Decoding with few requests, and with four queries each.
MORE_PAGES = (
    (256, 4, 64, 128, 8192, "f32"),
    *((batch, 1, 64, 128, keys, "f32") for batch in (1, 8, 32) for keys in (8192, 65536)),
)


def ends(row: Rows, device: str) -> Any:
    """The last key of each query, and one: causal, or of one rank of several that share a sequence evenly."""
    import torch

    at = torch.arange(row.queries, dtype=torch.int32, device=device)
    if not row.context_parallel:
        return at + (row.keys - row.queries)
    chunk, ranks = row.queries // 2, row.keys // row.queries
    rank = ranks // 3
    return torch.where(at < chunk, rank * chunk + at, (2 * ranks - 1 - rank) * chunk + at - chunk).int()


def row_calls(row: Rows, device: str) -> dict:
    import torch

    import finegemm

    q = torch.randn(row.queries, row.heads, row.dim, device=device).to(torch.float8_e4m3fn)
    k = torch.randn(row.keys, row.dim, device=device).to(torch.float8_e4m3fn)
    w, sfk = torch.randn(row.queries, row.heads, device=device), torch.rand(row.keys, device=device) / 448
    last = ends(row, device)
    width = int(last.max()) if row.compressed else row.keys
    stride = -(-(width + 256) // 512) * 512
    d = torch.empty(row.queries, stride, dtype=getattr(torch, LOGITS[row.logits]), device=device)[:, :width]
    form = "compressed" if row.compressed else "untouched"
    call = functools.partial(finegemm.mqa_logits, q, k, sfk, w, torch.zeros_like(last), last, d)
    calls = {
        "finegemm": functools.partial(call, form=form, relu="abs"),
        "finegemm_exact": functools.partial(call, form=form),
    }
    if not row.compressed:
        calls["finegemm_filled"] = functools.partial(call, relu="abs")
        calls["finegemm_exact_filled"] = call
    return calls


def read_pages(
    probe: ctypes.CDLL, products: bool, q: Any, cache: Any, w: Any, lengths: Any, table: Any, _: None, d: Any
) -> None:
    import torch

    def of(x: Any) -> ctypes.c_void_p:
        return ctypes.c_void_p(x.data_ptr())

    batch, each, heads, _ = q.shape
    number = ctypes.c_uint32
    probe.read_pages(
        *(of(q), of(cache), number(len(cache)), of(w), of(lengths), of(table), number(table.shape[1])),
        *(of(d), ctypes.c_int64(d.stride(0) * d.element_size()), number(d.shape[1]), number(d.element_size() == 2)),
        *(number(batch), number(each), number(heads), number(products)),
        ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
    )


def check_reads(probe: ctypes.CDLL, operands: tuple) -> None:
    """The scales of the keys that the last query sees are where its logits go."""
    import torch

    _, cache, _, lengths, table, _, d = operands
    read_pages(probe, False, *operands)
    scales = cache[table[-1].long(), 64 * 128 :].contiguous().view(torch.float32).view(-1)
    seen = int(lengths[-1, -1])
    if not torch.equal(d[-1, :seen], scales[:seen].to(d.dtype)):
        raise AssertionError("mqa_bytes has not stored the scales of its keys")


def page_calls(batch: int, each: int, heads: int, dim: int, keys: int, logits: str, device: str) -> dict:
    import torch

    import finegemm

    # All lengths are as likely as others, and their mean is `keys` in each run: of a draw it would be 1% off.
    spread = (torch.randperm(batch, device=device) + 0.5) / batch
    last = (keys * (0.7 + 0.6 * spread)).int()
    lengths = torch.stack([*(last * (t + 1) // each for t in range(each - 1)), last], 1).contiguous()
    per_request = -(-lengths[:, -1] // 64)
    pages, most = int(per_request.sum()), int(per_request.max())
    shuffled = torch.randperm(pages, device=device).int()
    table = torch.zeros(batch, most, dtype=torch.int32, device=device)
    table[torch.arange(most, device=device) < per_request[:, None]] = shuffled
    cache = torch.empty(pages, 64 * (dim + 4), dtype=torch.uint8, device=device)
    for first in range(0, pages, 1 << 16):  # in parts, so that their f32 fit beside them
        part = cache[first : first + (1 << 16)]
        codes = torch.randn(len(part), 64 * dim, device=device).to(torch.float8_e4m3fn)
        part[:, : 64 * dim] = codes.view(torch.uint8)
        part[:, 64 * dim :] = (torch.rand(len(part), 64, device=device) / 448).view(torch.uint8)
    q = torch.randn(batch, each, heads, dim, device=device).to(torch.float8_e4m3fn)
    w = torch.randn(batch * each, heads, device=device)
    d = torch.empty(batch * each, -(-most * 64 // 512) * 512, dtype=getattr(torch, LOGITS[logits]), device=device)
    call = functools.partial(finegemm.paged_mqa_logits, q, cache, w, lengths, table, None, d[:, : most * 64])
    return {
        "finegemm": functools.partial(call, form="untouched", relu="abs"),
        "finegemm_exact": functools.partial(call, form="untouched"),
    }


def from_l2(call: functools.partial) -> functools.partial:
    """The same call, whose pages are few enough to lie in L2."""
    q, cache, w, lengths, table, schedule, d = call.args
    return functools.partial(call.func, q, cache, w, lengths, table % 256, schedule, d, **call.keywords)


def rounded(times: dict) -> dict:
    return {name: round(us, 2) for name, us in times.items()}


def table(only: str, rounds: int, probe: ctypes.CDLL | None, device: str = "cuda") -> Iterator[dict]:
    from gpu_timing import median_times

    if only in ("", "mqa"):
        for row in ROWS:
            times = median_times(row_calls(row, device), rounds, FLUSH_BYTES)
            yield {"kind": "mqa", "shape": list(row[:4])} | row._asdict() | {"us": rounded(times)}
    if only != "mqa":
        for pages in MORE_PAGES if only == "few" else PAGES + MORE_PAGES:
            calls = page_calls(*pages, device)
            if probe:
                operands = calls["finegemm"].args
                check_reads(probe, operands)
                calls["bytes"] = functools.partial(read_pages, probe, False, *operands)
                if pages[1] == 1:
                    calls["bytes_and_last"] = functools.partial(read_pages, probe, True, *operands)
                calls["from_l2"] = from_l2(calls["finegemm_exact"])
            times = median_times(calls, rounds, FLUSH_BYTES)
            yield {"kind": "paged_mqa", "shape": list(pages[:-1]), "logits": pages[-1], "us": rounded(times)}


def key(row: dict) -> tuple:
    names = ("kind", "shape", "context_parallel", "compressed", "logits")
    return tuple(str(row.get(name)) for name in names)


def shown(row: dict, peers: dict, of_ceilings: float) -> str:
    peer = peers.get(key(row), {}).get("deep_gemm")
    if not peer:
        return f"{row['kind']} {row['shape']} {row['logits']}: {row['us']}"
    row["ratio"] = peer / row["us"]["finegemm"] / of_ceilings
    more = f" exact {peer / row['us']['finegemm_exact'] / of_ceilings:.3f}"
    if clean := peers[key(row)].get("deep_gemm_clean"):
        row["filled"] = (peer + clean) / row["us"]["finegemm_filled"] / of_ceilings
        more += f" filled {row['filled']:.3f}"
    return f"{row['kind']} {row['shape']} {row['logits']}: {row['us']} deep_gemm {peer}: {row['ratio']:.3f}{more}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/mqa_h200.json")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--commit", default="", help="of the sources, where there is no git")
    parser.add_argument("--peers", type=pathlib.Path)
    parser.add_argument("--only", choices=("mqa", "paged_mqa", "few"), default="")
    parser.add_argument("--bytes", type=ctypes.CDLL, dest="probe")
    options = parser.parse_args()
    hopper.require("mqa_table")
    from gpu_timing import ceilings

    peers = json.loads(options.peers.read_text()) if options.peers else {"rows": []}
    times = {key(row): row["us"] for row in peers["rows"]}
    record = {"bench": "mqa_table"} | machine(options.commit)
    record["method"] = f"CUPTI, 8 GB set before each launch, interleaved, median of {options.rounds}"
    record["ceilings_us"] = ceilings()
    of_ceilings = peers["ceilings_us"][CEILING] / record["ceilings_us"][CEILING] if times else 1.0
    record["rows"] = []
    ratios: dict[str, list[float]] = {}
    for row in table(options.only, options.rounds, options.probe):
        print(shown(row, times, of_ceilings), flush=True)
        for name in ("ratio", "filled"):
            if name in row:
                ratios.setdefault(f"{row['kind']} {name}", []).append(row.pop(name))
        record["rows"].append(row)
        write_record(options.out, record)
    for name, found in ratios.items():
        print(f"{name}: {geometric_mean(found):.3f} in the mean of {len(found)}, least {min(found):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
