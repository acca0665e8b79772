"""Products of bf16 without scales: every grouping, against NumPy in double."""

import numpy as np
import pytest

import finegemm

ml_dtypes = pytest.importorskip("ml_dtypes")
BF16 = ml_dtypes.bfloat16
M, N, K = 33, 24, 256


def values(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(BF16)


def assert_near(d, exact, k):
    rounding = 2.0**-8 if d.dtype == BF16 else 2.0**-23
    bound = np.abs(exact) * rounding + k * 2.0**-24 * 8 * np.sqrt(k)
    assert (np.abs(d.astype(np.float64) - exact) <= bound).all()


@pytest.mark.parametrize("out_dtype", ["bfloat16", "float32"])
def test_one_product(out_dtype):
    a, b = values(M, K), values(N, K, seed=2)
    d = finegemm.gemm(a, None, b, None, out_dtype=out_dtype)
    assert d.dtype == (BF16 if out_dtype == "bfloat16" else np.float32)
    assert_near(d, a.astype(np.float64) @ b.astype(np.float64).T, K)


def test_groups_of_rows():
    a, b = values(M, K), values(2, N, K, seed=2)
    d = finegemm.grouped_gemm(a, None, b, None, offsets=np.array([0, 10, M], np.int32))
    for rows, matrix in ((slice(0, 10), b[0]), (slice(10, M), b[1])):
        assert_near(d[rows], a[rows].astype(np.float64) @ matrix.astype(np.float64).T, K)


def test_groups_of_k():
    a, b = values(M, K), values(N, K, seed=2)
    d = finegemm.k_grouped_gemm(a, None, b, None, sizes=[128, 128])
    for g in range(2):
        part = slice(128 * g, 128 * g + 128)
        assert_near(d[g], a[:, part].astype(np.float64) @ b[:, part].astype(np.float64).T, 128)


def test_explain_names_a_kernel_of_bf16():
    plan = finegemm.explain(4096, 4096, 7168, device="h200", dtype="bfloat16")
    assert plan["chosen"]["name"].endswith("_bf16")
    assert plan["line"] == "gemm 4096x4096x7168 bf16 bf16 bf16"


def test_scales_are_refused():
    a, b = values(M, K), values(N, K, seed=2)
    with pytest.raises(finegemm.InvalidArgument, match=r"sfa: has shape .*, but a is of bf16, which has no scales"):
        finegemm.gemm(a, np.ones((M, 2), np.float32), b, None)
