"""Products of bf16 without scales: every grouping, against NumPy in double."""

import numpy as np
import pytest

import finegemm

ml_dtypes = pytest.importorskip("ml_dtypes")
BF16 = ml_dtypes.bfloat16
M, N, K = 33, 24, 256


def values(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(BF16)


def assert_product(d, a, b):
    """D is A B^T within the bound of what docs/numerics.md says of the CPU: products are added in FP32 in ascending
    order within 128 of K, and these sums in ascending order. A product of two numbers of 8 bits is exact, and so is the
    first sum; a product is then part of at most 127 sums of its block and of one for each block, and each is off by
    2^-24 of itself. Rounding to bf16 takes 2^-8 of what is rounded."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    exact, absolute = x @ y.T, np.abs(x) @ np.abs(y).T
    bound = absolute * np.expm1((127 + -(-a.shape[1] // 128)) * np.log1p(2.0**-24))
    if d.dtype == BF16:
        bound += (np.abs(exact) + bound) * 2.0**-8
    np.testing.assert_array_less(np.abs(d.astype(np.float64) - exact), bound)


@pytest.mark.parametrize("out_dtype", ["bfloat16", "float32"])
def test_one_product(out_dtype):
    a, b = values(M, K), values(N, K, seed=2)
    d = finegemm.gemm(a, None, b, None, out_dtype=out_dtype)
    assert d.dtype == (BF16 if out_dtype == "bfloat16" else np.float32)
    assert_product(d, a, b)


def test_groups_of_rows():
    a, b = values(M, K), values(2, N, K, seed=2)
    d = finegemm.grouped_gemm(a, None, b, None, offsets=np.array([0, 10, M], np.int32))
    for rows, matrix in ((slice(0, 10), b[0]), (slice(10, M), b[1])):
        assert_product(d[rows], a[rows], matrix)


def test_groups_of_k():
    a, b = values(M, K), values(N, K, seed=2)
    d = finegemm.k_grouped_gemm(a, None, b, None, sizes=[128, 128])
    for g in range(2):
        part = slice(128 * g, 128 * g + 128)
        assert_product(d[g], a[:, part], b[:, part])


def test_explain_names_a_kernel_of_bf16():
    plan = finegemm.explain(4096, 4096, 7168, device="h200", dtype="bfloat16")
    assert plan["chosen"]["name"].endswith("_bf16")
    assert plan["line"] == "gemm 4096x4096x7168 bf16 bf16 bf16"


def test_scales_are_refused():
    a, b = values(M, K), values(N, K, seed=2)
    with pytest.raises(finegemm.InvalidArgument, match=r"sfa: has shape .*, but a is of bf16, which has no scales"):
        finegemm.gemm(a, np.ones((M, 2), np.float32), b, None)
