"""Weights of 4 bits of published checkpoints, in torch, as what pack_mxfp4, pack_int4 and products take."""

from typing import Any, NamedTuple

from finegemm.errors import InvalidArgument
from finegemm.four_bit import FourBitWeights, pack_int4
from finegemm.mxfp8 import GROUP, Reencoded, reencode
from finegemm.torch_module import torch

__all__ = [
    "Integers",
    "Rounded",
    "awq",
    "compressed_tensors",
    "gates_above_ups",
    "gptq",
    "integers_of_bytes",
    "mxfp4_spreads",
    "mxfp4_to_bf16",
    "reencode_mxfp4",
]

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_OF_WORD = 8  # integers of an int32
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the column that the i-th four bits of a word belong to
_BLOCK, _OF_EXPONENT = 128, 32  # rows and columns of a block of FP8's scales; columns of an exponent


class Rounded(NamedTuple):
    """Values in bfloat16, and the share of them that are what they were: a tensor of one float32."""

    values: Any
    exact: Any


class Integers(NamedTuple):
    """Weights value * scale, [..., N, K].

    values: int8, less their zero points; scales [..., N, K / group] as the checkpoint has them; order: int64 [K] or
    None: column i of the weights belongs to column order[i] of the activations, x[:, order] is multiplied.
    """

    values: Any
    scales: Any
    group: int
    order: Any = None

    def pack(self) -> FourBitWeights[Any]:
        """For four_bit_gemm, exactly, on the CPU. InvalidArgument where that cannot be: for values that are not from -8
        to 7, as zero points besides 8 make them, groups of other than a multiple of 128 of K, and scales that bfloat16
        does not have: the FP8 of to_fp8 has the first and the last of them."""
        if int(self.values.min()) < -8 or int(self.values.max()) > 7:
            raise InvalidArgument(
                f"values: are from {int(self.values.min())} to {int(self.values.max())}, must be from -8 to 7; "
                "take to_fp8, which has them exactly"
            )
        scales = self._scales_of_128()
        of_bf16 = scales.to(torch.bfloat16)
        differ = int((of_bf16.to(scales.dtype) != scales).sum())
        if differ > 0:
            raise InvalidArgument(
                f"scales: {differ} of {scales.numel()} of {scales.dtype} are none of bfloat16, must all be; "
                "round them, or take to_fp8, which has them exactly"
            )
        nibbles = (self.values & 15).to(torch.uint8)
        codes = nibbles[..., 0::2] | nibbles[..., 1::2] << 4
        return pack_int4(codes.contiguous(), of_bf16.contiguous())

    def to_fp8(self) -> Reencoded:
        """Codes float8_e4m3fn and a float32 scale for each row and 128 columns, as gemm takes them of b, exactly: every
        integer up to 16 is an e4m3. Groups of fewer columns than 128 are an InvalidArgument: their scales are no powers
        of two, so that the values are none of e4m3 with another scale."""
        return Reencoded(
            self.values.to(torch.float8_e4m3fn),
            self._scales_of_128().to(torch.float32).contiguous(),
            torch.ones((), device=self.values.device),
        )

    def to_bf16(self) -> Rounded:
        """Value times scale, rounded once, for products of bfloat16 activations, which gemm and grouped_gemm have
        without scales. Any group."""
        exact = self.values.to(torch.float32) * self._repeated(self.scales.to(torch.float32), self.group)
        values = exact.to(torch.bfloat16)
        return Rounded(values, (values.to(torch.float32) == exact).to(torch.float32).mean())

    def _repeated(self, scales: Any, times: int) -> Any:
        return scales.repeat_interleave(times, -1)[..., : self.values.shape[-1]]

    def _scales_of_128(self) -> Any:
        k = self.values.shape[-1]
        if self.group % GROUP != 0 and self.group < k:
            raise InvalidArgument(
                f"scales: are for groups of {self.group} columns, must be for a multiple of 128; take to_bf16, as a "
                "product with four scales for each block promotes four times as often, longer than its bytes take"
            )
        return self._repeated(self.scales, self.group)[..., ::GROUP]


def _words(packed: Any, name: str) -> Any:
    """uint8 [..., 8] of int32 [...], the lowest four bits first."""
    if packed.dtype != torch.int32:
        raise InvalidArgument(f"{name}: has dtype {packed.dtype}, must be int32, eight integers in each; view it so")
    shifts = torch.arange(0, 32, 4, device=packed.device, dtype=torch.int32)
    return (packed[..., None] >> shifts & 15).to(torch.int8)


def _integers(codes: Any, zeros: Any, scales: Any, order: Any = None) -> Integers:
    """codes [..., N, K], zeros [..., N, groups] or a number."""
    k, groups = codes.shape[-1], scales.shape[-1]
    if scales.shape[:-1] != codes.shape[:-1] or groups == 0 or k % groups != 0:
        raise InvalidArgument(
            f"scales: have shape {list(scales.shape)}, must have one for each row and group of columns of weights "
            f"{list(codes.shape)}; pass those of these weights"
        )
    group = k // groups
    if not isinstance(zeros, int):
        if zeros.shape != scales.shape:
            raise InvalidArgument(
                f"zero points: have shape {list(zeros.shape)}, must have that of scales {list(scales.shape)}; "
                "pass those of these weights"
            )
        zeros = zeros.repeat_interleave(group, -1)
    return Integers((codes - zeros).to(torch.int8), scales, group, order)


def compressed_tensors(weight_packed: Any, weight_scale: Any, weight_zero_point: Any = None) -> Integers:
    """pack-quantized: weight_packed int32 [..., N, K/8], k ascending from the lowest bits, each 8 above its value;
    weight_scale [..., N, K/group]; weight_zero_point int32 [..., N/8, K/group], rows ascending from the lowest bits,
    likewise 8 above, or None for 0. As Kimi K2 has its experts, and W4A16 checkpoints."""
    codes = _words(weight_packed, "weight_packed").flatten(-2)
    if weight_zero_point is None:
        return _integers(codes, 8, weight_scale)
    zeros = _words(weight_zero_point, "weight_zero_point").movedim(-1, -2).flatten(-3, -2)
    return _integers(codes, zeros, weight_scale)


def gptq(qweight: Any, scales: Any, qzeros: Any = None, g_idx: Any = None, *, v2: bool = False) -> Integers:
    """qweight int32 [K/8, N], k ascending from the lowest bits; scales [K/group, N]; qzeros int32 [K/group, N/8], n
    ascending from the lowest bits, one below the zero point (`v2`: the zero point), or None for 8; g_idx [K]: the group
    of each k, where that is not k / group, as of models whose columns were ordered by their activations: `order` is
    set then."""
    codes = _words(qweight, "qweight").movedim(-1, -2).flatten(-3, -2).mT
    zeros: Any = 8 if qzeros is None else (_words(qzeros, "qzeros").flatten(-2) + (0 if v2 else 1)).mT
    order = None
    if g_idx is not None:
        groups = scales.shape[-2]
        group = codes.shape[-1] // groups
        usual = torch.arange(codes.shape[-1], device=g_idx.device) // group
        if not torch.equal(g_idx.to(usual.dtype), usual):
            order = torch.argsort(g_idx.to(usual.dtype), stable=True)
            if not torch.equal(g_idx[order].to(usual.dtype), usual):
                raise InvalidArgument(
                    f"g_idx: has not {group} columns of each of the {groups} groups that scales have; pass that of "
                    "these weights"
                )
            codes = codes[..., order]
    return _integers(codes, zeros, scales.mT, order)


def awq(qweight: Any, qzeros: Any, scales: Any) -> Integers:
    """qweight int32 [K, N/8] and qzeros int32 [K/group, N/8], whose words have columns 0, 2, 4, 6, 1, 3, 5 and 7 of
    eight, the first one in the lowest bits; scales [K/group, N]. Zero points are rarely 8, with which alone pack takes
    the weights; to_fp8 takes any."""
    places = torch.argsort(torch.tensor(_AWQ_ORDER, device=qweight.device))
    given = {"qweight": qweight, "qzeros": qzeros}
    codes, zeros = (_words(x, name)[..., places].flatten(-2).mT for name, x in given.items())
    return _integers(codes, zeros, scales.mT)


def integers_of_bytes(codes: Any, scales: Any, *, offset: bool = False, high_first: bool = False) -> Integers:
    """Bytes [..., N, K/2] of two integers, as pack_int4 takes them, with scales [..., N, K/group] of any type. As
    W4AFP8 checkpoints have their experts: int8 in two's complement."""
    parts = _halves(codes, high_first).to(torch.int8)
    return _integers(parts, 8, scales) if offset else _integers((parts ^ 8) - 8, 0, scales)


def _halves(codes: Any, high_first: bool) -> Any:
    """uint8 [..., K] of bytes [..., K/2]."""
    codes = codes.view(torch.uint8)
    low, high = codes & 15, codes >> 4
    return torch.stack((high, low) if high_first else (low, high), -1).flatten(-2)


def gates_above_ups(x: Any, dim: int = -2) -> Any:
    """Rows that alternate between gates and ups, as gpt-oss has those of gate_up_proj, its bias (dim -1) and its scales
    among them, with all gates before all ups, as moe takes them. A new tensor."""
    return torch.cat((x.movedim(dim, 0)[0::2], x.movedim(dim, 0)[1::2])).movedim(0, dim).contiguous()


def _e2m1(codes: Any, high_first: bool) -> Any:
    """float32 of codes [..., K/2]."""
    code = _halves(codes, high_first).to(torch.int64)
    values = torch.tensor(_E2M1 + tuple(-x for x in _E2M1), device=codes.device)
    return values[code]


def mxfp4_spreads(codes: Any, exponents: Any, *, high_first: bool = False) -> Any:
    """By how much exponents of groups of 32 that have weights besides zero differ in each block of 128 x 128: int32
    [..., ceil(N/128), ceil(K/128)]. pack_mxfp4 takes up to 11; the FP8 that it is has normal codes alone then."""
    used = (_halves(codes, high_first) & 7 != 0).unflatten(-1, (-1, _OF_EXPONENT)).any(-1)
    e = exponents.view(torch.uint8).to(torch.int32)
    most, least = torch.where(used, e, -1), torch.where(used, e, 256)
    rows, cols = e.shape[-2:]
    tail = (0, -cols % (_BLOCK // _OF_EXPONENT), 0, -rows % _BLOCK)

    def blocks(x: Any, value: int) -> Any:
        padded = torch.nn.functional.pad(x, tail, value=value)
        return padded.unflatten(-1, (-1, _BLOCK // _OF_EXPONENT)).unflatten(-3, (-1, _BLOCK))

    return (blocks(most, -1).amax((-3, -1)) - blocks(least, 256).amin((-3, -1))).clamp(min=0)


def reencode_mxfp4(codes: Any, exponents: Any, *, high_first: bool = False) -> Reencoded:
    """Codes [..., N, K/2] and exponents [..., N, K/32], as pack_mxfp4 takes them, as codes float8_e4m3fn [..., N, K]
    with a float32 scale for each row and 128 columns, as gemm takes them of b: for matrices that pack_mxfp4 refuses.

    Exact where the exponents of a row's four groups differ by up to 14; `exact` says for which share of the groups of
    128 values are what they were. Those that are not are off by at most 2^-10 of their scale. mxfp4_to_bf16 has them.
    """
    e4m3 = _e2m1(codes, high_first).to(torch.float8_e4m3fn)
    return reencode(e4m3, exponents.view(torch.uint8))


def mxfp4_to_bf16(codes: Any, exponents: Any, *, high_first: bool = False) -> Rounded:
    """The same weights in bfloat16, for products of bfloat16 activations: exact for exponents from 2 to 251."""
    powers = torch.exp2(exponents.view(torch.uint8).to(torch.float64) - 127).repeat_interleave(_OF_EXPONENT, -1)
    exact = _e2m1(codes, high_first).to(torch.float64) * powers
    values = exact.to(torch.bfloat16)
    return Rounded(values, (values.to(torch.float64) == exact).to(torch.float32).mean())
