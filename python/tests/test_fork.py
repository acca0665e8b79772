"""Children of os.fork: the CPU backend works there, and they end in the ordinary way."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import finegemm
from support import operands

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12 on forks and threads


def ends_well(work):
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # whoever hangs dies
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("threads", [2, 4])
def test_a_child_exits_in_the_ordinary_way(threads):
    program = (
        "import numpy as np, os, sys, finegemm\n"
        "finegemm.quantize_rows(np.ones((300, 256), np.float32), np.empty((300, 256), np.uint8))\n"
        "child = os.fork()\n"
        "if child == 0: sys.exit(7)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    environment = os.environ | {"FINEGEMM_CPU_THREADS": str(threads)}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], env=environment, timeout=60, check=False)
    assert done.returncode == 7


def test_a_child_uses_and_drops_contexts_of_a_parent_at_rest():
    context, args = finegemm.Context(cpu_threads=3), operands(300, 136, 256)
    expected = finegemm.gemm(*args, context=context)

    def work():
        nonlocal context
        same = np.array_equal(finegemm.gemm(*args, context=context), expected)
        context = None
        return same and np.array_equal(finegemm.gemm(*args), expected)

    assert ends_well(work)


def test_a_child_does_so_while_threads_of_the_parent_are_in_calls():
    context, args = finegemm.Context(cpu_threads=3), operands(300, 136, 256)
    expected = finegemm.gemm(*args, context=context)
    done = threading.Event()

    def call():
        while not done.is_set():
            finegemm.gemm(*args, context=context)

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    try:
        for _ in range(10):
            assert ends_well(lambda: np.array_equal(finegemm.gemm(*args, context=context), expected))
    finally:
        done.set()
        for caller in callers:
            caller.join()
