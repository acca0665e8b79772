"""finegemm.torch's quantisers: what they make of matrices of every shape."""

import pytest

import finegemm
from torch_support import DEVICES, ft, torch

pytestmark = pytest.mark.parametrize("device", DEVICES)
K = 256


def values(device, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(device)


def bits(x):
    return x.shape, x.dtype, x.flatten().view(torch.uint8).tolist()


def same(results, others):
    """Have tensors the same bits?"""
    return [bits(x) for x in results] == [bits(y) for y in others]


def test_matrices_with_few_rows_have_blocks_of_their_own(device):
    w = values(device, 3, 48, K)
    codes, scales = ft.quantize_blocks(w)
    for matrix, q, s in zip(w, codes, scales, strict=True):
        assert same((q, s), ft.quantize_blocks(matrix))
    assert same(ft.quantize_weights(w), (codes, scales, codes.mT.contiguous()))


def test_columns_are_transposed_rows(device):
    x = values(device, 70, K)
    codes, scales = ft.quantize_columns(x)
    padded = torch.nn.functional.pad(x.t(), (0, 10)).contiguous()
    assert same((codes, scales), ft.quantize_rows(padded))
    codes, scales, begins = ft.quantize_columns(x, [3, 3, 13, 69], power_of_two_scales=True)
    assert begins.tolist() == [0, 0, 128, 256] and codes.shape[1] >= 256
    back = ft.dequantize(codes, scales).t()
    assert not back[10:128].any() and not back[128 + 56 : 256].any()
    want = ft.dequantize(*ft.quantize_columns(x[3:13], power_of_two_scales=True)).t()
    assert torch.equal(back[:10], want[:10])
    assert torch.equal(scales.log2(), scales.log2().round())


@pytest.mark.parametrize("offsets", (None, [0, 3, 13, 70]))
def test_rows_come_with_columns(offsets, device):
    x = values(device, 2, 35, K)
    results = ft.quantize_columns(x, offsets, rows=True)
    assert same(results[:-2], ft.quantize_columns(x, offsets)) and same(results[-2:], ft.quantize_rows(x))


@pytest.mark.parametrize("blocks", (False, True))
def test_exponents_become_scales_as_they_do_for_finegemm(blocks, device):
    codes = torch.stack([ft.quantize_rows(values(device, 70, K))[0]] * 3)
    words = torch.randint(0, 2**31, (3, 70, K // 128), generator=torch.Generator().manual_seed(2)).to(device).int()
    results = ft.reencode(codes, words, blocks=blocks)
    assert same(results, finegemm.reencode(codes, words, blocks=blocks))
    assert results[1].shape == (3, 1 if blocks else 70, 2) and (blocks or results[1].stride(1) == 1)
