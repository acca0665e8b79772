"""Times of kernels on the current GPU."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from finegemm.torch_module import torch

from ..envs import is_set

_L2_BYTES = 256_000_000  # more than any L2 holds
_FLUSH_BYTES = 8_000_000_000
_UNITS = {"ms": 1e-3, "us": 1e-6}


def bench(fn: Callable[[], Any], num_warmups: int = 5, num_tests: int = 10, high_precision: bool = False) -> float:
    """Seconds of a call, in a row of them between two events; `high_precision` hides the first launches."""
    torch.cuda.synchronize()
    torch.empty(_L2_BYTES // 4, dtype=torch.int32, device="cuda").zero_()
    for _ in range(num_warmups):
        fn()
    if high_precision:
        busy = torch.randn((8192, 8192), dtype=torch.float32, device="cuda")
        busy @ busy
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(num_tests):
        fn()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / num_tests / 1e3


@contextmanager
def empty_suppress() -> Iterator[None]:
    yield


@contextmanager
def suppress_stdout_stderr() -> Iterator[None]:
    """Whatever is printed, by libraries too, is dropped."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(descriptor) for descriptor in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for descriptor in (1, 2):
            os.dup2(nowhere, descriptor)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, copy in zip((1, 2), saved, strict=True):
            os.dup2(copy, descriptor)
            os.close(copy)
        os.close(nowhere)


def bench_kineto(
    fn: Callable[[], Any],
    kernel_names: str | tuple[str, ...],
    num_tests: int = 30,
    suppress_kineto_output: bool = False,
    trace_path: str | None = None,
    flush_l2: bool = True,
    with_multiple_kernels: bool = False,
    barrier: Callable[[], Any] | None = None,
) -> float | tuple[float, ...]:
    """Seconds of the kernel whose name contains `kernel_names`, or of each of several, by torch's profiler."""
    assert isinstance(kernel_names, str | tuple), f"kernel_names: is {type(kernel_names)}, must be a str or a tuple"
    names = (kernel_names,) if isinstance(kernel_names, str) else kernel_names
    if is_set(os.environ.get("DG_USE_NVIDIA_TOOLS", "")):
        times: tuple[float, ...] = (1,) * len(names)
    else:
        fn()
        with suppress_stdout_stderr() if suppress_kineto_output else nullcontext():
            profiler = _profiled(fn, num_tests, flush_l2, barrier)
        if trace_path is not None:
            profiler.export_chrome_trace(trace_path)
        table = profiler.key_averages().table(sort_by="cuda_time_total", max_name_column_width=100)
        times = tuple(time_in(table.split("\n"), name, with_multiple_kernels) for name in names)
    return times[0] if isinstance(kernel_names, str) else times


def _profiled(fn: Callable[[], Any], num_tests: int, flush_l2: bool, barrier: Callable[[], Any] | None) -> Any:
    """The second of two rounds of calls."""
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=1)
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, schedule=schedule) as profiler:
        for _ in range(2):
            for _ in range(num_tests):
                if flush_l2:
                    torch.empty(_FLUSH_BYTES // 4, dtype=torch.int32, device="cuda").zero_()
                if barrier is not None:
                    torch.cuda._sleep(int(2e7))
                    barrier()
                fn()
            torch.cuda.synchronize()
            profiler.step()
    return profiler


def time_in(lines: list[str], name: str, several: bool = False) -> float:
    """Mean seconds of the launches in the lines of a profile that contain `name`; 0 if there are none."""
    found = [line.split() for line in lines if name in line]
    assert several or len(found) <= 1, f"kernel_names: {len(found)} kernels have {name!r} in their names; name one"
    total, launches = 0.0, 0
    for *_, time, count in found:
        for unit, seconds in _UNITS.items():
            if time.endswith(unit):
                total += float(time.removesuffix(unit)) * seconds * int(count)
                launches += int(count)
    return total / launches if launches else 0.0
