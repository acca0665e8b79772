"""finegemm.deep_gemm.utils.layout: layouts of scales, by values, shapes and strides. Skipped without torch."""

from itertools import pairwise

import numpy as np
import pytest

from finegemm import deep_gemm
from finegemm.deep_gemm import knobs
from torch_support import DEVICES, torch

pytestmark = pytest.mark.parametrize("device", DEVICES)
SHAPES = ((5, 3), (8, 4), (130, 9), (1, 1), (2, 5, 6), (3, 4, 1))


def powers_of_two(shape, device, seed=5):
    """Scales, and their biased exponents."""
    exponents = np.random.default_rng(seed).integers(1, 255, shape)
    return torch.from_numpy((exponents << 23).astype(np.int32)).view(torch.float32).to(device), exponents


def packed(exponents):
    """Four of a row in the bytes of an int32, missing ones 0."""
    fill = -exponents.shape[-1] % 4
    filled = np.pad(exponents, [(0, 0)] * (exponents.ndim - 1) + [(0, fill)])
    return filled.astype(np.uint8).view(np.int32)


def forms(x):
    """The same scales in memory of several layouts."""
    wider = torch.full((*x.shape[:-1], x.shape[-1] + 3), 7.0, device=x.device)
    wider[..., : x.shape[-1]] = x
    return {"row-major": x.contiguous(), "MN-major": x.mT.contiguous().mT, "a part": wider[..., : x.shape[-1]]}


def assert_mn_major(out, shape, values):
    stride = -(-shape[-2] // 4) * 4
    assert out.shape == shape and out.stride()[-2:] == (1, stride)
    assert len(shape) == 2 or out.stride(0) == stride * shape[-1]
    np.testing.assert_array_equal(out.cpu().numpy(), values)


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_become_contiguous_at_strides_of_16_bytes(device, shape):
    x = torch.randn(shape, device=device)
    for name, form in forms(x).items():
        out = deep_gemm.get_mn_major_tma_aligned_tensor(form)
        assert_mn_major(out, shape, x.cpu().numpy()), name
        assert deep_gemm.get_mn_major_tma_aligned_tensor(out) is out


@pytest.mark.parametrize("shape", SHAPES)
def test_exponents_are_packed_with_rows_contiguous(device, shape):
    x, exponents = powers_of_two(shape, device)
    for form in forms(x).values():
        out = deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(form)
        assert out.dtype == torch.int32
        assert_mn_major(out, (*shape[:-1], -(-shape[-1] // 4)), packed(exponents))


def test_rows_of_no_group_are_packed_as_zeros(device, monkeypatch):
    monkeypatch.setattr(knobs, "_knobs", knobs.Knobs(alignment=16))
    x, exponents = powers_of_two((50, 6), device)
    ends = torch.tensor([5, 16, 20], dtype=torch.int32, device=device)  # from 0, 16 (an empty group) and 16 on
    want = packed(exponents)
    want[[*range(5, 16), *range(20, 50)]] = 0
    x[5:16] = float("nan")
    assert_mn_major(deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(x, ends), (50, 2), want)
    with pytest.raises(RuntimeError, match=r"^sf: has shape .* must be contiguous and have two dimensions with psum_"):
        deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(x.t().contiguous().t(), psum_layout=ends)


K_GROUPS = ([256, 1024, 0, 640], [0, 0], [128] * 9, [4096])


def packed_by_group(exponents, rows):
    """Scales [k, mn], each group's packed along k."""
    begins = np.cumsum([0, *rows])
    groups = [exponents[begin:end].T for begin, end in pairwise(begins)]
    return np.concatenate([packed(np.ascontiguousarray(g)).T for g in groups])


@pytest.mark.parametrize("ks", K_GROUPS)
@pytest.mark.parametrize("gran_k", (32, 128))
@pytest.mark.parametrize("psum", (False, True))
def test_each_group_of_k_begins_a_packed_row(device, ks, gran_k, psum):
    rows = [-(-k // gran_k) for k in ks]
    x, exponents = powers_of_two((sum(rows), 12), device)
    begins = np.cumsum([0, *(-(-k // 128) * 128 for k in ks)])[:-1]
    layout = torch.tensor(ks if not psum else begins + ks, dtype=torch.int32, device=device)
    want = packed_by_group(exponents, rows)
    call = deep_gemm.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor
    out = call(x, layout, ks, gran_k, 128, psum)
    assert out.is_contiguous() and out.dtype == torch.int32
    np.testing.assert_array_equal(out.cpu().numpy(), want)
    if not psum:
        assert torch.equal(call(x, layout, ks, gran_k), out)
        return
    at_most = call(x, layout, None, gran_k, use_psum_layout=True)
    assert at_most.shape == ((sum(rows) + 3 * len(ks)) // 4, 12)
    np.testing.assert_array_equal(at_most[: len(want)].cpu().numpy(), want)


def test_misuse_of_packing_is_named(device):
    x, layout = torch.ones((4, 8), device=device), torch.tensor([128, 384], dtype=torch.int32, device=device)
    call = deep_gemm.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor
    for arguments, sentence in (
        ((x.double(), layout, [128, 384], 128), "sf: is torch.float64 of 2 dimensions, must be float32 of 2"),
        ((x[:, :7], layout, [128, 384], 128), "sf: has shape .* must be contiguous with a multiple of 4 columns"),
        ((x, layout, [128, 384], 64), "gran_k: is 64 with k_alignment 128, must be 32 or 128"),
        ((x, layout, [128, 256], 128), "sf: has 4 rows, must have 3 by ks_cpu"),
        ((x, layout, None, 128), "ks_cpu: is missing, must have the k of each group"),
        ((x, torch.ones(129, dtype=torch.int32, device=device), [], 128), "grouped_layout: has 129 numbers, must have"),
    ):
        with pytest.raises(RuntimeError, match=f"^{sentence}"):
            call(*arguments)
    for wrong in (x.double(), x[0]):
        with pytest.raises(RuntimeError, match=r"^sf: is torch.* must be float32 of 2 or 3; convert or reshape"):
            deep_gemm.get_mn_major_tma_aligned_tensor(wrong)


def test_extents_are_aligned_to_16_bytes(device):
    assert [deep_gemm.get_tma_aligned_size(5, size) for size in (1, 2, 4, 8, 16)] == [16, 8, 8, 6, 5]
    for size in (0, 3, 32):
        with pytest.raises(RuntimeError, match=f"^element_size: is {size}, must divide 16"):
            deep_gemm.get_tma_aligned_size(5, size)


def test_scales_are_brought_into_the_layout_of_products(device):
    transform = deep_gemm.transform_sf_into_required_layout
    rows, blocks, stack = (torch.randn(shape, device=device) for shape in ((130, 3), (2, 3), (4, 130, 3)))
    for out in (
        transform(rows, 130, 300, (1, 128)),
        transform(rows, 130, 300, (1, 128, 128), is_sfa=True),
        transform(rows, 130, 300, recipe=[1, 1, 128], is_sfa=False, disable_ue8m0_cast=True),
    ):
        assert_mn_major(out, (130, 3), rows.cpu().numpy())
    assert_mn_major(transform(stack, 130, 300, (1, 128), 4), (4, 130, 3), stack.cpu().numpy())
    assert transform(blocks, 130, 300, (1, 128, 128), is_sfa=False) is blocks
    turned = blocks.t().contiguous().t()
    assert transform(turned, 130, 300, (128, 128)) is turned


def test_misuse_of_layouts_is_named(device):
    transform = deep_gemm.transform_sf_into_required_layout
    rows = torch.randn((130, 3), device=device)
    for arguments, kind, sentence in (
        ((rows, 130, 96, (1, 32)), RuntimeError, r"sf: is torch.float32 with a scale for each \(1, 32\)"),
        ((rows.int(), 130, 300, (1, 128)), RuntimeError, "sf: is torch.int32 with a scale for"),
        ((rows, 131, 300, (1, 128)), RuntimeError, r"sf: has shape \[130, 3\], must be \[131, 3\]"),
        ((rows, 130, 300, (1, 128), 2), RuntimeError, r"sf: has shape \[130, 3\], must be \[2, 130, 3\]"),
        ((rows, 130, 300, (1, 128, 128)), RuntimeError, "is_sfa: is None with a recipe of 3 numbers"),
        ((rows, 130, 300, (1, 128), None, True), RuntimeError, "is_sfa: is True with a recipe of 2 numbers"),
        ((rows, 130, 300, 128), TypeError, "recipe: must be a sequence of 2 integers"),
    ):
        with pytest.raises(kind, match=f"^{sentence}"):
            transform(*arguments)
