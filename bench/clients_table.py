#!/usr/bin/env python3
"""Times the calls of DeepGEMM's clients on a GPU, and writes a record of each kind of them.

Usage: clients_table.py --library libfinegemm.so --sizes FILE [--peers FILE] [--kinds KIND,...] [--rounds N]
                        [--kernels KIND,...] [--rest SECONDS] [--out DIR] [--commit ID]

--sizes: JSON {"rows": {"GROUPSxEXPECTED": [...]}, "k": {...}}, the rows or k of each group. --peers: a table of what a
peer took, with ceilings_us and rows {kind, shape, us}, to compare with. --kernels: of these kinds each kernel that can
take a row, too. --rest: before long rows, and after ceilings. Records are DIR/clients_KIND_CARD.json, say
clients_contig_h200.json. The program ends with 1 where D is wrong.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

import torch

from clients_rows import TABLE, Clients, Row
from gpu_fixture import ROOT, facts_at_work
from gpu_library import Library
from gpu_timing import median_times
from records import geometric_mean, write_record

CEILING = "cublas_tensor fp8 8192^3"
# A row that is expected to take so many microseconds comes after a rest: what runs long without one, or after what did,
# takes longer, as the card lowers its clock.
LONG_US = 100


def ceilings(rounds: int) -> dict[str, float]:
    """What cuBLASLt takes for a large product, as a table of peers has it: three ways in turn."""
    x, y = (torch.randn(8192, 8192, device="cuda").bfloat16() for _ in range(2))
    q, w = (t.to(torch.float8_e4m3fn) for t in (x, y))
    one = torch.ones((), device="cuda")

    def fp8(fast: bool):
        return lambda: torch._scaled_mm(q, w.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=fast)

    slow = f"{CEILING}, sums in f32"
    return times_of({"torch bf16 8192^3": lambda: x @ y.t(), CEILING: fp8(True), slow: fp8(False)}, rounds)


def times_of(calls: dict, rounds: int) -> dict[str, float]:
    return {name: round(us, 2) for name, us in median_times(calls, rounds).items()}


def timed(row: Row, options: argparse.Namespace) -> tuple[dict, str]:
    """A row of the record, and what is wrong with D."""
    wrong = ""
    for name, call in row.calls.items():
        row.d.zero_()
        call()
        wrong = wrong or (row.wrong() if name.startswith("finegemm") else "")
    torch.cuda.synchronize()
    time.sleep(options.rest if row.account["chosen"]["us"] > LONG_US else 0)
    us = times_of(row.calls, options.rounds)
    if row.others:
        us |= times_of(row.others, options.rounds)
    out = {"kind": row.kind, "shape": row.shape, "us": us}
    out["kernel"] = row.account["chosen"]["name"]
    if row.source:
        out["source"] = row.source
    if row.kind in options.kernels.split(","):
        names = [candidate["name"] for candidate in row.account["candidates"] if "rejected" not in candidate]
        out["kernels_us"] = times_of({name: row.named(name) for name in names}, options.rounds)
    return out, wrong


def compare(rows: list[dict], ceiling: float, peers: dict) -> None:
    """Gives rows `ratio`: by name, how many times as long the peer takes, each against cuBLASLt on its machine."""
    theirs = {(row["kind"], *row["shape"]): row["us"] for row in peers["rows"]}
    for row in rows:
        us, peer = row["us"], theirs.get((row["kind"], *row["shape"]))
        if peer is None:
            continue
        own = "cublas_tensor"  # of this shape, where it can be measured
        at_ours, at_peer = (us[own], peer[own]) if own in us else (ceiling, peers["ceilings_us"][CEILING])
        names = [name for name in us if name.startswith("finegemm")]
        row["ratio"] = {name: round(peer["deep_gemm"] / at_peer * at_ours / us[name], 4) for name in names}


def report(kind: str, rows: list[dict]) -> None:
    rows = [row for row in rows if "ratio" in row]
    for name in rows[0]["ratio"] if rows else ():
        worst = sorted((row["ratio"][name], "x".join(map(str, row["shape"]))) for row in rows)[:5]
        mean = geometric_mean([row["ratio"][name] for row in rows])
        listed = ", ".join(f"{shape} {ratio:.3f}" for ratio, shape in worst)
        print(f"{kind} {name}: {mean:.3f} of {len(rows)} rows; lowest {listed}", flush=True)


def options_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", dest="tested", required=True)
    parser.add_argument("--sizes", type=pathlib.Path, required=True)
    parser.add_argument("--peers", type=pathlib.Path)
    parser.add_argument("--kinds", default=",".join(TABLE))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--kernels", default="")
    parser.add_argument("--rest", type=float, default=0.3)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results")
    parser.add_argument("--commit", default="", help="for the records, where git cannot say")
    return parser.parse_args()


def main() -> int:
    options = options_of()
    tested, peers = Library(options.tested), json.loads(options.peers.read_text()) if options.peers else None
    git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    commit = options.commit or subprocess.run(git, capture_output=True, text=True).stdout.strip()
    machine, failed = facts_at_work(), False
    clients = Clients(tested, json.loads(options.sizes.read_text()))
    for kind in options.kinds.split(","):
        best, rows = ceilings(options.rounds), []
        time.sleep(options.rest)
        for row in clients.table(kind):
            measured, wrong = timed(row, options)
            rows.append(measured)
            failed = failed or bool(wrong)
            if wrong:
                print(wrong, file=sys.stderr, flush=True)
        if peers:
            compare(rows, best[CEILING], peers)
        record = {
            "machine": machine,
            "torch": torch.__version__,
            "commit": commit,
            "date": time.strftime("%Y-%m-%d"),
            "method": "bench/clients_table.py: CUPTI time of a call's kernels, 1 GB memset before each launch, calls "
            f"in turn, long rows after a rest of {options.rest} s, median of {options.rounds}",
            "ceilings_us": best,
            "rows": rows,
        }
        options.out.mkdir(parents=True, exist_ok=True)
        write_record(options.out / f"clients_{kind}_{machine['name'].split()[1].lower()}.json", record)
        print(f"{kind}: {len(rows)} rows, ceiling {best[CEILING]} us, {time.strftime('%T')}", flush=True)
        report(kind, rows)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
