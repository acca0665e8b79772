#!/usr/bin/env python3
"""What a call costs the host on a GPU, its launch included: finegemm beside torch.matmul and cuBLASLt.

Usage: host_time.py [--cpp FILE] [--out FILE] [--batches N] [--commit ID] [--only-python]

Calls are timed in batches of 200, of which the host waits for none; between batches it waits for the GPU, so that the
driver's queue of launches never fills. The C++ side is build/bench/finegemm_bench_host_time. Needs the Python package,
torch and a Hopper GPU; exits with 77 without one.
"""

import argparse
import itertools
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import time

import hopper

ROOT = pathlib.Path(__file__).resolve().parent.parent
CALLS = 200  # of a batch; the driver queues 1024 launches
STEP, CHUNK = 4, 96  # frames from one batch to the next, and of a chunk
GROUPS = 4
SHAPES = ((1, 2112, 7168), (16, 7168, 2048), (64, 4096, 7168), (128, 7168, 2048))
SKIPPED = 77


def skip(reason: str):
    print(f"host_time: skipped: {reason}")
    sys.exit(SKIPPED)


def operands(m: int, n: int, k: int, device: str) -> dict:
    """What the calls of a shape take, by the names of the parameters of `ours`."""
    import torch

    import finegemm

    x, w = (torch.randn(rows, k, device=device, dtype=torch.bfloat16) for rows in (m, n))
    (a, sfa), (b, sfb) = finegemm.quantize_rows(x), finegemm.quantize_blocks(w)
    d = torch.empty(m, n, device=device, dtype=torch.bfloat16)
    return {"x": x, "w": w, "a": a, "sfa": sfa, "b": b, "sfb": sfb, "d": d}


def ours(x, w, a, sfa, b, sfb, d) -> dict:
    """One function for each row of the record; all work on operands of the same shape."""
    import torch

    import finegemm

    device, (m, n), k_blocks = x.device, d.shape, sfa.shape[1]
    # Groups have the rows, or the k, in unequal parts, and the same weights.
    offsets = torch.tensor([0, m // 4, m // 4, m // 2, m], dtype=torch.int32, device=device)
    weights, scales = (t.expand(GROUPS, *t.shape).contiguous() for t in (b, sfb))
    sizes = [128 * (k_blocks // GROUPS)] * (GROUPS - 1)
    sizes.append(128 * k_blocks - sum(sizes))
    k_offsets = torch.tensor([0, *itertools.accumulate(sizes)], dtype=torch.int32, device=device)
    q, sfq = finegemm.quantize_rows(w)
    grads = torch.zeros(GROUPS, m, n, device=device)
    blocks = torch.empty_like(b), torch.empty_like(sfb)
    return {
        "finegemm.gemm into d": lambda: finegemm.gemm(a, sfa, b, sfb, d),
        "finegemm.gemm into d, all by keywords": lambda: finegemm.gemm(a=a, sfa=sfa, b=b, sfb=sfb, d=d),
        "finegemm.gemm": lambda: finegemm.gemm(a, sfa, b, sfb),
        "finegemm.gemm into d, pdl": lambda: finegemm.gemm(a, sfa, b, sfb, d, pdl=True),
        "finegemm.gemm of bf16 into d": lambda: finegemm.gemm(x, None, w, None, d),
        "finegemm.grouped_gemm into d": lambda: finegemm.grouped_gemm(a, sfa, weights, scales, d, offsets=offsets),
        "finegemm.k_grouped_gemm into d": lambda: finegemm.k_grouped_gemm(a, sfa, q, sfq, grads, offsets=k_offsets),
        "finegemm.k_grouped_gemm into d, a list of sizes": lambda: finegemm.k_grouped_gemm(
            a, sfa, q, sfq, grads, sizes=sizes
        ),
        "finegemm.quantize_rows into q": lambda: finegemm.quantize_rows(x, a, sfa),
        "finegemm.quantize_rows into q, all by keywords": lambda: finegemm.quantize_rows(x=x, q=a, scales=sfa),
        "finegemm.quantize_blocks into q": lambda: finegemm.quantize_blocks(w, *blocks),
    }


def peers(x, w, a, b, d, **rest) -> dict:
    import torch

    one = torch.ones((), device=x.device)
    wt, bt = w.t(), b.t()  # not part of the calls that are timed
    return {
        "torch.matmul bf16 into d": lambda: torch.matmul(x, wt, out=d),
        "torch.matmul bf16": lambda: torch.matmul(x, wt),
        "torch._scaled_mm fp8 (cuBLASLt)": lambda: torch._scaled_mm(a, bt, one, one, out_dtype=torch.bfloat16),
        "torch.empty": lambda: torch.empty(d.shape, device=x.device, dtype=torch.bfloat16),
        "an empty Python function": lambda: None,
    }


def measured(shape: tuple, batches: int, device: str = "cuda") -> dict:
    """A row of the record."""
    m, n, k = shape
    tensors = operands(m, n, k, device)
    return {"shape": shape, "us": measure(ours(**tensors) | peers(**tensors), batches)}


def beside(row: dict, cpp_row: dict | None) -> dict:
    """What a row's figures are to those of the same run: its floor, how much each call of ours takes above that, and
    its share of the time of torch.matmul.

    The floor is the launch of an empty kernel, by itself as C++ calls it, and with a call of an empty function of
    Python, less than which no call from there can take. Without the C++ side there is none.
    """
    us = {name: summary["median"] for name, summary in row["us"].items()}
    matmul = us["torch.matmul bf16 into d"]
    calls = {name: {"of_torch_matmul": round(x / matmul, 3)} for name, x in us.items() if name.startswith("finegemm")}
    if cpp_row is None:
        return {"calls": calls}
    launch = cpp_row["empty_launch_us"]["median"]
    floor = {"launch": launch, "launch_from_python": round(launch + us["an empty Python function"], 3)}
    for name, call in calls.items():
        call["above_floor_us"] = round(us[name] - floor["launch_from_python"], 3)
    return {"floor_us": floor, "calls": calls}


def batch_us(call, depth: int = 0) -> float:
    """Microseconds of one of `CALLS` calls, which `depth` more frames of Python are below."""
    if depth > 0:
        return batch_us(call, depth - 1)
    start = time.perf_counter_ns()
    for _ in range(CALLS):
        call()
    return (time.perf_counter_ns() - start) / CALLS / 1e3


def measure(calls: dict, batches: int) -> dict:
    """Median, p10 and p90 over batches; the calls alternate.

    CPython has its frames in chunks of 16 KB. Where a call's first frame of some has no room in one, each call maps and
    unmaps the next, which takes 2 us: batches begin all over a chunk, so that the median has none of that.
    """
    import torch

    times: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(batches + 1):
        for name, call in calls.items():
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            us = batch_us(call, i * STEP % CHUNK)
            if i > 0:  # the first batch loads kernels
                times[name].append(us)
    return {name: summary(us) for name, us in times.items()}


def summary(us: list) -> dict:
    tenths = statistics.quantiles(us, n=10, method="inclusive")
    return {"median": round(statistics.median(us), 3), "p10": round(tenths[0], 3), "p90": round(tenths[-1], 3)}


def machine(commit: str) -> dict:
    import torch

    def command(*words):
        return subprocess.run(words, capture_output=True, text=True).stdout.strip()

    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    processors = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": command("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split("\n")[0],
        "processor": processors[0] if processors else platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit or command("git", "-C", str(ROOT), "rev-parse", "HEAD"),
    }


def cpp(program: pathlib.Path) -> list:
    done = subprocess.run([program, "--json"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"host_time: {program}: {done.stderr.strip()}")
    return json.loads(done.stdout)["rows"]


def write(record: dict, path: pathlib.Path) -> None:
    """One line for each row."""
    rows = {name: value for name, value in record.items() if name.endswith("_rows")}
    head = json.dumps({name: value for name, value in record.items() if name not in rows}, indent=1)[:-2]
    tables = [f' "{name}": [\n  ' + ",\n  ".join(map(json.dumps, table)) + "\n ]" for name, table in rows.items()]
    path.write_text(",\n".join([head, *tables]) + "\n}\n")


def show(record: dict) -> None:
    for row in record["python_rows"]:
        floor = row["beside"].get("floor_us")
        said = (
            f": an empty launch {floor['launch']:.2f} us, from Python {floor['launch_from_python']:.2f}"
            if floor
            else ""
        )
        print("x".join(map(str, row["shape"])) + said)
        for name, us in row["us"].items():
            call = row["beside"]["calls"].get(name, {})
            shares = [f"{call['above_floor_us']:.2f} above that"] if "above_floor_us" in call else []
            shares += [f"{call['of_torch_matmul']:.2f} of torch.matmul"] if call else []
            print(f"  {name:<48} {us['median']:7.2f} us   ({us['p10']:.2f} to {us['p90']:.2f})   {', '.join(shares)}")
    for row in record.get("cpp_rows", []):
        medians = [f"{name} {row[f'{name}_us']['median']:.2f}" for name in ("gemm", "gemm_pdl", "empty_launch")]
        print("x".join(map(str, row["shape"])), "C++ us:", ", ".join(medians))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cpp", type=pathlib.Path, default=ROOT / "build/bench/finegemm_bench_host_time")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/host_h200.json")
    parser.add_argument("--batches", type=int, default=101)
    parser.add_argument("--commit", default="", help="for the record, where git cannot say")
    parser.add_argument("--only-python", action="store_true", help="leave the C++ program out")
    options = parser.parse_args()
    if reason := hopper.why_not():
        skip(reason)
    record = {"bench": "host_time"} | machine(options.commit)
    record["method"] = f"mean of {CALLS} calls in a row; median, p10 and p90 of {options.batches} such batches"
    record["python_rows"] = [measured(shape, options.batches) for shape in SHAPES]
    if not options.only_python:
        record["cpp_rows"] = cpp(options.cpp)
    cpp_rows = {tuple(row["shape"]): row for row in record.get("cpp_rows", [])}
    for row in record["python_rows"]:
        row["beside"] = beside(row, cpp_rows.get(tuple(row["shape"])))
    write(record, options.out)
    show(record)


if __name__ == "__main__":
    main()
