"""Integers of eight bits: what quantisation makes of floats, and products of them in every form."""

import numpy as np
import pytest

import finegemm

RANDOM = np.random.default_rng(7)


def expanded(scales, rows, k, height=1):
    """One for each element; scales of one column serve all of K."""
    wide = np.repeat(scales, 128 if scales.shape[1] > 1 else k, axis=1)[:, :k]
    return np.repeat(wide, height, axis=0)[:rows]


def product(a, sfa, b, sfb):
    k, height = a.shape[1], 1 if sfb.shape[0] == b.shape[0] else 128
    left = a.astype(np.float64) * expanded(sfa, a.shape[0], k)
    return left @ (b * expanded(sfb, b.shape[0], k, height).astype(np.float64)).T


def agrees(d, want):
    return np.abs(np.asarray(d, np.float64) - want).max() <= 2**-8 * np.abs(want).max()


def codes(*shape):
    """Any, the least one among them, which quantisation does not make."""
    return RANDOM.integers(-128, 128, shape, np.int8)


def scales(*shape):
    return RANDOM.uniform(0.001, 0.01, shape).astype(np.float32)


def test_quantisation_is_symmetric():
    x = RANDOM.standard_normal((130, 272)).astype(np.float32)
    for quantize, height in ((finegemm.quantize_rows, 1), (finegemm.quantize_blocks, 128)):
        q, s = quantize(x, dtype="int8")
        assert q.dtype == np.int8 and q.min() >= -127 and np.abs(q).max() == 127
        assert np.abs(q * expanded(s, *x.shape, height) - x).max() <= s.max() * 0.5001
        given = np.empty_like(q)
        assert (quantize(x, given)[0] == q).all(), "the type of q says it, too"
    assert (finegemm.quantize_rows(np.full((1, 128), np.nan, np.float32), dtype="int8")[0] == 0).all()
    wide = np.empty((16, 272), np.int8)
    assert (finegemm.quantize_weights(x[:16], wide)[2] == wide.T).all()


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
def test_a_row_may_have_one_scale(dtype):
    x = RANDOM.standard_normal((33, 1040)).astype(np.float32)
    q, s = finegemm.quantize_rows(x, dtype=dtype, whole_rows=True)
    most = {"int8": 127, "float8_e4m3fn": 448}[dtype]
    assert s.shape == (33, 1) and (s[:, 0] == np.abs(x).max(1) / np.float32(most)).all()
    given = np.empty((33, 2), np.float32)[:, :1]
    again = finegemm.quantize_rows(x, np.empty_like(q), given)[0]
    assert (given == s).all() and (again.view(np.uint8) == q.view(np.uint8)).all(), "the shape of scales says it, too"
    if dtype == "int8":
        assert np.abs(q * s - x).max() <= s.max() * 0.5001 and q.min() >= -127
        w, of_w = finegemm.quantize_rows(x, dtype=dtype, whole_rows=True, power_of_two_scales=True)
        assert (np.log2(of_w) % 1 == 0).all()
        assert agrees(finegemm.gemm(q[:32], s[:32], w[:32], of_w[:32]), product(q[:32], s[:32], w[:32], of_w[:32]))


@pytest.mark.parametrize("of_a, of_b", [((33, 3), (2, 3)), ((33, 3), (136, 3)), ((33, 1), (136, 1)), ((33, 3), (1, 1))])
def test_each_kind_of_scales_multiplies(of_a, of_b):
    a, b, sfa, sfb = codes(33, 272), codes(136, 272), scales(*of_a), scales(*of_b)
    want = product(a, sfa, b, np.repeat(sfb, 136, 0) if of_b == (1, 1) else sfb)
    for numerics in ("fast", "exact", "hopper"):
        assert agrees(finegemm.gemm(a, sfa, b, sfb, numerics=numerics), want), numerics


@pytest.mark.parametrize("columns", [3, 1])
def test_groups_of_rows_multiply_in_every_form(columns):
    b, sfb = codes(2, 24, 272), scales(2, 24 if columns == 1 else 1, columns)
    a, sfa = codes(128, 272), scales(128, columns)
    sizes = (60, 30)
    forms = {
        "offsets": {"offsets": np.array((0, 60, 90), np.int32)},
        "indices": {"m_indices": np.repeat(np.array((0, -1, 1, -1), np.int32), (60, 4, 30, 34)), "alignment": 64},
        "prefix_sums": {"prefix_sums": np.array((60, 94), np.int32), "alignment": 64},
    }
    for form, groups in forms.items():
        begins = (0, 60 if form == "offsets" else 64)
        d = finegemm.grouped_gemm(a, sfa, b, sfb, **groups)
        for g, begin in enumerate(begins):
            rows = slice(begin, begin + sizes[g])
            assert agrees(d[rows], product(a[rows], sfa[rows], b[g], sfb[g])), form
    masked = finegemm.grouped_gemm(
        a.reshape(2, 64, 272), sfa.reshape(2, 64, columns), b, sfb, masked_m=np.array(sizes, np.int32)
    )
    for g in range(2):
        rows = slice(64 * g, 64 * g + sizes[g])
        assert agrees(masked[g, : sizes[g]], product(a[rows], sfa[rows], b[g], sfb[g]))


def test_what_there_is_not_is_said():
    a, b, sfa, sfb = codes(16, 128), codes(16, 128), scales(16, 1), scales(1, 1)
    fp8 = finegemm.quantize_rows(np.ones((16, 128), np.float32))[0]
    with pytest.raises(finegemm.InvalidArgument, match=r"^a: is multiplied in i8 by e4m3, of which there is no kernel"):
        finegemm.gemm(a, sfa, fp8, sfb)
    with pytest.raises(finegemm.InvalidArgument, match=r"^d: has dtype f32, must be bf16; pass memory"):
        finegemm.gemm(a, sfa, b, sfb, out_dtype="float32")
    with pytest.raises(finegemm.InvalidArgument, match=r"for one product, with D of bf16 and an epilogue"):
        finegemm.gemm(a, sfa, b, sfb, alpha=2.0)
    with pytest.raises(finegemm.InvalidArgument, match=r"^whole_rows: is True, but scales are given"):
        finegemm.quantize_rows(np.ones((16, 128), np.float32), a, sfa, whole_rows=True)
    with pytest.raises(finegemm.InvalidArgument, match=r"^q: has dtype i8, must be e4m3 or e5m2"):
        finegemm.quantize_columns(np.ones((16, 128), np.float32), np.empty((128, 16), np.int8))
    assert finegemm.explain(64, 256, 512, "h200", dtype="int8")["chosen"]["name"].endswith("_i8")
