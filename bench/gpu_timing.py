"""Times on the device: CUPTI's durations of kernels, several implementations in turn, L2 emptied before each launch."""

import statistics
from collections.abc import Iterable

import torch

FLUSH_BYTES, FLUSH_US = 1 << 30, 100  # no GPU sets so much memory in less time
CLEARED_BYTES = 8 << 30  # before each launch of the table of peers, but for products in FP8
ALONE = "bench/gpu_timing.py: CUPTI, each alone, 8 GB cleared before each launch"


def launched(call) -> set:
    """Names of the kernels that a call launches."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as trace:
        call()
        torch.cuda.synchronize()
    return {e.name.partition("(")[0] for e in trace.events() if e.device_type == torch.autograd.DeviceType.CUDA}


def is_flush(event) -> bool:
    return ("emset" in event.name or "FillFunctor" in event.name) and event.time_range.elapsed_us() > FLUSH_US


def busy_times(events: Iterable) -> list[float]:
    """Microseconds in which kernels run behind each flush. A kernel that begins while another still runs counts from
    the end of that: it may have waited for it."""
    runs: list[float] = []
    flushes, end = False, 0.0
    for e in sorted(events, key=lambda e: e.time_range.start):
        flushed, flushes = flushes, is_flush(e)
        if flushes and not flushed:  # more memory takes several kernels
            runs.append(0.0)
        elif runs and not flushes:  # libraries set small pieces of memory, too
            runs[-1] += max(0.0, e.time_range.end - max(e.time_range.start, end))
            end = max(end, e.time_range.end)
    return runs


def median_times(calls: dict, rounds: int, flush_bytes: int = FLUSH_BYTES) -> dict:
    """Microseconds of device time of each call: the median over `rounds` of the time in which its kernels run."""
    from torch.profiler import ProfilerActivity, profile

    flush = torch.empty(flush_bytes, dtype=torch.uint8, device="cuda")
    for call in calls.values():
        call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as trace:
        for _ in range(rounds + 1):
            for call in calls.values():
                flush.zero_()
                call()
        torch.cuda.synchronize()
    runs = busy_times(e for e in trace.events() if e.device_type == torch.autograd.DeviceType.CUDA)
    if len(runs) != (rounds + 1) * len(calls):
        raise RuntimeError(f"the profiler saw {len(runs)} launches of {(rounds + 1) * len(calls)}")
    return {
        name: statistics.median(runs[i + len(calls) :: len(calls)]) for i, name in enumerate(calls)
    }  # not the first round


def alone_times(calls: dict, rounds: int) -> dict:
    """Microseconds of each call by itself, behind as much cleared memory as the table of peers has. Kernels of 10 us
    take up to 6% less than in turn with others: caches of instructions still have their code."""
    return {name: median_times({name: call}, rounds, CLEARED_BYTES)[name] for name, call in calls.items()}


def ceilings() -> dict:
    """What this GPU does in the best case, in microseconds: products of cuBLAS, and a copy."""
    x, y = (torch.randn(8192, 8192, device="cuda").bfloat16() for _ in range(2))
    q, w = (t.to(torch.float8_e4m3fn) for t in (x, y))
    one = torch.ones((), device="cuda")
    big, to = (torch.empty(1 << 32, dtype=torch.uint8, device="cuda") for _ in range(2))
    t = median_times(
        {
            "torch bf16 8192^3": lambda: x @ y.t(),
            "cublas_tensor fp8 8192^3": lambda: torch._scaled_mm(
                q, w.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True
            ),
            "read+write of 4 GB each": lambda: to.copy_(big),
        },
        5,
    )
    return {name: round(v, 1) for name, v in t.items()}
