"""MXFP8, e4m3 with an exponent for each 32 of K: its scales as gemm and grouped_gemm take them, and the same numbers
as e4m3 with a scale for each 128, whose products of many rows are faster."""

from typing import Any, NamedTuple

from finegemm.errors import InvalidArgument
from finegemm.torch_module import torch

__all__ = ["Reencoded", "decode_scales", "pack_scales", "reencode"]

BLOCK, GROUP = 32, 128  # of K: what an exponent serves, and what a scale
_LARGEST = 448.0  # of e4m3
_PIECE = 1 << 24  # values at a time


class Reencoded(NamedTuple):
    """Codes and scales as gemm takes them, and the share of groups of 128 whose values are what they were: a tensor of
    one float32, for which nothing waits."""

    codes: Any
    scales: Any
    exact: Any


def decode_scales(scales: Any, blocks: int, name: str = "scales") -> Any:
    """float32 of scales [..., rows, blocks], whatever they are stored as: bytes that are exponents (uint8 or
    float8_e8m0fnu: 2^(byte - 127), 0 for 0 and infinity for 255), four of them in an int32, the first of K in the
    lowest byte, or float32. Strides are free. Raises InvalidArgument unless a row has as many as `blocks`."""
    if scales.dtype == torch.float32:
        floats = scales
    else:
        if scales.dtype == torch.int32:
            shifts = torch.arange(0, 32, 8, device=scales.device, dtype=torch.int32)
            exponents = ((scales[..., None] >> shifts) & 255).flatten(-2)[..., :blocks]
        elif scales.dtype in (torch.uint8, getattr(torch, "float8_e8m0fnu", torch.uint8)):
            exponents = scales.view(torch.uint8).to(torch.int32)
        else:
            raise InvalidArgument(
                f"{name}: has dtype {scales.dtype}, must be uint8, float8_e8m0fnu, int32 of four bytes, or float32; "
                "convert it"
            )
        floats = (exponents << 23).view(torch.float32)
    if floats.shape[-1] != blocks:
        raise InvalidArgument(
            f"{name}: has {scales.shape[-1]} columns of {scales.dtype}, must have one scale for each of {blocks} "
            "blocks of K in a row; pass those that the codes were quantised with"
        )
    return floats


def pack_scales(scales: Any, blocks: int, name: str = "scales") -> Any:
    """Words of four exponents, int32 [..., rows, ceil(blocks/4)], as gemm and grouped_gemm take them, of scales
    [..., rows, blocks] of any form that decode_scales takes: these words themselves, or the same memory where rows of
    bytes are whole words, else a copy. float32 must be powers of two from 2^-126 on, or 0, for which the CPU waits.
    Raises InvalidArgument for others, and unless a row has as many as `blocks`."""
    if scales.dtype == torch.int32 and scales.shape[-1] == -(-blocks // 4):
        return scales
    if scales.dtype == torch.float32:
        bits = decode_scales(scales, blocks, name).view(torch.int32)
        if bool((bits & 0x807FFFFF).any()):
            raise InvalidArgument(f"{name}: has scales that are no powers of two; round them up, or reencode the codes")
        exponents = (bits >> 23).to(torch.uint8)
    else:
        decode_scales(scales, blocks, name)
        exponents = scales.view(torch.uint8)
    missing = -blocks % 4
    whole = exponents.stride(-1) == 1 and exponents.storage_offset() % 4 == 0 and missing == 0
    if not whole or any(step % 4 for step in exponents.stride()[:-1]):
        exponents = torch.nn.functional.pad(exponents, (0, missing)).contiguous()
    return exponents.view(torch.int32)


def reencode(codes: Any, scales: Any) -> Reencoded:
    """Codes float8_e4m3fn [..., rows, K] with a scale for each row and 32 columns [..., rows, ceil(K/32)], any that
    decode_scales takes, as such codes with a float32 scale for each row and 128 columns, which gemm and grouped_gemm
    take of a and, as scales of rows, of b.

    The scale of four blocks is the smallest power of two with which no code is above 448. A value keeps its bits unless
    it is below 2^-6 of that scale, where e4m3 has fewer; then it is off by at most 2^-10 of it, 2^-17 of the largest
    value of the group. `exact` says for which share of the groups no value is. Scales that are no powers of two are
    rounded into the codes. An infinite scale makes its group infinite or NaN. K is a multiple of 16. New tensors on the
    device of the codes.
    """
    k = codes.shape[-1]
    if codes.dtype != torch.float8_e4m3fn or k % 16 != 0:
        raise InvalidArgument(
            f"codes: are {codes.dtype} of K = {k} columns, must be float8_e4m3fn of a multiple of 16; pad with zeros"
        )
    of_blocks = decode_scales(scales, -(-k // BLOCK))
    if of_blocks.shape[:-1] != codes.shape[:-1]:
        raise InvalidArgument(
            f"scales: have shape {list(of_blocks.shape)}, must have one for each row and 32 columns of codes "
            f"{list(codes.shape)}; pass those that the codes were quantised with"
        )
    rows, groups = codes.shape[:-1], -(-k // GROUP)
    new_codes = codes.new_empty(rows.numel(), k)
    new_scales = of_blocks.new_empty(rows.numel(), groups)
    kept = of_blocks.new_zeros(())
    for part in torch.arange(rows.numel()).split(max(1, _PIECE // max(k, 1))):  # floats take four times the memory
        piece = slice(int(part[0]), int(part[-1]) + 1) if len(part) else slice(0)
        values, powers = codes.reshape(-1, k)[piece], of_blocks.reshape(-1, of_blocks.shape[-1])[piece]
        new_codes[piece], new_scales[piece], same = _regrouped(values.float(), powers, groups)
        kept += same.sum()
    exact = kept / max(1, new_scales.numel())
    return Reencoded(new_codes.view(codes.shape), new_scales.view(*rows, groups), exact)


def _regrouped(values: Any, of_blocks: Any, groups: int) -> tuple[Any, Any, Any]:
    """Codes, scales, and which groups are exact, of some rows."""
    pad, (rows, k) = torch.nn.functional.pad, values.shape
    values = pad(values, (0, groups * GROUP - k)).view(rows, groups, GROUP // BLOCK, BLOCK)
    of_blocks = pad(of_blocks, (0, groups * GROUP // BLOCK - of_blocks.shape[-1])).view(values.shape[:-1])
    largest = (values.nan_to_num(0.0).abs().amax(-1) * of_blocks).amax(-1)
    mantissa, exponent = torch.frexp(largest / _LARGEST)  # of [1/2, 1), and a power of two
    exponent = torch.where(mantissa == 0.5, exponent - 1, exponent).clamp(-126, 127)
    scales = torch.where(mantissa == 0, 1.0, torch.ldexp(torch.ones_like(largest), exponent))
    scales = torch.where(largest.isfinite(), scales, largest)
    wanted = values * (of_blocks / scales[..., None])[..., None]
    codes = wanted.clamp(-_LARGEST, _LARGEST).to(torch.float8_e4m3fn)
    same = ((codes.float() == wanted) | wanted.isnan()).flatten(-2).all(-1)
    return codes.view(rows, -1)[:, :k], scales, same
