"""finegemm.k_grouped_gemm: groups with a part of K and a d each, in NumPy arrays and torch tensors."""

import itertools

import numpy as np
import pytest

import finegemm
from support import operands, product

M, N, K = 33, 72, 896
OFFSETS = (128, 384, 384, 768)


def int32(*numbers):
    return np.array(numbers, np.int32)


def exact(args):
    """[G, M, N] in double precision."""
    a, sfa, b, sfb = args
    pairs = itertools.pairwise(OFFSETS)
    return np.stack(
        [
            product(a[:, i:j], sfa[:, i // 128 : j // 128], b[:, i:j], sfb[:, i // 128 : j // 128])
            if j > i
            else np.zeros((M, N))
            for i, j in pairs
        ]
    )


def test_each_group_has_its_part_of_k():
    args = operands(M, N, K, row_b_scales=True)
    args[1][:, 0] = np.nan  # of no group
    out = finegemm.k_grouped_gemm(*args, None, offsets=int32(*OFFSETS), numerics="exact", check_values=True)
    assert out.dtype == np.float32 and out.shape == (3, M, N)
    args[1][:, 0] = 1
    np.testing.assert_allclose(out, exact(args), rtol=2.0**-23, atol=1e-12)


def test_groups_may_be_added_to():
    args = operands(M, N, K, row_b_scales=True)
    out = np.full((3, M, N), -1000, np.float32)
    again = finegemm.k_grouped_gemm(*args, out, offsets=int32(*OFFSETS), accumulate=True, numerics="exact")
    assert again is out
    np.testing.assert_allclose(out, exact(args) - 1000, rtol=2.0**-23, atol=1e-12)


def test_groups_have_the_bits_of_gemm():
    args = operands(M, N, K, row_b_scales=True)
    out = finegemm.k_grouped_gemm(*args, None, offsets=int32(*OFFSETS), numerics="hopper")
    a, sfa, b, sfb = args
    part = (np.ascontiguousarray(x) for x in (a[:, 384:768], sfa[:, 3:6], b[:, 384:768], sfb[:, 3:6]))
    want = finegemm.gemm(*part, numerics="hopper", out_dtype="float32")
    np.testing.assert_array_equal(out[2], want)


def blocks(x):
    """Columns of groups as blocks one behind the other, what is of no group too."""
    ends = (0, *OFFSETS, K)
    return np.concatenate([x[:, i:j].reshape(-1) for i, j in itertools.pairwise(ends)])


@pytest.mark.parametrize("numerics", ["fast", "exact", "hopper"])
def test_blocks_have_the_bits_of_columns(numerics):
    a, sfa, b, sfb = operands(M, N, K, row_b_scales=True)
    want = finegemm.k_grouped_gemm(a, sfa, b, sfb, None, offsets=int32(*OFFSETS), numerics=numerics)
    out = finegemm.k_grouped_gemm(blocks(a), sfa, blocks(b), sfb, None, offsets=int32(*OFFSETS), numerics=numerics)
    np.testing.assert_array_equal(out, want)


def test_offsets_may_be_a_list_of_ints():
    args = operands(M, N, K, row_b_scales=True)
    want = finegemm.k_grouped_gemm(*args, None, offsets=int32(*OFFSETS))
    for offsets in (list(OFFSETS), OFFSETS, list(int32(*OFFSETS))):
        np.testing.assert_array_equal(finegemm.k_grouped_gemm(*args, None, offsets=offsets), want)


def test_sizes_say_what_offsets_say():
    args = operands(M, N, K, row_b_scales=True)
    want = finegemm.k_grouped_gemm(*args, offsets=int32(0, 256, 256, 896))
    for sizes in ([256, 0, 640], (256, 0, 640), int32(256, 0, 640)):
        np.testing.assert_array_equal(finegemm.k_grouped_gemm(*args, sizes=sizes), want)


def test_a_list_without_a_name_is_refused():
    with pytest.raises(TypeError, match="positional"):
        finegemm.k_grouped_gemm(*operands(M, N, 512, row_b_scales=True), None, [256, 256])


def test_d_is_made_where_it_is_left_out():
    args = operands(M, N, K, row_b_scales=True)
    want = finegemm.k_grouped_gemm(*args, None, offsets=int32(*OFFSETS))
    np.testing.assert_array_equal(finegemm.k_grouped_gemm(*args, offsets=int32(*OFFSETS)), want)


def test_explain_knows_groups_of_k():
    plan = finegemm.explain(4096, 7168, 32768, device="h200", k_groups=8)
    assert plan["problem"]["k_groups"] == 8
    assert plan["chosen"]["name"].endswith("_kgrouped")
    short = {"device": "h200", "k_groups": 8}
    overwriting = finegemm.explain(4096, 7168, 8 * 512, **short)["chosen"]["name"]
    adding = finegemm.explain(4096, 7168, 8 * 512, accumulate=True, **short)
    assert adding["problem"]["accumulate"] and adding["chosen"]["name"] != overwriting, "the old D is loaded"
    with pytest.raises(finegemm.InvalidArgument, match="k_groups: is 8, does not belong to groups of rows"):
        finegemm.explain(4096, 7168, 32768, device="h200", groups=8, k_groups=8)
    with pytest.raises(finegemm.InvalidArgument, match="k_groups: is 0, must be from 1 to 65535"):
        finegemm.explain(4096, 7168, 32768, device="h200", k_groups=0)


MISUSES = {
    "nothing to add to": (dict(accumulate=True), "accumulate: is set, but d is None"),
    "int64": (dict(offsets=np.arange(4)), "offsets: has dtype int64, must be int32; convert it"),
    "no offsets": (dict(offsets=None), "offsets, sizes: none of them is given, must be one, which says which k each"),
    "offsets and sizes": (dict(sizes=[128, 768]), "offsets, sizes: both are given, must be one"),
    "sizes of less than K": (dict(offsets=None, sizes=[128, 640]), "sizes: add up to 768, must add up to K = 896"),
    "sizes within a block": (dict(offsets=None, sizes=[200, 696]), "sizes: [0] is 200, must be a multiple of 128"),
    "no sizes": (dict(offsets=None, sizes=[]), "sizes: add up to 0, must add up to K = 896"),
    "no numbers": (dict(offsets=int32()), "offsets: has length 0, must have at least 2: the begin of each group"),
    "an empty list": (dict(offsets=[]), "offsets: has length 0, must have at least 2: the begin of each group"),
    "one number": (dict(offsets=int32(0)), "offsets: has length 1, must have at least 2: the begin of each group"),
    "numbers out of order": (dict(offsets=int32(0, 256, 128)), "offsets: [2] is 128, must be"),
    "list of too large numbers": (dict(offsets=[0, 2**40]), "offsets: 1099511627776 is given, must fit into 32 bits"),
    "no list of ints": (dict(offsets=[0, "128"]), "offsets: must be an int, not of <class 'str'>"),
    "a is blocks and b is not": (dict(a=np.zeros(M * K, np.uint8)), "b: must have as many dimensions as a"),
    "blocks of another size": (
        dict(a=np.zeros(M * K - 128, np.uint8), b=np.zeros(N * K, np.uint8)),
        "a: has 29440 elements in one dimension, must have 33 * 896: rows of sfa, and 128 for each of its columns",
    ),
    "d has too few matrices": (dict(d=np.zeros((2, M, N), np.float32)), "d: has 2 matrices, must have 3"),
    "d is a matrix": (dict(d=np.zeros((M, N), np.float32)), "d: has 2 dimensions, must have 3; reshape it"),
    "sfb of blocks": (dict(sfb=np.ones((1, 7), np.float32)), "sfb: has shape [1, 7], must be [72, 7]"),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_is_explained(name):
    changes, sentence = MISUSES[name]
    values = dict(zip(("a", "sfa", "b", "sfb"), operands(M, N, K, row_b_scales=True), strict=True))
    with pytest.raises((finegemm.InvalidArgument, TypeError)) as caught:
        finegemm.k_grouped_gemm(**(values | {"d": None, "offsets": int32(*OFFSETS)} | changes))
    assert sentence in str(caught.value)


def test_torch_tensors_are_read_and_made():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    args = operands(M, N, K, row_b_scales=True)
    tensors = [
        torch.from_numpy(x.view(np.uint8)).view(torch.float8_e4m3fn) if x.dtype.itemsize == 1 else torch.from_numpy(x)
        for x in args
    ]
    out = finegemm.k_grouped_gemm(*tensors, None, offsets=torch.from_numpy(int32(*OFFSETS)), numerics="exact")
    assert out.dtype == torch.float32
    np.testing.assert_allclose(out.numpy(), exact(args), rtol=2.0**-23, atol=1e-12)
