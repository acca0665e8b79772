"""MXFP8, e4m3 with an exponent for each 32 of K: its scales as gemm and grouped_gemm take them, and the same numbers
as e4m3 with a scale for each 128, whose products of many rows are faster."""

from typing import Any, NamedTuple

from finegemm import quantize
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


def _check(scales: Any, blocks: int, name: str) -> None:
    if scales.dtype not in (torch.float32, torch.int32, torch.uint8, getattr(torch, "float8_e8m0fnu", torch.uint8)):
        raise InvalidArgument(
            f"{name}: has dtype {scales.dtype}, must be uint8, float8_e8m0fnu, int32 of four bytes, or float32; "
            "convert it"
        )
    columns = scales.shape[-1]
    if (min(4 * columns, blocks) if scales.dtype == torch.int32 else columns) != blocks:
        raise InvalidArgument(
            f"{name}: has {columns} columns of {scales.dtype}, must have one scale for each of {blocks} "
            "blocks of K in a row; pass those that the codes were quantised with"
        )


def decode_scales(scales: Any, blocks: int, name: str = "scales") -> Any:
    """float32 of scales [..., rows, blocks], whatever they are stored as: bytes that are exponents (uint8 or
    float8_e8m0fnu: 2^(byte - 127), 0 for 0 and infinity for 255), four of them in an int32, the first of K in the
    lowest byte, or float32. Strides are free. Raises InvalidArgument unless a row has as many as `blocks`."""
    _check(scales, blocks, name)
    if scales.dtype == torch.float32:
        return scales
    if scales.dtype == torch.int32:
        shifts = torch.arange(0, 32, 8, device=scales.device, dtype=torch.int32)
        exponents = ((scales[..., None] >> shifts) & 255).flatten(-2)[..., :blocks]
    else:
        exponents = scales.view(torch.uint8).to(torch.int32)
    return (exponents << 23).view(torch.float32)


def pack_scales(scales: Any, blocks: int, name: str = "scales") -> Any:
    """Words of four exponents, int32 [..., rows, ceil(blocks/4)], as gemm and grouped_gemm take them, of scales
    [..., rows, blocks] of any form that decode_scales takes: these words themselves, or the same memory where rows of
    bytes are whole words, else a copy. float32 must be powers of two from 2^-126 on, or 0, for which the CPU waits.
    Raises InvalidArgument for others, and unless a row has as many as `blocks`."""
    words = _words(scales, blocks, name)
    if words is None:
        raise InvalidArgument(f"{name}: has scales that are no powers of two; round them up, or reencode the codes")
    return words


def _words(scales: Any, blocks: int, name: str) -> Any:
    """None where there are no exponents: scales that are no powers of two."""
    _check(scales, blocks, name)
    columns = -(-blocks // 4)
    if scales.dtype == torch.int32:
        return scales if scales.shape[-1] == columns else scales[..., :columns]
    if scales.dtype == torch.float32:
        bits = scales.view(torch.int32)
        if bool((bits & 0x807FFFFF).any()):
            return None
        exponents = (bits >> 23).to(torch.uint8)
    else:
        exponents = scales.view(torch.uint8)
    if exponents.numel() == 0:
        return exponents.new_empty((*exponents.shape[:-1], columns), dtype=torch.int32)
    missing = -blocks % 4
    whole = exponents.stride(-1) == 1 and exponents.storage_offset() % 4 == 0 and missing == 0
    if not whole or any(step % 4 for step in exponents.stride()[:-1]):
        padded = torch.nn.functional.pad(exponents, (0, missing))
        exponents = padded.clone(memory_format=torch.contiguous_format)  # strides of one row, too
    return exponents.view(torch.int32)


def reencode(codes: Any, scales: Any, blocks: bool = False) -> Reencoded:
    """Codes float8_e4m3fn [..., rows, K] with a scale for each row and 32 columns [..., rows, ceil(K/32)], any that
    decode_scales takes, as such codes with a float32 scale for each row and 128 columns, which gemm and grouped_gemm
    take of a and, as scales of rows, of b; with `blocks` for each 128x128 block of b, as quantize_blocks makes them.

    Each new scale is the smallest power of two with which no code is above 448. A value keeps its bits unless it is
    below 2^-6 of that scale, where e4m3 has fewer; then it is off by at most 2^-10 of it, 2^-17 of the largest value
    that has the scale. `exact` says for which share of the groups of 128 columns of a row no value is. K is a multiple
    of 16. New tensors on the device of the codes, of finegemm.reencode: an exponent of 255 makes its 32 values NaN.

    float32 scales need not be powers of two, for which the CPU looks: others are rounded into the codes by torch, at
    many times the cost and not with `blocks`, and an infinite one makes its group of 128 infinite or NaN.
    """
    k = codes.shape[-1]
    if codes.dtype != torch.float8_e4m3fn or k % 16 != 0:
        raise InvalidArgument(
            f"codes: are {codes.dtype} of K = {k} columns, must be float8_e4m3fn of a multiple of 16; pad with zeros"
        )
    if scales.shape[:-1] != codes.shape[:-1]:
        raise InvalidArgument(
            f"scales: have shape {list(scales.shape)}, must have one for each row and 32 columns of codes "
            f"{list(codes.shape)}; pass those that the codes were quantised with"
        )
    words = _words(scales, -(-k // BLOCK), "scales")
    if words is None:
        if blocks:
            raise InvalidArgument(
                "scales: are float32 of which some are no powers of two, must be powers of two for new ones of blocks; "
                "leave blocks out, or pass the values to quantize_blocks"
            )
        return _rounded(codes, scales)
    several = codes.shape[:-2]
    if len(several) > 1:
        codes, words = codes.flatten(0, -3), words.flatten(0, -3)
    if codes.stride(-1) != 1:
        codes = codes.contiguous()
    changed = torch.zeros(1, dtype=torch.int32, device=codes.device)
    new_codes, new_scales = quantize.reencode(codes, words, blocks=blocks, changed=changed)
    if len(several) > 1:
        new_codes, new_scales = new_codes.unflatten(0, several), new_scales.unflatten(0, several)
    exact = 1 - changed[0].to(torch.float32) / max(1, codes.shape[:-1].numel() * -(-k // GROUP))
    return Reencoded(new_codes, new_scales, exact)


def _rounded(codes: Any, of_blocks: Any) -> Reencoded:
    """reencode, of scales that are no powers of two."""
    rows, k = codes.shape[:-1], codes.shape[-1]
    groups = -(-k // GROUP)
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
