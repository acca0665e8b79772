"""Logs of calls: texts that commands take again, and functions."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import finegemm
from support import operands

LINE = "gemm 16x32x256 e4m3:row128 e4m3:block128 bf16"


def multiply(context=None):
    return finegemm.gemm(*operands(16, 32, 256), np.empty((16, 32), np.uint16), context=context)


def test_a_function_is_told_of_each_call_of_its_context():
    calls = []
    context = finegemm.Context(log=calls.append)
    multiply()
    multiply(context)
    finegemm.quantize_rows(np.ones((16, 256), np.float32), context=context)
    assert [call.line for call in calls] == [LINE, "quantize_rows 16x256 f32"]
    assert calls[0].kernel == "fast" and calls[0].device == "cpu" and calls[0].origin == ""
    assert calls[0].host_us > 0


def test_a_block_logs_calls_that_name_no_context():
    calls = []
    with finegemm.log(calls.append):
        multiply()
        threading.Thread(target=multiply).run()
    multiply()
    assert [call.line for call in calls] == [LINE, LINE]


def test_a_log_on_other_threads_is_called_there():
    seen = []
    context = finegemm.Context(log=lambda call: seen.append(threading.get_ident()))
    threads = [threading.Thread(target=multiply, args=(context,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 4 and threading.get_ident() not in seen


def test_shapes_of_a_block_are_what_bench_measures(tmp_path):
    with finegemm.log(f"shapes:{tmp_path}/shapes.txt"):
        multiply()
        multiply()
    text = (tmp_path / "shapes.txt").read_text()
    assert text.startswith(f"# 2 calls of 1 shape\n{LINE}  # 2 calls, ")
    code, _ = finegemm._native.report(
        finegemm.Context().handle, ["bench", "--device", "cpu", "--repeats", "1", "--file", f"{tmp_path}/shapes.txt"]
    )
    assert code == 0


def test_what_a_function_raises_is_reported_and_the_call_has_been_made(monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)

    def refuse(call):
        raise ZeroDivisionError

    assert multiply(finegemm.Context(log=refuse)).any()
    assert [one.exc_type for one in reported] == [ZeroDivisionError]


@pytest.mark.parametrize(("log", "why"), [(3, "int cannot be called"), ("loud", "must be calls or shapes")])
def test_what_is_no_log_is_refused(log, why):
    with pytest.raises(finegemm.InvalidArgument, match=f"log: .*{why}"):
        finegemm.Context(log=log)
    with pytest.raises(finegemm.InvalidArgument, match=f"log: .*{why}"):
        finegemm.log(log)
    multiply()


def test_the_variable_logs_a_program_with_its_summary_at_the_end():
    program = (
        "import numpy as np, finegemm\n"
        "x = np.ones((16, 256), np.uint8), np.ones((16, 2), np.float32)\n"
        "finegemm.gemm(*x, x[0], x[1][:1], np.empty((16, 16), np.uint16))\n"
    )
    environment = os.environ | {"FINEGEMM_LOG": "calls"}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    lines = ran.stderr.splitlines()
    assert len(lines) == 3 and not ran.stdout
    assert lines[0].startswith("gemm 16x16x256 e4m3:row128 e4m3:block128 bf16  # cpu, fast, ")
    assert lines[1] == "# 1 call of 1 shape" and "1 call," in lines[2]


def test_a_log_that_cannot_be_written_is_an_error_at_its_end():
    lost = pytest.raises(finegemm.IoError, match="log: /dev/full cannot be written; some of the log is lost")
    with lost, finegemm.log("calls:/dev/full"):
        assert finegemm.gemm(*operands(8, 16, 128)).shape == (8, 16)


def test_a_child_of_fork_writes_its_lines_and_no_summary(tmp_path):
    program = (
        "import os, sys, numpy as np, finegemm\n"
        f"finegemm.log('calls:{tmp_path}/log')\n"
        "x = np.ones((16, 256), np.uint8), np.ones((16, 2), np.float32)\n"
        "call = lambda: finegemm.gemm(*x, x[0], x[1][:1], np.empty((16, 16), np.uint16))\n"
        "call()\n"
        "if os.fork() == 0:\n"
        "    call(), sys.exit()\n"
        "os.wait()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line.partition("  #")[0] for line in lines[:2]] == ["gemm 16x16x256 e4m3:row128 e4m3:block128 bf16"] * 2
    assert lines[2] == "# 1 call of 1 shape" and len(lines) == 4
