"""finegemm.prenorm_gemm on NumPy arrays: shapes, slices, parts of arrays and what is refused."""

import numpy as np
import pytest

import finegemm
from support import BF16

RANDOM = np.random.default_rng(40)


def problem(m=13, n=24, k=640):
    return (RANDOM.standard_normal(shape).astype(dtype) for shape, dtype in (((m, k), BF16), ((n, k), np.float32)))


def tf32(x):
    """Rounded to 11 significant bits, ties to even."""
    bits = x.view(np.uint32)
    return ((bits + 0xFFF + (bits >> 13 & 1)) & np.uint32(0xFFFFE000)).view(np.float32)


def check(a, b, d, sqrsum):
    """Within the bounds of docs/prenorm.md."""
    k, x, y = a.shape[1], a.astype(np.float64), tf32(b).astype(np.float64)
    bound = np.abs(x) @ np.abs(y).T * (min(k, 512) + k // 128 + 12) * 2.0**-24
    assert np.all(np.abs(d.astype(np.float64) - x @ y.T) <= bound)
    squares = (x * x).sum(1)
    assert np.all(np.abs(sqrsum.astype(np.float64) - squares) <= squares * (k // 4 + 12) * 2.0**-24)


@pytest.mark.parametrize("n", (8, 16, 24, 32))
def test_results_are_the_product_and_the_sums_of_squares(n):
    a, b = problem(n=n)
    d, sqrsum = finegemm.prenorm_gemm(a, b)
    assert d.dtype == sqrsum.dtype == np.float32
    assert d.shape == (13, n) and sqrsum.shape == (13,)
    check(a, b, d, sqrsum)


@pytest.mark.parametrize("splits", (1, 16))
def test_slices_add_up_to_the_results(splits):
    a, b = problem()
    d, sqrsum = finegemm.prenorm_gemm(a, b, num_splits=splits)
    assert d.shape == (splits, 13, 24) and sqrsum.shape == (splits, 13)
    check(a, b, d.sum(0), sqrsum.sum(0))


def test_outputs_are_written_whatever_they_held():
    a, b = problem()
    d, sqrsum = np.full((4, 13, 24), np.nan, np.float32), np.full((4, 13), np.nan, np.float32)
    given = finegemm.prenorm_gemm(a, b, d, sqrsum)
    assert given[0] is d and given[1] is sqrsum
    check(a, b, d.sum(0), sqrsum.sum(0))
    alone, squares = finegemm.prenorm_gemm(a, b, d[2])
    assert alone.base is d and squares.shape == (13,)
    check(a, b, d[2], squares)


def test_parts_of_arrays_and_bits_are_taken():
    a, b = problem(k=1280)
    wide = finegemm.prenorm_gemm(a[::2, 64:704], b[:, 64:704])
    tight = finegemm.prenorm_gemm(a[::2, 64:704].copy().view(np.uint16), b[:, 64:704].copy())
    for x, y in zip(wide, tight, strict=True):
        np.testing.assert_array_equal(x, y)
    rows = np.full((13, 40), 7, np.float32)
    finegemm.prenorm_gemm(a, b, rows[:, 4:28])
    check(a, b, rows[:, 4:28], (a.astype(np.float32) ** 2).sum(1))
    assert np.all(rows[:, :4] == 7) and np.all(rows[:, 28:] == 7)


def test_no_rows_have_results_without_elements():
    a, b = problem(m=0)
    d, sqrsum = finegemm.prenorm_gemm(a, b, num_splits=3)
    assert d.shape == (3, 0, 24) and sqrsum.shape == (3, 0)


def test_what_does_not_fit_is_refused():
    a, b = problem()
    d, sqrsum = np.zeros((3, 13, 24), np.float32), np.zeros((1, 13), np.float32)
    cases = (
        ("num_splits: is 0, must be at least 1", {"num_splits": 0}),
        ("num_splits: is 2, but d has 3 slices", {"d": d, "num_splits": 2}),
        ("num_splits: is 1, but d has two dimensions", {"d": d[0], "num_splits": 1}),
        ("sqrsum: has shape [1, 13], must be [3, 13]", {"d": d, "sqrsum": sqrsum}),
        ("sqrsum: has 2 dimensions, must have 1", {"d": d[0], "sqrsum": sqrsum}),
        ("d: has shape [13, 16], must be [13, 24]", {"d": d[0, :, :16]}),
        ("d: has S = 1025 slices", {"num_splits": 1025}),
    )
    for sentence, keywords in cases:
        with pytest.raises(finegemm.InvalidArgument) as error:
            finegemm.prenorm_gemm(a, b, **keywords)
        assert str(error.value).startswith(sentence), error.value
    with pytest.raises(finegemm.InvalidArgument, match=r"^a: has dtype f32, must be bf16"):
        finegemm.prenorm_gemm(a.astype(np.float32), b)
    with pytest.raises(TypeError, match="splits"):
        finegemm.prenorm_gemm(a, b, splits=4)


def test_the_log_has_its_line():
    lines = []
    a, b = problem()
    finegemm.prenorm_gemm(a, b, num_splits=4, context=finegemm.Context(log=lambda call: lines.append(call.line)))
    assert lines == ["prenorm_gemm 13x24x640 slices=4"]


def test_explain_names_the_kernel_and_says_how_k_is_cut():
    told = finegemm.explain_prenorm(137, 24, 7168, num_splits=16, num_sms=100, device="h200")
    assert told["kernel"].startswith("FineGEMM_prenorm_") and "x24_" in told["kernel"]
    assert told["config"]["slices"] <= 16 and told["config"]["ctas"] <= 100
    assert told["plans"][0]["us"] == told["us"] and len(told["why"]) == 3
    with pytest.raises(finegemm.InvalidArgument, match=r"^b: has N = 12 rows"):
        finegemm.explain_prenorm(137, 12, 7168)
