"""Products without scales, of each type: every grouping, against NumPy in double."""

import itertools

import numpy as np
import pytest

import finegemm

ml_dtypes = pytest.importorskip("ml_dtypes")
TYPES = {"bfloat16": "bf16", "float16": "f16"}  # of A and B, as arrays and lines of text call them
ROUNDING = {"bfloat16": (2.0**-8, 2.0**-134), "float16": (2.0**-11, 2.0**-25), "float32": (0, 0)}  # of a sum
M, N, K = 33, 24, 256


@pytest.fixture(params=TYPES)
def of(request):
    return request.param


def values(of, *shape, seed=1):
    dtype = getattr(ml_dtypes, of, of)
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def assert_product(d, a, b):
    """D is A B^T within the bound of what docs/numerics.md says of the CPU: products are added in FP32 in ascending
    order within 128 of K, and these sums in ascending order. A product of two numbers of at most 11 bits is exact, and
    so is the first sum; a product is then part of at most 127 sums of its block and of one for each block, and each is
    off by 2^-24 of itself. Rounding to the type of D comes on top."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    exact, absolute = x @ y.T, np.abs(x) @ np.abs(y).T
    bound = absolute * np.expm1((127 + -(-a.shape[1] // 128)) * np.log1p(2.0**-24))
    relative, smallest = ROUNDING[d.dtype.name]
    bound += (np.abs(exact) + bound) * relative + smallest
    np.testing.assert_array_less(np.abs(d.astype(np.float64) - exact), bound)


@pytest.mark.parametrize("out_dtype", [None, "float32"])
def test_one_product(of, out_dtype):
    a, b = values(of, M, K), values(of, N, K, seed=2)
    d = finegemm.gemm(a, None, b, None, out_dtype=out_dtype)
    assert d.dtype.name == (out_dtype or of)
    assert_product(d, a, b)


def test_groups_of_rows(of):
    a, b = values(of, M, K), values(of, 2, N, K, seed=2)
    d = finegemm.grouped_gemm(a, None, b, None, offsets=np.array([0, 10, M], np.int32))
    assert d.dtype.name == of
    for rows, matrix in ((slice(0, 10), b[0]), (slice(10, M), b[1])):
        assert_product(d[rows], a[rows], matrix)


def blocks(x, sizes):
    """The columns of groups as matrices of their own, one behind the other."""
    ends = np.cumsum([0, *sizes])
    return np.concatenate([x[:, begin:end].ravel() for begin, end in itertools.pairwise(ends)])


def test_groups_of_k(of):
    a, b = values(of, M, K), values(of, N, K, seed=2)
    d = finegemm.k_grouped_gemm(a, None, b, None, sizes=[128, 0, 128])
    for g, part in ((0, slice(0, 128)), (2, slice(128, 256))):
        assert_product(d[g], a[:, part], b[:, part])
    assert not d[1].any()


@pytest.mark.parametrize("told", [{"sizes": [128, 0, 256]}, {"offsets": np.array([0, 128, 128, 384], np.int32)}])
def test_groups_of_k_as_blocks_need_no_scales(of, told):
    sizes = [128, 0, 256]
    a, b = values(of, M, 384), values(of, N, 384, seed=2)
    columns = finegemm.k_grouped_gemm(a, None, b, None, sizes=sizes)
    np.testing.assert_array_equal(
        finegemm.k_grouped_gemm(blocks(a, sizes), None, blocks(b, sizes), None, **told), columns
    )


@pytest.mark.parametrize("sizes", [[128, 128], [0, 0]])
def test_blocks_whose_rows_nothing_tells_are_refused(of, sizes):
    k = sum(sizes)
    with pytest.raises(finegemm.InvalidArgument, match=rf"a: has 300 elements .* a multiple of K, which is {k}, where"):
        finegemm.k_grouped_gemm(values(of, 300), None, values(of, 512), None, sizes=sizes)


def turned(x):
    """The same values with the next to last dimension contiguous."""
    return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)


@pytest.mark.parametrize("layout", ["nn", "tn", "tt"])
@pytest.mark.parametrize("numerics", ["fast", "exact"])
def test_every_layout_gives_the_same_bits(of, layout, numerics):
    a, b = values(of, M, K), values(of, N, K, seed=2)
    x = turned(a) if layout[0] == "t" else a
    y = turned(b) if layout[1] == "n" else b
    for out_dtype in (None, "float32"):
        options = {"out_dtype": out_dtype, "numerics": numerics}
        np.testing.assert_array_equal(
            finegemm.gemm(x, None, y, None, **options), finegemm.gemm(a, None, b, None, **options)
        )


def test_groups_take_transposes_as_they_lie(of):
    a, b, stack = values(of, M, 384), values(of, N, 384, seed=2), values(of, 2, N, 384, seed=3)
    offsets = np.array([0, 10, M], np.int32)
    np.testing.assert_array_equal(
        finegemm.grouped_gemm(a, None, turned(stack), None, offsets=offsets),
        finegemm.grouped_gemm(a, None, stack, None, offsets=offsets),
    )
    each, sizes = values(of, 2, M, 384, seed=4), np.array([M, M], np.int32)
    want = finegemm.grouped_gemm(each, None, stack, None, masked_m=sizes)
    for x, y in ((each, turned(stack)), (turned(each), stack), (turned(each), turned(stack))):
        np.testing.assert_array_equal(finegemm.grouped_gemm(x, None, y, None, masked_m=sizes), want)
    sizes = [128, 0, 256]
    np.testing.assert_array_equal(
        finegemm.k_grouped_gemm(turned(a), None, turned(b), None, sizes=sizes),
        finegemm.k_grouped_gemm(a, None, b, None, sizes=sizes),
    )


def test_heads_of_any_layout_have_gaps(of):
    a, b = values(of, M, K), values(of, N, K, seed=2)
    want = finegemm.gemm(a, None, b, None).reshape(M, -1, 24)
    for x, y in ((a, b), (a, turned(b)), (turned(a), b), (turned(a), turned(b))):
        d = finegemm.gemm(x, None, y, None, head_left=8, head_gap=8, head_right=16).reshape(M, -1, 32)
        np.testing.assert_array_equal(np.delete(d, slice(8, 16), axis=2), want)


def test_layouts_without_kernels_are_refused(of):
    a, b, stack = values(of, M, K), values(of, N, K, seed=2), values(of, 2, N, K, seed=3)
    with pytest.raises(finegemm.InvalidArgument, match=r"a: has column stride 33, must be 1 .* where groups share"):
        finegemm.grouped_gemm(turned(a), None, stack, None, offsets=np.array([0, 10, M], np.int32))
    with pytest.raises(finegemm.InvalidArgument, match="in groups of K both must have contiguous rows, or both"):
        finegemm.k_grouped_gemm(turned(a), None, b, None, sizes=[K])
    with pytest.raises(finegemm.InvalidArgument, match=r"a: has strides \[512, 2\], one of which must be 1"):
        finegemm.gemm(values(of, M, 2 * K)[:, ::2], None, b, None)


def test_explain_names_a_kernel_of_the_layout(of):
    plan = finegemm.explain(4096, 4096, 7168, device="h200", dtype=of, b_mn_major=True)
    name = TYPES[of]
    assert f"_{name}_nn" in plan["chosen"]["name"]
    assert plan["line"] == f"gemm 4096x4096x7168 {name} {name} {name} b_mn_major"


def test_explain_names_a_kernel_of_the_type(of):
    plan = finegemm.explain(4096, 4096, 7168, device="h200", dtype=of)
    name = TYPES[of]
    assert f"_{name}" in plan["chosen"]["name"]
    assert plan["line"] == f"gemm 4096x4096x7168 {name} {name} {name}"


def test_scales_are_refused(of):
    a, b = values(of, M, K), values(of, N, K, seed=2)
    with pytest.raises(
        finegemm.InvalidArgument, match=rf"sfa: has shape .*, but a is of {TYPES[of]}, which has no scales"
    ):
        finegemm.gemm(a, np.ones((M, 2), np.float32), b, None)
