"""MXFP8 as FP8 with a scale for each 128 of K: values that are kept to the bit, and those that cannot be."""

import pytest

import finegemm
from finegemm.mxfp8 import decode_scales, reencode
from torch_support import DEVICES, relative, torch

E4M3 = torch.float8_e4m3fn


def mx(rows, k, device, spread=0):
    """Codes of values from 1/4 to 2, some blocks 2^spread smaller, and exponents for each 32."""
    x = torch.rand(rows, -(-k // 32), 32, device=device) * 3.5 - 1.75
    x += x.sign() / 4
    x[:, 1::4] *= 2.0**-spread
    exponents = torch.ceil(torch.log2(x.abs().amax(-1) / 448)).to(torch.int32) + 127
    codes = (x * torch.exp2(127.0 - exponents)[..., None]).to(E4M3)
    return codes.view(rows, -1)[:, :k].contiguous(), exponents.to(torch.uint8)


def values(codes, scales, width):
    return codes.float() * scales.repeat_interleave(width, -1)[..., : codes.shape[-1]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("k", [640, 416])
def test_blocks_of_like_size_keep_their_values(device, k):
    codes, exponents = mx(70, k, device)
    x = reencode(codes, exponents)
    assert x.codes.shape == codes.shape and x.scales.shape == (70, -(-k // 128)) and float(x.exact) == 1
    assert torch.equal(values(x.codes, x.scales, 128), values(codes, decode_scales(exponents, -(-k // 32)), 32))


@pytest.mark.parametrize("device", DEVICES)
def test_blocks_that_differ_much_are_counted_and_within_the_bound(device):
    codes, exponents = mx(70, 512, device, spread=12)
    exponents[:35] = 120  # rows whose blocks have one scale keep all
    x = reencode(codes, exponents)
    assert 0.5 <= float(x.exact) < 0.7
    was, now = (
        y.unflatten(-1, (4, 128)) for y in (values(codes, decode_scales(exponents, 16), 32), values(x[0], x[1], 128))
    )
    assert torch.equal(was[:35], now[:35])
    assert ((was - now).abs().amax(-1) <= 2.0**-17 * was.abs().amax(-1)).all() and not torch.equal(was, now)


def test_each_form_of_scales_says_the_same():
    exponents = torch.randint(0, 255, (5, 20), dtype=torch.uint8)
    packed = exponents.view(5, 5, 4).flip(-1).to(torch.int64)
    words = sum(packed[..., i] << 8 * (3 - i) for i in range(4)).to(torch.int32)
    floats = decode_scales(exponents, 20)
    mn_major = words.t().contiguous().t()
    forms = [words, mn_major, floats, exponents.t().contiguous().t()]
    if hasattr(torch, "float8_e8m0fnu"):
        forms.append(exponents.view(torch.float8_e8m0fnu))
    for form in forms:
        assert torch.equal(decode_scales(form, 20), floats)
    assert torch.equal(decode_scales(words, 19), floats[:, :19]), "the last word has bytes to spare"
    assert decode_scales(torch.tensor([[0, 127, 255]], dtype=torch.uint8), 3).tolist() == [[0, 1, float("inf")]]


@pytest.mark.parametrize("device", DEVICES)
def test_products_take_what_becomes_of_it(device):
    (a, of_a), (b, of_b) = mx(33, 512, device), mx(72, 512, device)
    want = values(a, decode_scales(of_a, 16), 32) @ values(b, decode_scales(of_b, 16), 32).T
    x, w = reencode(a, of_a), reencode(b.view(1, 72, 512), of_b.view(1, 72, 16))
    assert relative(finegemm.gemm(x.codes, x.scales, w.codes[0], w.scales[0]), want) < 0.005
    rows, scales = finegemm.quantize_rows(values(a, decode_scales(of_a, 16), 32))
    masks = torch.tensor([20], dtype=torch.int32, device=device)
    d = finegemm.grouped_gemm(rows[None], scales[None], w.codes, w.scales, masked_m=masks)
    assert relative(d[0, :20], want[:20]) < 0.05, "with activations quantised to 1x128"


def test_other_codes_and_scales_are_refused():
    codes, exponents = mx(4, 128, "cpu")
    with pytest.raises(finegemm.InvalidArgument, match=r"^scales: has 3 columns of torch.uint8, must have one scale"):
        reencode(codes, exponents[:, :3])
    with pytest.raises(finegemm.InvalidArgument, match=r"^scales: have shape \[3, 4\]"):
        reencode(codes, exponents[:3])
    with pytest.raises(finegemm.InvalidArgument, match=r"^scales: has dtype torch.float16"):
        reencode(codes, exponents.to(torch.float16))
    with pytest.raises(finegemm.InvalidArgument, match=r"^codes: are torch.uint8 of K = 128"):
        reencode(codes.view(torch.uint8), exponents)
