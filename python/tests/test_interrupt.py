"""Ctrl-C ends a long call on the CPU, not only what comes after it."""

import signal
import threading
import time

import numpy as np
import pytest

import finegemm

M, N, K = 4096, 4096, 4096  # seconds, on two threads
CONTEXT = finegemm.Context(cpu_threads=2)


def codes(rows):
    return np.full((rows, K), 0x38, np.uint8)


def scales(rows):
    return np.ones((rows, K // 128), np.float32)


CALLS = {
    "gemm": lambda: finegemm.gemm(codes(M), scales(M), codes(N), scales(N), out_dtype="float32", context=CONTEXT),
    "grouped_gemm": lambda: finegemm.grouped_gemm(
        codes(M),
        scales(M),
        codes(N)[None],
        scales(N // 128)[None],
        np.empty((M, N), np.uint16),
        offsets=np.array([0, M], np.int32),
        context=CONTEXT,
    ),
    "k_grouped_gemm": lambda: finegemm.k_grouped_gemm(
        codes(M), scales(M), codes(N), scales(N), offsets=[0, K], context=CONTEXT
    ),
    "bench": lambda: finegemm.bench([(512, 1024, K)], device="cpu", repeats=1000, context=CONTEXT),
}


@pytest.mark.parametrize("name", CALLS)
def test_ctrl_c_ends_a_call(name):
    before = time.monotonic()
    threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        CALLS[name]()
        time.sleep(5)  # a machine that is faster than that
    # 0.2 s on a machine of its own; tests share theirs.
    assert time.monotonic() - before < 0.3 + 1


def test_another_handler_runs_and_the_call_goes_on():
    seen = []
    previous = signal.signal(signal.SIGALRM, lambda *_: seen.append(time.monotonic()))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        out = finegemm.gemm(codes(1024), scales(1024), codes(N), scales(N), out_dtype="float32", context=CONTEXT)
        ended = time.monotonic()
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert seen and seen[0] < ended
    assert np.all(out == K)
