"""finegemm.k_grouped_gemm: groups with a part of K and a d each, in NumPy arrays and torch tensors."""

import numpy as np
import pytest
from support import operands, product

import finegemm

M, N, K = 33, 72, 896
OFFSETS = (128, 384, 384, 768)


def int32(*numbers):
    return np.array(numbers, np.int32)


def exact(args):
    """[G, M, N] in double precision."""
    a, sfa, b, sfb = args
    pairs = zip(OFFSETS, OFFSETS[1:])
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
    args[1][:, 0] = np.nan   # of no group
    out = finegemm.k_grouped_gemm(*args, None, int32(*OFFSETS), numerics="exact", check_values=True)
    assert out.dtype == np.float32 and out.shape == (3, M, N)
    args[1][:, 0] = 1
    np.testing.assert_allclose(out, exact(args), rtol=2.0**-23, atol=1e-12)


def test_groups_may_be_added_to():
    args = operands(M, N, K, row_b_scales=True)
    out = np.full((3, M, N), -1000, np.float32)
    again = finegemm.k_grouped_gemm(*args, out, int32(*OFFSETS), accumulate=True, numerics="exact")
    assert again is out
    np.testing.assert_allclose(out, exact(args) - 1000, rtol=2.0**-23, atol=1e-12)


def test_groups_have_the_bits_of_gemm():
    args = operands(M, N, K, row_b_scales=True)
    out = finegemm.k_grouped_gemm(*args, None, int32(*OFFSETS), numerics="hopper")
    a, sfa, b, sfb = args
    part = (np.ascontiguousarray(x) for x in (a[:, 384:768], sfa[:, 3:6], b[:, 384:768], sfb[:, 3:6]))
    want = finegemm.gemm(*part, numerics="hopper", out_dtype="float32")
    np.testing.assert_array_equal(out[2], want)


MISUSES = {
    "nothing to add to": (dict(accumulate=True), "accumulate: is set, but d is None"),
    "int64": (dict(offsets=np.arange(4)), "offsets: has dtype int64, must be int32; convert it"),
    "no numbers": (dict(offsets=int32()), "groups: is -1, must be from 1 to 1024"),
    "one number": (dict(offsets=int32(0)), "groups: is 0, must be from 1 to 1024"),
    "numbers out of order": (dict(offsets=int32(0, 256, 128), check_values=True), "offsets: [2] is 128, must be"),
    "d has too few matrices": (dict(d=np.zeros((2, M, N), np.float32)), "d: has 2 matrices, must have 3"),
    "d is a matrix": (dict(d=np.zeros((M, N), np.float32)), "d: has 2 dimensions, must have 3; reshape it"),
    "sfb of blocks": (dict(sfb=np.ones((1, 7), np.float32)), "sfb: has shape [1, 7], must be [72, 7]"),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_is_explained(name):
    changes, sentence = MISUSES[name]
    values = dict(zip(("a", "sfa", "b", "sfb"), operands(M, N, K, row_b_scales=True)))
    with pytest.raises(finegemm.InvalidArgument) as caught:
        finegemm.k_grouped_gemm(**(values | {"d": None, "offsets": int32(*OFFSETS)} | changes))
    assert sentence in str(caught.value)


def test_torch_tensors_are_read_and_made():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    args = operands(M, N, K, row_b_scales=True)
    tensors = [
        torch.from_numpy(x.view(np.uint8)).view(torch.float8_e4m3fn) if x.dtype.itemsize == 1 else torch.from_numpy(x)
        for x in args
    ]
    out = finegemm.k_grouped_gemm(*tensors, None, torch.from_numpy(int32(*OFFSETS)), numerics="exact")
    assert out.dtype == torch.float32
    np.testing.assert_allclose(out.numpy(), exact(args), rtol=2.0**-23, atol=1e-12)
