"""D = alpha A B + beta C + bias: every grouping and type, against NumPy in double."""

import numpy as np
import pytest

import finegemm
from support import BF16, operands, product

M, N, K = 33, 24, 272
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}
TYPES = {"bfloat16": BF16, "float16": np.dtype(np.float16), "float32": np.dtype(np.float32)}


def values(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def assert_near(d, exact, name):
    limit = np.abs(exact) * ROUNDING[name] * 1.001 + 2.0**-24
    np.testing.assert_array_less(np.abs(d.astype(np.float64) - exact), limit)


@pytest.mark.parametrize("name", TYPES)
def test_everything_is_added_and_rounded_once(name):
    args, c, bias = operands(M, N, K), values(M, N).astype(TYPES[name]), values(N, seed=2)
    d = finegemm.gemm(*args, c=c, alpha=0.5, beta=-2, bias=bias, numerics="exact", out_dtype=name)
    assert d.dtype == TYPES[name]
    assert_near(d, 0.5 * product(*args) - 2 * c.astype(np.float64) + bias, name)


def test_each_may_come_alone():
    args, c, bias = operands(M, N, K), values(M, N).astype(BF16), values(N, seed=2)
    exact = product(*args)
    for given, want in (
        ({"alpha": 3}, 3 * exact),
        ({"c": c}, exact + c.astype(np.float64)),
        ({"c": c, "beta": 0}, exact),
        ({"bias": bias}, exact + bias),
        ({"alpha": 0.0}, 0 * exact),
    ):
        assert_near(finegemm.gemm(*args, numerics="exact", **given), want, "bfloat16")


def test_c_may_be_d():
    args, c = operands(M, N, K), values(M, N)
    want = finegemm.gemm(*args, c=c, out_dtype="float32")
    assert finegemm.gemm(*args, c, c=c) is c
    np.testing.assert_array_equal(c, want)


def test_a_new_d_has_the_type_of_c():
    args = operands(M, N, K)
    assert finegemm.gemm(*args, c=values(M, N)).dtype == np.float32
    assert finegemm.gemm(*args, c=values(M, N).astype(np.float16)).dtype == np.float16


def test_groups_take_their_rows_of_c():
    a, sfa, b, sfb = operands(M, N, K)
    others = operands(M, N, K, seed=8)
    c, bias = values(M, N).astype(BF16), values(N, seed=2)
    d = finegemm.grouped_gemm(
        a,
        sfa,
        np.stack([b, others[2]]),
        np.stack([sfb, others[3]]),
        offsets=np.array([0, 10, M], np.int32),
        alpha=0.5,
        c=c,
        bias=bias,
        numerics="exact",
    )
    for rows, matrix, scales in ((slice(0, 10), b, sfb), (slice(10, M), *others[2:])):
        exact = 0.5 * product(a[rows], sfa[rows], matrix, scales) + c[rows].astype(np.float64) + bias
        assert_near(d[rows], exact, "bfloat16")


def test_masked_groups_take_a_stack():
    a, sfa, b, sfb = (np.stack([x, x]) for x in operands(M, N, K))
    c = np.stack([values(M, N), values(M, N, seed=2)]).astype(BF16)
    d = np.zeros((2, M, N), BF16)
    finegemm.grouped_gemm(a, sfa, b, sfb, d, masked_m=np.array([M, 5], np.int32), c=c, numerics="exact")
    exact = product(a[0], sfa[0], b[0], sfb[0])
    assert_near(d[0], exact + c[0].astype(np.float64), "bfloat16")
    assert_near(d[1][:5], exact[:5] + c[1][:5].astype(np.float64), "bfloat16")
    assert not d[1][5:].any()


@pytest.mark.parametrize("a_order", ["C", "F"])
@pytest.mark.parametrize("b_order", ["C", "F"])
@pytest.mark.parametrize("of", ["bfloat16", "float16"])
def test_operands_without_scales(of, a_order, b_order):
    a, b, c = values(M, 256).astype(TYPES[of]), values(N, 256, seed=2).astype(TYPES[of]), values(M, N, seed=3)
    x, y = np.asarray(a, order=a_order), np.asarray(b, order=b_order)
    d = finegemm.gemm(x, None, y, None, c=c, alpha=0.5, numerics="exact", out_dtype="float32")
    assert_near(d, 0.5 * a.astype(np.float64) @ b.astype(np.float64).T + c, "float32")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"alpha": float("nan")}, r"alpha: is nan, must be finite; look at what computed it"),
        ({"beta": 2}, r"beta: is 2, but there is no c that it could multiply; pass c, or leave beta out"),
        ({"alpha": "2"}, r"alpha: must be a number, not of <class 'str'>"),
        ({"c": values(N, M)}, r"c: has dtype f32, must be bf16; .*"),
        ({"c": values(M, N).astype(np.int16)}, r"c: has dtype int16, must be bfloat16.*"),
        ({"bias": values(1, N)}, r"bias: has 2 dimensions, must have 1; reshape it"),
        ({"bias": values(N - 1)}, r"bias: has shape \[1, 23\], must be \[1, 24\], .*"),
        ({"bias": values(N).astype(BF16)}, r"bias: has dtype bf16, must be f32; convert it, which loses nothing"),
    ],
)
def test_misuse_says_what_to_do(given, sentence):
    with pytest.raises((finegemm.InvalidArgument, TypeError), match=sentence):
        finegemm.gemm(*operands(M, N, K), np.zeros((M, N), BF16), **given)


def test_explain_names_an_affine_kernel():
    plan = finegemm.explain(4096, 4096, 7168, device="h200", out_dtype="float16", affine=True)
    assert plan["chosen"]["name"].endswith("_f16_affine")
    assert plan["line"] == "gemm 4096x4096x7168 e4m3:row128 e4m3:block128 f16 affine"
