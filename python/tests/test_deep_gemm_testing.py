"""finegemm.deep_gemm.testing: what tests and benchmarks of callers use."""

import os
import subprocess
import sys

import pytest

from finegemm.deep_gemm import testing
from finegemm.deep_gemm.testing.bench import bench_kineto, time_in

TABLE = """
Name                 CUDA total   CUDA time avg   # of Calls
void copy()          10.000us     5.000us         2
fp8_gemm_nt()        40.000us     20.000us        2
fp8_gemm_nn()        9.000ms      3.000ms         3
""".splitlines()


def test_the_time_of_a_kernel_is_the_mean_over_its_launches():
    assert time_in(TABLE, "gemm_nt") == pytest.approx(20e-6)
    assert time_in(TABLE, "gemm_nn") == pytest.approx(3e-3)
    assert time_in(TABLE, "gemm_", several=True) == pytest.approx((2 * 20e-6 + 3 * 3e-3) / 5)
    assert time_in(TABLE, "logits") == 0
    with pytest.raises(AssertionError, match="kernel_names: 2 kernels have 'gemm_' in their names; name one"):
        time_in(TABLE, "gemm_")


def test_other_profilers_get_no_profile_of_ours(monkeypatch):
    monkeypatch.setenv("DG_USE_NVIDIA_TOOLS", "1")
    calls = []
    assert bench_kineto(lambda: calls.append(1), "gemm_") == 1
    assert bench_kineto(lambda: calls.append(1), ("gemm_", "copy")) == (1, 1)
    assert calls == []
    with pytest.raises(AssertionError, match="kernel_names: is <class 'list'>, must be a str or a tuple"):
        bench_kineto(lambda: None, ["gemm_"])


def test_what_is_printed_under_suppression_is_dropped():
    code = """
import os
from finegemm.deep_gemm.testing import empty_suppress, suppress_stdout_stderr
with suppress_stdout_stderr():
    print("python")
    os.write(1, b"library")
    os.write(2, b"library")
with empty_suppress():
    print("kept", flush=True)
os.write(2, b"kept too")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("kept\n", "kept too")


def test_a_filter_says_which_function_it_left_out(capsys):
    @testing.test_filter(lambda: runs)
    def product(x):
        return x + 1

    runs = False
    assert product(1) is None and product.__name__ == "product"
    assert capsys.readouterr().out.startswith("product:\n > Filtered by")
    runs = True
    assert product(1) == 2


def test_a_variable_is_away_during_the_call(monkeypatch):
    monkeypatch.setenv("SOME_VARIABLE", "1")

    @testing.ignore_env("SOME_VARIABLE", lambda: away)
    def value():
        return os.environ.get("SOME_VARIABLE")

    away = True
    assert value() is None and os.environ["SOME_VARIABLE"] == "1"
    away = False
    assert value() == "1"


def test_tensors_are_compared_by_their_bytes():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.arange(12.0).view(3, 4)
    testing.assert_bitwise_equal(x, x.clone())
    testing.assert_bitwise_equal(x * float("nan"), x * float("nan"))
    other = x.clone()
    other[1, 2] = 7
    with pytest.raises(
        AssertionError, match=r"^half: 1 bytes differ, first byte 26, of element 6 at \[1, 2\]: 6.0 and"
    ):
        testing.assert_bitwise_equal(x, other, "half")
    for wrong, sentence in (
        (x.int(), "dtypes torch.float32 and torch.int32"),
        (x.t(), r"shapes \[3, 4\] and \[4, 3\]"),
    ):
        with pytest.raises(AssertionError, match=sentence):
            testing.assert_bitwise_equal(x, wrong)


def test_the_difference_of_tensors_and_their_bytes():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.tensor([3.0, 4.0])
    assert testing.calc_diff(x, x) == 0 and testing.calc_diff(x * 0, x * 0) == 0.0
    assert float(testing.calc_diff(x, 2 * x)) == pytest.approx(1 - 2 * 50 / (25 + 100))
    assert not testing.calc_diff(x, x * float("nan")) < 1
    assert testing.count_bytes(x, None, [x.bfloat16(), (x.double(), None)]) == 8 + 4 + 16
