"""Quantisation by torch, on whatever device its tensors are, and conversions of power-of-two scales."""

from collections.abc import Collection

from finegemm.torch_module import torch

from ..operands import Tensor

_LEAST_AMAX = 1e-4  # of a group, so that one of zeros has a scale
_E4M3_MAX, _E2M1_MAX = 448.0, 6.0
# The magnitudes of e2m1, and what lies half-way between neighbours: the magnitude itself rounds down.
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_E2M1_THRESHOLDS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)


def ceil_div(x: int, y: int) -> int:
    return (x + y - 1) // y


def align(x: int, y: int) -> int:
    return ceil_div(x, y) * y


def ceil_to_ue8m0(x: Tensor) -> Tensor:
    """|x| rounded up to a power of two from 2^-126 to 2^127, as float32; NaN and infinities to the largest."""
    bits = x.abs().float().view(torch.int32)
    exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0).int()
    return (exponent.clamp(1, 254) << 23).view(torch.float32)


def pack_ue8m0_to_int(x: Tensor) -> Tensor:
    """Four exponents of powers of two side by side as one int32, the first in the lowest byte."""
    bits = x.view(torch.int32)
    assert x.shape[-1] % 4 == 0, f"x: has {x.shape[-1]} columns, must be a multiple of 4; pad it with 1.0"
    assert ((bits & ~(0xFF << 23)) == 0).all(), "x: has values that are no powers of two; apply ceil_to_ue8m0"
    return packed_exponents(bits >> 23)


def packed_exponents(exponents: Tensor) -> Tensor:
    """int32 exponents, four in a row as one int32."""
    shifts = torch.arange(0, 32, 8, dtype=torch.int32, device=exponents.device)
    return (exponents.unflatten(-1, (exponents.shape[-1] // 4, 4)) << shifts).sum(-1, dtype=torch.int32)


def unpack_ue8m0_from_int(packed: Tensor) -> Tensor:
    """The inverse of pack_ue8m0_to_int."""
    shifts = torch.arange(0, 32, 8, dtype=torch.int32, device=packed.device)
    exponents = (packed.unsqueeze(-1) >> shifts) & 0xFF
    return (exponents << 23).view(torch.float32).flatten(-2)


def _scaled(x: Tensor, over: tuple[int, ...], largest: float, use_ue8m0: bool) -> tuple[Tensor, Tensor]:
    """x divided by the scale of its group, which spans the dimensions `over`, and the scales with extents of 1 there.

    The product with the rounded reciprocal, not the quotient: both sides of a comparison do the same.
    """
    scales = x.abs().float().amax(over, keepdim=True).clamp(_LEAST_AMAX) / largest
    if use_ue8m0:
        scales = ceil_to_ue8m0(scales)
    return x * (1.0 / scales), scales


def _padded(x: Tensor, rows: int, cols: int) -> Tensor:
    """x with zeros behind it, so that its extents are multiples."""
    m, n = x.shape
    return torch.nn.functional.pad(x, (0, align(n, cols) - n, 0, align(m, rows) - m))


def _segments(x: Tensor, gran_k: int) -> Tensor:
    """x [m, ceil(n / gran_k), gran_k]: the columns that have a scale together are a dimension of their own."""
    padded = _padded(x, 1, gran_k)
    return padded.unflatten(1, (padded.shape[1] // gran_k, gran_k))


def _packed_rows(scales: Tensor) -> Tensor:
    """Scales of rows as int32, their number filled up to a multiple of 4 with 1.0."""
    fill = align(scales.shape[1], 4) - scales.shape[1]
    return pack_ue8m0_to_int(torch.nn.functional.pad(scales, (0, fill), value=1.0))


def per_token_cast_to_fp8(
    x: Tensor, use_ue8m0: bool, gran_k: int = 128, use_packed_ue8m0: bool = False
) -> tuple[Tensor, Tensor]:
    """x [m, n] as e4m3 with a scale for each row and gran_k columns, [m, ceil(n / gran_k)]."""
    assert x.dim() == 2, f"x: has {x.dim()} dimensions, must have 2; reshape it"
    n = x.shape[1]
    scaled, scales = _scaled(_segments(x, gran_k), (2,), _E4M3_MAX, use_ue8m0)
    codes = scaled.flatten(1)[:, :n].to(torch.float8_e4m3fn).contiguous()
    return codes, _packed_rows(scales[..., 0]) if use_packed_ue8m0 else scales[..., 0]


def per_channel_cast_to_fp8(x: Tensor, use_ue8m0: bool, gran_k: int = 128) -> tuple[Tensor, Tensor]:
    """x [m, n] as e4m3 with a scale for each column and gran_k rows, [m / gran_k, n]."""
    assert x.dim() == 2 and x.shape[0] % gran_k == 0, (
        f"x: has shape {list(x.shape)}, must have two dimensions, the first a multiple of gran_k = {gran_k}; pad it"
    )
    m, n = x.shape
    scaled, scales = _scaled(x.unflatten(0, (m // gran_k, gran_k)), (1,), _E4M3_MAX, use_ue8m0)
    return scaled.to(torch.float8_e4m3fn).reshape(m, n), scales[:, 0]


def per_block_cast_to_fp8(x: Tensor, use_ue8m0: bool, gran_k: int = 128) -> tuple[Tensor, Tensor]:
    """x [m, n] as e4m3 with a scale for each gran_k x gran_k block, [ceil(m / gran_k), ceil(n / gran_k)]."""
    assert x.dim() == 2, f"x: has {x.dim()} dimensions, must have 2; reshape it"
    m, n = x.shape
    padded = _padded(x, gran_k, gran_k)
    blocks = padded.view(padded.shape[0] // gran_k, gran_k, padded.shape[1] // gran_k, gran_k)
    scaled, scales = _scaled(blocks, (1, 3), _E4M3_MAX, use_ue8m0)
    return scaled.view(padded.shape)[:m, :n].to(torch.float8_e4m3fn).contiguous(), scales[:, 0, :, 0]


def per_custom_dims_cast_to_fp8(x: Tensor, dims: Collection[int], use_ue8m0: bool) -> tuple[Tensor, Tensor]:
    """x as e4m3 with a scale for each index of the dimensions in `dims`; dimensions of 1 are left out of the scales."""
    over = tuple(dim + 1 for dim in range(x.dim()) if dim not in dims)
    scaled, scales = _scaled(x[None], (0, *over), _E4M3_MAX, use_ue8m0)  # never over nothing, which amax takes for all
    return scaled[0].to(torch.float8_e4m3fn), scales.squeeze()


def _e2m1_codes(x: Tensor) -> Tensor:
    """The nearest e2m1 of each number, ties to the smaller magnitude, as int8 codes without a negative zero."""
    codes = torch.zeros_like(x, dtype=torch.int8)
    for threshold in _E2M1_THRESHOLDS:
        codes += x.abs() > threshold
    return codes | ((x < 0) & (codes != 0)).to(torch.int8) << 3


def _packed_codes(codes: Tensor) -> Tensor:
    """Two codes side by side as one int8, the first in the low nibble."""
    return codes[:, 0::2] | codes[:, 1::2] << 4


def _unpacked_codes(packed: Tensor) -> Tensor:
    return torch.stack((packed & 15, (packed >> 4) & 15), -1).flatten(-2)


def per_token_cast_to_fp4(
    x: Tensor, use_ue8m0: bool, gran_k: int = 128, use_packed_ue8m0: bool = False
) -> tuple[Tensor, Tensor]:
    """x [m, n] as e2m1, two codes a byte, with a scale for each row and gran_k columns."""
    assert x.dim() == 2 and x.shape[1] % 2 == 0, (
        f"x: has shape {list(x.shape)}, must have two dimensions, the last one even; pad it"
    )
    assert use_ue8m0 or not use_packed_ue8m0, "use_packed_ue8m0: is set without use_ue8m0; set both"
    scaled, scales = _scaled(_segments(x, gran_k), (2,), _E2M1_MAX, use_ue8m0)
    codes = _packed_codes(_e2m1_codes(scaled.flatten(1)[:, : x.shape[1]]))
    return codes, _packed_rows(scales[..., 0]) if use_packed_ue8m0 else scales[..., 0]


def transpose_packed_fp4(a: Tensor) -> Tensor:
    """Packed codes [m, n / 2] as those of the transposed matrix, [n, m / 2]."""
    assert a.dtype == torch.int8 and a.dim() == 2 and a.shape[0] % 2 == 0, (
        f"a: is {a.dtype} of shape {list(a.shape)}, must be int8 of two dimensions, the first one even; pad it"
    )
    return _packed_codes(_unpacked_codes(a).t()).contiguous()


def cast_back_from_fp4(packed: Tensor, sf: Tensor, gran_k: int = 128, use_packed_ue8m0: bool = False) -> Tensor:
    """float32 [m, n] of packed codes and their scales."""
    codes = _unpacked_codes(packed).long()
    values = torch.tensor((*_E2M1, *(0.0 - v for v in _E2M1)), dtype=torch.float32, device=packed.device)
    return _times_scales(values[codes], sf, gran_k, use_packed_ue8m0)


def cast_back_from_fp8(x: Tensor, sf: Tensor, gran_k: int = 128, use_packed_ue8m0: bool = False) -> Tensor:
    """float32 [m, n] of codes and their scales."""
    return _times_scales(x.float(), sf, gran_k, use_packed_ue8m0)


def _times_scales(x: Tensor, sf: Tensor, gran_k: int, packed: bool) -> Tensor:
    scales = unpack_ue8m0_from_int(sf) if packed else sf
    return x * scales.repeat_interleave(gran_k, 1)[:, : x.shape[1]]
