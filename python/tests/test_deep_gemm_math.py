"""finegemm.deep_gemm.utils.math: quantisation and conversions by torch, against NumPy. Skipped without torch."""

import math

import numpy as np
import pytest

from finegemm import deep_gemm
from support import E4M3
from torch_support import DEVICES, torch

pytestmark = pytest.mark.parametrize("device", DEVICES)
F32 = np.float32
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def matrix(m, n, dtype=torch.bfloat16, device="cpu"):
    random = np.random.default_rng(3)
    x = random.standard_normal((m, n)) * 10.0 ** random.uniform(-6, 4, (m, n))
    return torch.from_numpy(x).to(dtype).to(device)


def array(x):
    return x.float().cpu().numpy()


def power_of_two(x):
    """|x| rounded up to one of 2^-126 to 2^127, by its logarithm."""
    significand, exponent = math.frexp(max(abs(x), 2.0**-126))
    return math.ldexp(1.0, min(exponent - (significand == 0.5), 127))


def scale_of(amax, largest, use_ue8m0, device):
    """A GPU multiplies with the rounded reciprocal of the largest number."""
    amax = np.maximum(amax.astype(F32), F32(1e-4))
    scale = amax * (F32(1) / F32(largest)) if device == "cuda" else amax / F32(largest)
    return np.vectorize(power_of_two)(scale).astype(F32) if use_ue8m0 else scale


def quantised(x, groups, largest, use_ue8m0, device):
    """x times the reciprocal of each group's scale, and the scales: `groups` gives each element's group."""
    flat, inverse = x.reshape(-1), np.unique(groups.reshape(-1), return_inverse=True)[1]
    amax = np.zeros(inverse.max() + 1, F32)
    np.maximum.at(amax, inverse, np.abs(flat))
    scales = scale_of(amax, largest, use_ue8m0, device)
    return (flat * (F32(1) / scales)[inverse]).reshape(x.shape), scales


def assert_e4m3(codes, want):
    assert codes.is_contiguous() and codes.dtype == torch.float8_e4m3fn
    np.testing.assert_array_equal(codes.view(torch.uint8).cpu().numpy(), want.astype(E4M3).view(np.uint8))


@pytest.mark.parametrize("use_ue8m0", (False, True))
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16, torch.float32))
@pytest.mark.parametrize("m, n, gran_k", ((5, 256, 128), (7, 200, 128), (4, 72, 32), (1, 8, 128)))
def test_each_token_has_a_scale_for_its_columns(device, dtype, m, n, gran_k, use_ue8m0):
    x = matrix(m, n, dtype, device)
    row, col = np.indices((m, n))
    want, scales = quantised(array(x), row * 1000 + col // gran_k, 448, use_ue8m0, device)
    codes, sf = deep_gemm.per_token_cast_to_fp8(x, use_ue8m0, gran_k)
    assert_e4m3(codes, want)
    np.testing.assert_array_equal(array(sf), scales.reshape(m, -1))


@pytest.mark.parametrize("use_ue8m0", (False, True))
def test_each_channel_has_a_scale_for_its_rows(device, use_ue8m0):
    x = matrix(256, 24, device=device)
    row, col = np.indices((256, 24))
    want, scales = quantised(array(x), row // 128 * 1000 + col, 448, use_ue8m0, device)
    codes, sf = deep_gemm.per_channel_cast_to_fp8(x, use_ue8m0)
    assert_e4m3(codes, want)
    np.testing.assert_array_equal(array(sf), scales.reshape(2, 24))
    with pytest.raises(
        AssertionError, match=r"x: has shape \[255, 24\], must have two dimensions, the first a multiple"
    ):
        deep_gemm.per_channel_cast_to_fp8(x[1:], use_ue8m0)


@pytest.mark.parametrize("use_ue8m0", (False, True))
def test_each_block_has_a_scale(device, use_ue8m0):
    x = matrix(200, 300, device=device)
    row, col = np.indices((200, 300))
    want, scales = quantised(array(x), row // 128 * 1000 + col // 128, 448, use_ue8m0, device)
    codes, sf = deep_gemm.per_block_cast_to_fp8(x, use_ue8m0)
    assert_e4m3(codes, want)
    np.testing.assert_array_equal(array(sf), scales.reshape(2, 3))


@pytest.mark.parametrize(
    "dims, shape", (((0,), (3,)), ((1,), (8,)), ((0, 2), (3, 16)), ((0, 1, 2), (3, 8, 16)), ((), ()))
)
def test_each_index_of_chosen_dimensions_has_a_scale(device, dims, shape):
    x = matrix(3, 8 * 16, device=device).view(3, 8, 16)
    index = np.indices(x.shape)
    groups = sum((index[dim] * 100**dim for dim in dims), np.zeros(x.shape, int))
    want, scales = quantised(array(x), groups, 448, False, device)
    codes, sf = deep_gemm.per_custom_dims_cast_to_fp8(x, dims, False)
    assert_e4m3(codes, want)
    place = {int(g): tuple(index[d].reshape(-1)[i] for d in dims) for i, g in enumerate(groups.reshape(-1))}
    assert sf.shape == shape
    for group, scale in zip(np.unique(groups), scales, strict=True):
        assert float(sf[place[int(group)]]) == scale


@pytest.mark.parametrize("cast", ("per_token_cast_to_fp8", "per_block_cast_to_fp8", "per_token_cast_to_fp4"))
def test_no_tokens_have_no_scales(device, cast):
    codes, scales = getattr(deep_gemm, cast)(torch.empty((0, 256), device=device), False)
    assert codes.shape[0] == 0 and scales.shape == (0, 2)


@pytest.mark.parametrize("n", (512, 200))
def test_packed_scales_are_filled_up_with_ones(device, n):
    x = matrix(6, n, device=device)
    codes, packed = deep_gemm.per_token_cast_to_fp8(x, True, use_packed_ue8m0=True)
    plain_codes, scales = deep_gemm.per_token_cast_to_fp8(x, True)
    assert torch.equal(codes.view(torch.uint8), plain_codes.view(torch.uint8)) and packed.dtype == torch.int32
    unpacked = deep_gemm.unpack_ue8m0_from_int(packed)
    assert torch.equal(unpacked[:, : scales.shape[1]], scales) and (unpacked[:, scales.shape[1] :] == 1).all()


def test_rounding_up_to_powers_of_two(device):
    values = [0.0, 1e-45, 2.0**-126, 1.0, 1.0000001, -3.0, 4.0, 448.0, 2.0**127, 3e38]
    x = torch.tensor([*values, math.inf, -math.inf, math.nan], device=device)
    want = [power_of_two(v) for v in x[: len(values)].tolist()] + [2.0**127] * 3
    assert deep_gemm.ceil_to_ue8m0(x).tolist() == want


def test_exponents_are_packed_from_the_lowest_byte_on(device):
    exponents = np.array([[0, 1, 127, 255, 254, 128, 129, 200]], np.uint8)
    x = torch.from_numpy((exponents.astype(np.int32) << 23).view(F32)).to(device)
    packed = deep_gemm.pack_ue8m0_to_int(x)
    np.testing.assert_array_equal(packed.cpu().numpy(), exponents.view(np.int32))
    assert torch.equal(deep_gemm.unpack_ue8m0_from_int(packed).view(torch.int32), x.view(torch.int32))
    with pytest.raises(AssertionError, match="x: has 7 columns, must be a multiple of 4"):
        deep_gemm.pack_ue8m0_to_int(x[:, :7])
    for wrong in (3.0, -2.0):
        with pytest.raises(AssertionError, match="x: has values that are no powers of two"):
            deep_gemm.pack_ue8m0_to_int(torch.full((1, 4), wrong, device=device))


@pytest.mark.parametrize("use_ue8m0", (False, True))
def test_four_bits_round_to_the_nearest_and_ties_down(device, use_ue8m0):
    x = matrix(4, 64, device=device)
    x[0, :8] = torch.tensor([6.0, 0.25, 0.75, 1.25, -1.75, 2.5, 3.5, -5.0])  # the scale is 1: ties
    x[0, 8:] = torch.tensor([0.2500001, -0.1], device=device).repeat(28)
    row, col = np.indices((4, 64))
    scaled, scales = quantised(array(x), row * 1000 + col // 32, 6, use_ue8m0, device)
    codes, sf = deep_gemm.per_token_cast_to_fp4(x, use_ue8m0, 32)
    assert codes.shape == (4, 32) and codes.dtype == torch.int8
    np.testing.assert_array_equal(array(sf), scales.reshape(4, 2))
    magnitude = np.abs(scaled)[..., None]
    distance = np.abs(magnitude.astype(np.float64) - E2M1)
    nearest = np.where(scaled < 0, -1, 1) * E2M1[distance.argmin(-1)]  # argmin takes the first, which is the smaller
    back = deep_gemm.cast_back_from_fp4(codes, sf, 32)
    want = nearest.astype(F32) * np.repeat(scales.reshape(4, 2), 32, 1)
    np.testing.assert_array_equal(back.cpu().numpy(), want)
    nibbles = codes.view(torch.uint8)
    assert (back == 0).any() and not ((nibbles & 15 == 8) | (nibbles >> 4 == 8)).any()  # none is a negative zero


def test_packed_codes_are_transposed(device):
    codes = deep_gemm.per_token_cast_to_fp4(matrix(6, 10, device=device), False, 2)[0]
    ones = torch.ones((6, 1), device=device)
    plain = deep_gemm.cast_back_from_fp4(codes, ones, 10)
    turned = deep_gemm.transpose_packed_fp4(codes)
    assert turned.is_contiguous() and turned.shape == (10, 3)
    assert torch.equal(deep_gemm.cast_back_from_fp4(turned, torch.ones((10, 1), device=device), 6), plain.t())
    with pytest.raises(AssertionError, match=r"a: is torch.int8 of shape \[5, 5\], must be int8 of two dimensions"):
        deep_gemm.transpose_packed_fp4(codes[:5])


@pytest.mark.parametrize("packed", (False, True))
def test_casting_back_multiplies_with_the_scales(device, packed):
    x = matrix(4, 256, device=device)
    codes, sf = deep_gemm.per_token_cast_to_fp8(x, True, use_packed_ue8m0=packed)
    scales = deep_gemm.per_token_cast_to_fp8(x, True)[1]
    want = codes.float() * scales.repeat_interleave(128, 1)
    assert torch.equal(deep_gemm.cast_back_from_fp8(codes, sf, use_packed_ue8m0=packed), want)


def test_integers_are_rounded_up(device):
    assert [deep_gemm.ceil_div(x, 4) for x in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert [deep_gemm.align(x, 16) for x in (0, 1, 16, 17)] == [0, 16, 16, 32]
