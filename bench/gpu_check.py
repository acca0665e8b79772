#!/usr/bin/env python3
"""Correctness and speed on an H200 or an H100; needs torch and NumPy. Writes bench/results/ and gpu-validated.json.

Usage: gpu_check.py [--library FILE] [--racecheck-library FILE] [--out DIR] [--shapes N] [--rounds N] [--only NAME,...]
                    [--jobs N] [--until SECONDS]

Every check prints one line and raises on failure. What passed is kept in DIR/h200_checks.json (on an H100 in
h100_checks.json; other records are named likewise) with the digest of its operation (tools/gpu_digest.py) and one of
the check: the next run goes on with what is missing, and a change of one operation, or of one file of checks, runs only
its own again. When all of an operation have passed, gpu-validated.json has its digest and names the machine. A check of
speed that misses its bar fails as well and runs again next time; where nothing else of an operation failed,
gpu-validated.json has the operation with what is short. After an error of CUDA, which all later calls of a process
return, the run stops.

With --jobs, N processes take checks side by side, each on the next of the GPUs that there are, the longest of the last
run first; those that time something, fill the memory or need all GPUs come after them, alone. With --until, none begins
that would not end so many seconds after the start.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor

import torch

from gpu_affine import Affine
from gpu_fixture import ROOT, TooSlow, digest
from gpu_grouped import Grouped
from gpu_heads_speed import HeadsSpeed
from gpu_integers import Integers
from gpu_lanes import Outcome, side_by_side
from gpu_moe import Moe
from gpu_progress import Progress, check_build, digest_of_check
from gpu_sanitize import Sanitized
from gpu_speed import Speed
from gpu_together import Together

RESULTS = ROOT / "bench/results"


class Check(Speed, HeadsSpeed, Integers, Sanitized, Grouped, Moe, Together, Affine):
    """All of them. Each check is a method that returns what to record of it, or raises."""


CHECKS = {
    "gemm": (
        "shapes",
        "table",
        "beyond_31_bits",
        "repeat",
        "batch_invariant",
        "num_sms",
        "graph",
        "dependent_launch",
        "grouped",
        "grouped_repeat",
        "grouped_capacity",
        "grouped_tall",
        "one_d_one_d",
        "k_grouped",
        "gradients_beyond_31_bits",
        "types",
        "integers_repeat",
        "integers_options",
        "integers_beyond_31_bits",
        "mx",
        "mx_many",
        "mx_groups",
        "mx_repeat",
        "mx_options",
        "mx_reencoded",
        "mx_beyond_31_bits",
        "moe",
        "unscaled",
        "unscaled_repeat",
        "unscaled_options",
        "unscaled_beyond_31_bits",
        "affine",
        "affine_repeat",
        "affine_options",
        "head_gaps",
        "head_gaps_repeat",
        "gated",
        "gated_repeat",
        "gated_speed",
        "indexed",
        "indexed_repeat",
        "indexed_tall",
        "einsum",
        "einsum_repeat",
        "streams",
        "threads",
        "devices",
        "kernels",
        "memcheck",
        "racecheck",
        "layouts",
        "wgrad",
        "k_grouped_speed",
        "speed",
        "unscaled_speed",
        "unscaled_layouts_speed",
        "unscaled_experts_speed",
        "unscaled_k_grouped_speed",
        "router_speed",
        "affine_speed",
        "einsum_speed",
        "head_gaps_speed",
        "indexed_speed",
        "grouped_speed",
        "grouped_skew",
    ),
    "quantize": (
        "quantize",
        "quantize_weights",
        "quantize_columns",
        "quantize_columns_repeat",
        "quantize_columns_tall",
        "whole_rows",
        "whole_rows_repeat",
        "whole_rows_tall",
        "reencode",
        "reencode_repeat",
        "reencode_graph",
        "reencode_tall",
        "quantize_kernels",
        "quantize_memcheck",
        "quantize_racecheck",
        "bandwidth",
        "quantize_weights_bandwidth",
        "quantize_columns_bandwidth",
        "whole_rows_bandwidth",
        "reencode_bandwidth",
    ),
    "swiglu": (
        "swiglu",
        "swiglu_values",
        "swiglu_repeat",
        "swiglu_tall",
        "swiglu_kernels",
        "swiglu_memcheck",
        "swiglu_racecheck",
        "swiglu_bandwidth",
    ),
    "four_bit": (
        "four_bit",
        "four_bit_many",
        "four_bit_repeat",
        "four_bit_kernels",
        "four_bit_memcheck",
        "four_bit_racecheck",
        "four_bit_speed",
        "four_bit_many_speed",
    ),
    "scale_layout": (
        "scale_layout",
        "scale_layout_repeat",
        "scale_layout_tall",
        "scale_layout_kernels",
        "scale_layout_memcheck",
        "scale_layout_racecheck",
        "scale_layout_bandwidth",
    ),
    "mqa": (
        "mqa",
        "mqa_schedule",
        "mqa_repeat",
        "mqa_many",
        "mqa_graph",
        "mqa_devices",
        "mqa_tall",
        "mqa_kernels",
        "mqa_memcheck",
        "mqa_racecheck",
        "mqa_speed",
    ),
    "prenorm": (
        "prenorm",
        "prenorm_repeat",
        "prenorm_graph",
        "prenorm_devices",
        "prenorm_beyond_31_bits",
        "prenorm_kernels",
        "prenorm_memcheck",
        "prenorm_racecheck",
        "prenorm_speed",
    ),
    "routing": (
        "routing",
        "routing_repeat",
        "routing_graph",
        "routing_devices",
        "routing_beyond_31_bits",
        "routing_kernels",
        "routing_memcheck",
        "routing_racecheck",
        "routing_speed",
    ),
    "ep": ("ep_bits", "ep_many", "ep_graph", "ep_kernels", "ep_memcheck", "ep_racecheck"),
    "topk": (
        "topk",
        "topk_repeat",
        "topk_graph",
        "topk_devices",
        "topk_tall",
        "topk_kernels",
        "topk_memcheck",
        "topk_racecheck",
        "topk_speed",
    ),
    "moe": ("moe_bits", "moe_four_bit", "moe_repeat", "moe_graph", "moe_memcheck", "moe_racecheck", "moe_speed"),
}


# Beside those of speed and of several GPUs: others time something as well, or fill the GPU's memory or all its SMs.
ALONE = {
    "affine_options",
    "dependent_launch",
    "ep_bits",
    "ep_graph",
    "ep_many",
    "four_bit_repeat",
    "gradients_beyond_31_bits",
    "grouped_capacity",
    "grouped_skew",
    "grouped_tall",
    "layouts",
    "moe",
    "reencode_tall",
    "routing_beyond_31_bits",
    "swiglu_tall",
    "threads",
    "topk_tall",
    "wgrad",
    "whole_rows_tall",
}


def is_alone(name: str) -> bool:
    return name in ALONE or any(word in name for word in ("speed", "bandwidth", "devices"))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", dest="tested", default=str(ROOT / "build/libfinegemm.so"))
    racecheck = str(ROOT / "build-racecheck/libfinegemm.so")
    parser.add_argument("--racecheck-library", default=racecheck, type=os.path.abspath)
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--shapes", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="")
    parser.add_argument("--commit", default="", help="of the sources, where there is no git")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--until", type=float, default=float("inf"))
    arguments = parser.parse_args()
    arguments.tested = os.path.abspath(arguments.tested)
    return arguments


def main() -> int:
    start, arguments = time.monotonic(), parsed()
    if not torch.cuda.is_available():
        print("skipped: torch sees no GPU; run this on a machine with an H200")
        return 77
    for build in map(pathlib.Path, (arguments.tested, arguments.racecheck_library)):
        if build.exists():
            check_build(build)
    arguments.out.mkdir(parents=True, exist_ok=True)
    check = Check(arguments)
    same = {"gpu": torch.cuda.get_device_name(), "shapes": arguments.shapes, "rounds": arguments.rounds}
    of: dict[str, dict] = {}
    for operation, checks in CHECKS.items():
        of_operation = same | {"digest": digest(operation)}
        of |= {name: of_operation | {"checks": digest_of_check(Check, name)} for name in checks}
    # Without work for the GPU, as facts_at_work has it: a sanitizer may watch this process.
    card = torch.cuda.get_device_name().split()[1].lower()
    progress = Progress(arguments.out / f"{card}_checks.json", of)
    names = arguments.only.split(",") if arguments.only else progress.missing() + list(progress.short())

    def fits(name: str) -> bool:
        return time.monotonic() - start + progress.seconds(name) <= arguments.until

    passed = failed = 0
    for outcome in outcomes(check, names, progress, fits):
        print(outcome.said, flush=True)
        if outcome.result is not None and outcome.origin:
            progress.add(outcome.name, outcome.result, outcome.origin)
        passed += outcome.passed
        failed += not outcome.passed
    print(f"{passed} passed, {failed} failed, {len(names) - passed - failed} not run")
    if set(names) & set(of):
        validated = ROOT / "gpu-validated.json" if arguments.out == RESULTS else arguments.out / "gpu-validated.json"
        validate(validated, progress, check)
    return 1 if failed else 0


def outcomes(check: Check, names: list[str], progress: Progress, fits: Callable[[str], bool]) -> Iterator[Outcome]:
    """Of all that still fit: in this process, as far as CUDA is not lost, those that are alone, which take seconds, and
    then the others in lanes, of which one can take all the time that there is."""
    jobs = check.options.jobs
    beside = sorted((n for n in names if jobs > 1 and not is_alone(n)), key=progress.seconds, reverse=True)
    context = multiprocessing.get_context("spawn")  # a child of fork has no CUDA
    gpus = itertools.cycle(visible_gpus())

    def start() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, context, begin_lane, (check.options, next(gpus)))

    for name in names:
        if name in beside or not fits(name):
            continue
        print(f"begins  {name}", flush=True)
        outcome = outcome_of(check, name)
        yield outcome
        if outcome.lost:
            print(f"stops after {name}: CUDA returns an error to all that this process calls from now on", flush=True)
            break
        torch.cuda.empty_cache()  # lanes need it
    yield from side_by_side(beside, jobs, start, outcome_in_lane, fits)


lane: Check  # of a process that is one


def visible_gpus() -> list[str]:
    """As CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(i) for i in range(torch.cuda.device_count())]


def begin_lane(arguments: argparse.Namespace, gpu: str) -> None:
    """Its share of the GPUs, and twice that of the host's cores: most lanes wait for the GPU now and then."""
    global lane
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    threads = max(1, 2 * len(os.sched_getaffinity(0)) // arguments.jobs)
    os.environ.setdefault("FINEGEMM_CPU_THREADS", str(threads))
    torch.set_num_threads(threads)
    lane = Check(arguments)


def outcome_in_lane(name: str) -> Outcome:
    outcome = outcome_of(lane, name)
    if not outcome.lost:
        torch.cuda.empty_cache()  # others need it
    return outcome


def is_lost() -> bool:
    """Has a kernel stopped in a way that leaves nothing of CUDA to this process?"""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def outcome_of(check: Check, name: str) -> Outcome:
    start = time.monotonic()
    check.reseed()
    try:
        verdict, result = "passed", getattr(check, name)()
    except TooSlow as e:
        verdict, result = "SHORT ", {"short": str(e)}
    except (AssertionError, RuntimeError, subprocess.SubprocessError) as e:
        return Outcome(name, f"FAILED  {name:<18} {e}", lost=is_lost())
    seconds = round(time.monotonic() - start, 1)
    origin = origin_of(check, seconds) if any(name in names for names in CHECKS.values()) else {}
    return Outcome(name, f"{verdict}  {name:<18} {seconds:6.1f} s  {json.dumps(result)}", result, origin)


def origin_of(check: Check, seconds: float) -> dict:
    """What to record of a check: the GPU is asked at work. racecheck does not survive that, so that what a sanitizer
    runs, which is not recorded, does without."""
    head = check.machine()
    return {key: head[key] for key in ("machine", "torch", "commit", "date")} | {"seconds": seconds}


def validate(file: pathlib.Path, progress: Progress, check: Check) -> None:
    """Records the digest of each operation of which all checks have passed, or been short of a bar of speed alone."""
    record = json.loads(file.read_text()) if file.exists() else {}
    missing = progress.missing()
    for operation, names in CHECKS.items():
        if not set(names) & set(missing):
            head = check.machine()
            record[operation] = {"digest": digest(operation)} | {k: head[k] for k in ("date", "machine", "commit")}
            record[operation]["short"] = [name for name in names if name in progress.short()]
    kept = {operation: record[operation] for operation in CHECKS if operation in record}
    file.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
