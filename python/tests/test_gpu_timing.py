"""bench/gpu_timing.py: what counts as the time of a call."""

from types import SimpleNamespace

from support import program
from torch_support import torch  # noqa: F401 - what is tested needs it


def event(name, start, end):
    time = SimpleNamespace(start=start, end=end, elapsed_us=lambda: end - start)
    return SimpleNamespace(name=name, time_range=time)


def times(*events):
    return program("bench/gpu_timing.py").busy_times([event(*e) for e in events])


def test_kernels_of_a_call_count_from_one_flush_to_the_next():
    flush = ("Memset (Device)", 0, 500)
    assert times(("before", -9, -1), flush, ("a", 501, 511), ("Memset (Device)", 512, 514), ("b", 520, 525)) == [17]
    assert times(flush, ("a", 501, 511), ("Memset (Device)", 600, 900), ("b", 910, 930)) == [10, 20]
    assert times(flush, ("Memset (Device)", 500, 1000), ("a", 1001, 1004)) == [3]


def test_a_kernel_that_waits_for_another_counts_from_its_end():
    flush = ("FillFunctor", 0, 500)
    assert times(flush, ("pieces", 501, 511), ("adds", 502, 513)) == [12]
    assert times(flush, ("long", 501, 531), ("within", 505, 510), ("behind", 530, 533)) == [32]
