"""Batched products by their equations: against NumPy in double, and in FP8 against one product for each head."""

import numpy as np
import pytest

import finegemm
from support import operands

ml_dtypes = pytest.importorskip("ml_dtypes")
B, H, R, D = 7, 3, 144, 24
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}


def values(of, *shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(getattr(ml_dtypes, of, of))


def assert_einsum(d, equation, a, b, old=0.0):
    """Each sum within its own bound: a product is part of at most as many sums as there are products, each of which is
    off by 2^-24 of itself."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    exact, absolute = np.einsum(equation, x, y) + old, np.einsum(equation, np.abs(x), np.abs(y)) + abs(old)
    count = a.shape[0] * a.shape[2] if equation.endswith("->mn") else a.shape[2]
    bound = absolute * np.expm1((count + 1) * np.log1p(2.0**-24))
    bound += (np.abs(exact) + bound) * ROUNDING[d.dtype.name] + 2.0**-25
    assert d.shape == exact.shape
    np.testing.assert_array_less(np.abs(d.astype(np.float64) - exact), bound)


@pytest.mark.parametrize("of", ("bfloat16", "float16"))
@pytest.mark.parametrize("out_dtype", (None, "float32"))
@pytest.mark.parametrize("slices", (False, True))
def test_each_head_has_its_product(of, out_dtype, slices):
    a, b = values(of, B, H, R), values(of, H, D, R + 128 * slices, seed=2)[..., :R]
    d = finegemm.einsum("bhr,hdr->bhd", a, b, out_dtype=out_dtype)
    assert d.dtype.name == (out_dtype or of)
    assert_einsum(d, "bhr,hdr->bhd", a, b)
    heads_first = np.ascontiguousarray(a.transpose(1, 0, 2)).transpose(1, 0, 2)
    whole = np.zeros((B, H, D + 8), d.dtype)
    assert finegemm.einsum("bhr,hdr->bhd", heads_first, b, whole[..., :D]) is not None
    np.testing.assert_array_equal(whole[..., :D], d)
    assert not whole[..., D:].any()


@pytest.mark.parametrize("of", ("bfloat16", "float16"))
@pytest.mark.parametrize("out_dtype", (None, "float32"))
def test_weights_may_be_summed_over_their_rows(of, out_dtype):
    a, b = values(of, B, H, R), values(of, H, R, D + 128, seed=2)[..., :D]
    d = finegemm.einsum("bhd,hdr->bhr", a, b, out_dtype=out_dtype)
    assert_einsum(d, "bhd,hdr->bhr", a, b)
    transposed = np.ascontiguousarray(b.transpose(0, 2, 1))
    np.testing.assert_array_equal(d, finegemm.einsum("bhr,hdr->bhd", a, transposed, out_dtype=out_dtype))


def test_codes_are_multiplied_by_their_scales():
    a, sfa, _, _ = operands(B * H, D, R)
    each = [operands(8, D, R, seed=seed)[2:] for seed in range(H)]
    b, sfb = (np.stack(x) for x in zip(*each, strict=True))
    a, sfa = a.reshape(B, H, R), sfa.reshape(B, H, -1)
    d = finegemm.einsum("bhr,hdr->bhd", a, b, sfa=sfa, sfb=sfb)
    for head in range(H):
        rows = (np.ascontiguousarray(x[:, head]) for x in (a, sfa))
        np.testing.assert_array_equal(d[:, head], finegemm.gemm(*rows, b[head], sfb[head]))


def test_heads_may_have_what_groups_may_have():
    a, b = values("bfloat16", B, H, R), values("bfloat16", H, D, R, seed=2)
    c, bias = values("bfloat16", B, H, D, seed=3), np.arange(D, dtype=np.float32)
    more = {"c": c, "bias": bias, "alpha": 0.5}
    want = finegemm.grouped_gemm(a, None, b, None, heads=True, **more)
    np.testing.assert_array_equal(finegemm.einsum("bhr,hdr->bhd", a, b, **more), want)
    transposed = np.ascontiguousarray(b.transpose(0, 2, 1))
    np.testing.assert_array_equal(finegemm.einsum("bhd,hdr->bhr", a, transposed, **more), want)


@pytest.mark.parametrize("of", ("bfloat16", "float16"))
@pytest.mark.parametrize("numerics", ("fast", "exact", "hopper"))
def test_products_are_summed(of, numerics):
    a, b = values(of, 19, 5, R), values(of, 19, D, R, seed=2)
    equation = "bmk,bnk->mn"
    d = finegemm.einsum(equation, a, b, numerics=numerics)
    assert d.dtype.name == of
    assert_einsum(d, equation, a, b)
    sums = np.full((5, D), 3, np.float32)
    finegemm.einsum(equation, a, b, sums, numerics=numerics, accumulate=True)
    assert_einsum(sums, equation, a, b, 3.0)


@pytest.mark.parametrize(
    "equation, keywords, sentence",
    (
        ("bhr,hdr", {}, r"^equation: is 'bhr,hdr', must be 'bhr,hdr->bhd', 'bhd,hdr->bhr' or 'bmk,bnk->mn', with"),
        ("bmk,bnk->mn", {"accumulate": True}, "^accumulate: is set, but d is None"),
        ("bmk,bnk->mn", {}, "^b: has b = 3, but a has b = 7 in 'bmk,bnk->mn'; a letter has one extent"),
        ("bhr,hdr->bhd", {"accumulate": True, "d": np.zeros((B, H, D), np.float32)}, "^accumulate: is set, but d of g"),
        ("bhr,hdr->bhd", {"out_dtype": "float32", "d": np.zeros((B, H, D), np.float16)}, "^out_dtype: is 'float32', m"),
    ),
)
def test_what_is_wrong_is_named(equation, keywords, sentence):
    a, b = values("bfloat16", B, H, R), values("bfloat16", H, D, R, seed=2)
    with pytest.raises(finegemm.InvalidArgument, match=sentence):
        finegemm.einsum(equation, a, b, **keywords)


def test_explain_says_which_kernel_a_sum_takes():
    chosen = finegemm.explain(128, 384, 129 * 128, "h200", dtype="bfloat16", out_dtype="float32", summed=129)["chosen"]
    assert chosen["name"].endswith("_summed")
    assert chosen["ctas"] <= 132
