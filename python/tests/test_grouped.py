"""finegemm.grouped_gemm: groups of rows with weights of their own, in NumPy arrays and torch tensors."""

import numpy as np
import pytest

import finegemm
from support import BF16, assert_rounded, operands, product

G, M, N, K = 4, 300, 72, 272
FORMS = ("offsets", "m_indices", "prefix_sums", "masked_m")


def int32(*numbers):
    return np.array(numbers, np.int32)


def case(form):
    """Operands of the form, the argument that says which rows are whose, and the group of each row; -1: none."""
    stack = [operands(M, N, K, seed=7 + g) for g in range(G)]
    b, sfb = np.stack([s[2] for s in stack]), np.stack([s[3] for s in stack])
    a, sfa, _, _ = stack[0]
    rows = np.arange(M)
    if form == "offsets":
        numbers = int32(5, 5, 130, 131, 290)
        group = np.searchsorted(numbers[1:], rows, side="right")
        group[(rows < 5) | (rows >= 290)] = -1
    elif form == "m_indices":
        group = np.repeat([2, 0, -1, 3, 3], 64)[:M]
        group[40:64] = group[270:] = -1
        numbers = group.astype(np.int32)
    elif form == "prefix_sums":
        numbers = int32(50, 64, 129, 300)
        group = np.select([rows < 50, (rows >= 64) & (rows < 129), rows >= 192], [0, 2, 3], -1)
    else:
        numbers = int32(0, 300, 1, 77)
        group = np.where(rows < numbers[:, None], np.arange(G)[:, None], -1)
        a, sfa = np.stack([s[0] for s in stack]), np.stack([s[1] for s in stack])
    return (a, sfa, b, sfb), {form: numbers, "alignment": 64}, group


def assert_right(out, args, group):
    a, sfa, b, sfb = args
    for g in range(G):
        mine = group == g
        if mine.any():
            assert_rounded(out[mine], product(a[mine], sfa[mine], b[g], sfb[g]))


@pytest.mark.parametrize("form", FORMS)
def test_each_row_is_multiplied_with_the_weights_of_its_group(form):
    args, which, group = case(form)
    out = np.full((*args[0].shape[:-1], N), 3, BF16)
    assert finegemm.grouped_gemm(*args, out, **which, numerics="exact", check_values=True) is out
    assert_right(out, args, group)
    assert np.all(out[group < 0] == (0 if form == "m_indices" else 3))


@pytest.mark.parametrize("form", FORMS)
def test_what_lies_in_other_rows_does_not_matter(form):
    args, which, group = case(form)
    want = finegemm.grouped_gemm(*args, **which)
    a, sfa, b, sfb = args
    a[group < 0], sfa[group < 0] = np.nan, np.inf
    got = finegemm.grouped_gemm(a, sfa, b, sfb, **which, check_values=True)
    assert got.dtype == BF16 and got.shape == (*a.shape[:-1], N)
    np.testing.assert_array_equal(got[group >= 0], want[group >= 0])
    assert np.all(np.isfinite(got[group >= 0].astype(np.float32)))


def test_rows_have_the_bits_of_gemm():
    (a, sfa, b, sfb), which, group = case("offsets")
    out = finegemm.grouped_gemm(a, sfa, b, sfb, **which, numerics="hopper")
    for g in range(G):
        mine = np.flatnonzero(group == g)
        want = finegemm.gemm(a[mine], sfa[mine], b[g], sfb[g], numerics="hopper", batch_invariant=True)
        np.testing.assert_array_equal(out[mine], want)


def test_stacks_may_be_part_of_larger_ones():
    (a, sfa, b, sfb), which, group = case("masked_m")
    want = finegemm.grouped_gemm(a, sfa, b, sfb, **which)
    wide_a, wide_out = np.zeros((G + 1, M + 2, K), a.dtype), np.full((M, G, N), 3, BF16)
    wide_a[1:, 2:] = a
    finegemm.grouped_gemm(wide_a[1:, 2:], sfa, np.repeat(b, 2, axis=0)[::2], sfb, wide_out.swapaxes(0, 1), **which)
    np.testing.assert_array_equal(wide_out.swapaxes(0, 1)[group >= 0], want[group >= 0])
    assert np.all(wide_out.swapaxes(0, 1)[group < 0] == 3)


def test_heads_have_all_rows_and_weights_of_their_own():
    (a, sfa, b, sfb), _, _ = case("masked_m")
    masks = {"masked_m": int32(*[M] * G)}
    want = finegemm.grouped_gemm(a, sfa, b, sfb, **masks).swapaxes(0, 1)
    a, sfa = (np.ascontiguousarray(x.swapaxes(0, 1)) for x in (a, sfa))
    np.testing.assert_array_equal(finegemm.grouped_gemm(a, sfa, b, sfb, heads=True), want)
    d, c = np.zeros((2, M, G, N + 8), BF16)[..., :N]
    c[:] = want
    finegemm.grouped_gemm(a, sfa, b, sfb, d, heads=True, c=c, check_values=True)
    np.testing.assert_allclose(d.astype(np.float32), 2 * want.astype(np.float32), rtol=2.0**-7, atol=1e-6)
    with pytest.raises(
        finegemm.InvalidArgument, match=r"^offsets, .* masked_m, heads: 2 of them are given, must be one"
    ):
        finegemm.grouped_gemm(a, sfa, b, sfb, heads=True, **masks)


def test_numbers_may_be_read_only():
    args, which, group = case("offsets")
    which["offsets"].flags.writeable = False
    assert_right(finegemm.grouped_gemm(*args, **which, numerics="exact"), args, group)


def test_without_rows_there_is_nothing_to_do():
    (a, sfa, b, sfb), _, _ = case("offsets")
    assert finegemm.grouped_gemm(a[:0], sfa[:0], b, sfb, offsets=int32(0, 0, 0, 0, 0)).shape == (0, N)
    assert finegemm.grouped_gemm(a[:0], sfa[:0], b, sfb, m_indices=int32()).shape == (0, N)


MISUSES = {
    "none of them is given": (dict(offsets=None), "0 of them are given, must be one"),
    "two are given": (dict(masked_m=int32(1, 2, 3, 4)), "2 of them are given, must be one"),
    "int64": (dict(offsets=np.arange(5)), "offsets: has dtype int64, must be int32; convert it"),
    "a list": (dict(offsets=[0, 1, 2, 3, 4]), "offsets: list cannot be passed by DLPack"),
    "a matrix": (dict(offsets=np.zeros((1, 5), np.int32)), "offsets: has 2 dimensions, must have 1; reshape it"),
    "every second number": (dict(offsets=np.zeros(10, np.int32)[::2]), "offsets: has stride 2, must be 1; make it"),
    "too few numbers": (dict(offsets=int32(0, 300)), "offsets: has 2 offsets, must have 5"),
    "numbers out of order": (dict(offsets=int32(0, 9, 8, 9, 9), check_values=True), "offsets[2] is 8, must be"),
    "an index of no group": (
        dict(offsets=None, m_indices=np.full(M, G, np.int32), check_values=True),
        "m_indices[0] is 4, must be from 0 to 3, or -1 for padding",
    ),
    "a sum that is too large": (
        dict(offsets=None, prefix_sums=int32(0, 0, 0, 301), check_values=True),
        "prefix_sums[3] is 301, must be from 0 to M = 300",
    ),
    "odd alignment": (
        dict(offsets=None, prefix_sums=int32(0, 0, 0, 0), alignment=3),
        "alignment: is 3, must be a power of two",
    ),
    "expected_m is negative": (dict(expected_m=-5), "expected_m: is -5, must not be negative"),
    "b is a matrix": (dict(b=np.zeros((N, K), np.uint8)), "b: has 2 dimensions, must have 3; reshape it"),
    "a is a stack": (dict(a=np.zeros((1, M, K), np.uint8)), "a: has 3 dimensions, must have 2; reshape it"),
    "d is a stack": (dict(d=np.zeros((1, M, N), BF16)), "d: has 3 dimensions, must have 2; reshape it"),
    "no weights": (dict(b=np.zeros((0, N, K), np.uint8)), "b: has 0 matrices, must have 1 to 4096"),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_is_explained(name):
    changes, sentence = MISUSES[name]
    values = (
        dict(zip(("a", "sfa", "b", "sfb"), case("offsets")[0], strict=True))
        | {"offsets": int32(0, 5, 9, 100, 300)}
        | changes
    )
    with pytest.raises(finegemm.InvalidArgument) as caught:
        finegemm.grouped_gemm(**values)
    assert sentence in str(caught.value)


def test_numbers_of_stacks_are_called_masked_m():
    args, _, _ = case("masked_m")
    with pytest.raises(finegemm.InvalidArgument, match=r"masked_m: has 3 masks, must have 4 \(the number of rows"):
        finegemm.grouped_gemm(*args, masked_m=int32(1, 2, 3))
    with pytest.raises(finegemm.InvalidArgument, match=r"masked_m\[1\] is -2, must be from 0 to M = 300"):
        finegemm.grouped_gemm(*args, masked_m=int32(1, -2, 3, 4), check_values=True)


def test_numbers_that_share_memory_with_d_are_named():
    args, _, _ = case("offsets")
    out = np.zeros((M, N), BF16)
    with pytest.raises(finegemm.InvalidArgument, match="d: shares 20 bytes with offsets; write to memory of its own"):
        finegemm.grouped_gemm(*args, out, offsets=out.view(np.int32).reshape(-1)[:5])


def test_explain_knows_groups():
    plan = finegemm.explain(8192, 4096, 7168, device="h200", groups=64, expected_m=40, alignment=64)
    asked = {"m": 8192, "n": 4096, "k": 7168, "groups": 64, "expected_m": 40, "alignment": 64}
    assert plan["problem"] == asked
    with pytest.raises(finegemm.InvalidArgument, match="groups: is 4097, must be from 1 to 4096"):
        finegemm.explain(8192, 4096, 7168, device="h200", groups=4097)
    with pytest.raises(finegemm.InvalidArgument, match="expected_m: is -1, must not be negative"):
        finegemm.explain(8192, 4096, 7168, device="h200", groups=64, expected_m=-1)


def to_torch(torch, x):
    if x.dtype.itemsize == 1:
        return torch.from_numpy(x.view(np.uint8)).view(torch.float8_e4m3fn)
    return torch.from_numpy(x)


@pytest.mark.parametrize("form", FORMS)
def test_torch_tensors_are_read_and_made(form):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    args, which, group = case(form)
    numbers = {form: torch.from_numpy(which[form]), "alignment": 64}
    out = finegemm.grouped_gemm(*(to_torch(torch, x) for x in args), **numbers, numerics="exact")
    assert out.dtype == torch.bfloat16
    assert_right(out.float().numpy(), args, group)
