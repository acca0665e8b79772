"""What finegemm has, as torch users call it: leading dimensions, `out`, dtypes of torch, offsets in any integers."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from finegemm.errors import InvalidArgument
from finegemm.torch_operators import watched

from . import operators
from .operators import Dtype, Tensor

Numerics = Literal["fast", "exact", "hopper"]
Integers = Tensor | Sequence[int]


def needs_grad(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Torch's dispatcher takes longer than the rest of a call: it is asked where something of torch watches."""
    if needs_grad(*(x for x in arguments if isinstance(x, torch.Tensor))):
        return getattr(torch.ops.finegemm, function.__name__)(*arguments)
    return watched(function)(*arguments)


def _rows(x: Tensor | None) -> Tensor | None:
    """[..., K] as [M, K]."""
    return x if x is None or x.dim() == 2 else x.reshape(-1, x.shape[-1])


def check_grad(out: Tensor, *operands: Tensor | None) -> None:
    if needs_grad(out, *operands):
        raise InvalidArgument(
            "out: is written to, which autograd does not see, and an argument requires grad; leave out= away, detach "
            "the argument, or call under torch.no_grad()"
        )


def int32(x: Integers, device: Any) -> Tensor:
    if isinstance(x, torch.Tensor):
        return x.to(torch.int32)
    return torch.tensor(x, dtype=torch.int32, device=device)


def gemm(
    a: Tensor,
    sfa: Tensor | None,
    b: Tensor,
    sfb: Tensor | None,
    *,
    out: Tensor | None = None,
    out_dtype: Dtype | None = None,
    accumulate: bool = False,
    alpha: float = 1.0,
    beta: float | None = None,
    c: Tensor | None = None,
    bias: Tensor | None = None,
    numerics: Numerics = "fast",
    batch_invariant: bool | None = None,
    num_sms: int = 0,
    pdl: bool = False,
) -> Tensor:
    """finegemm.gemm as an operator of torch. Returns [..., N].

    a [..., K] and sfa [..., ceil(K/128)], b [N, K], sfb [ceil(N/128), ceil(K/128)] or [N, ceil(K/128)]; c and `out`
    [..., N], bias [N]. A new result has `out_dtype`, else a's, of codes torch.bfloat16. `accumulate`: the product is
    added to an `out` of torch.float32. The rest, and what is refused, as in finegemm.gemm. Backward through the result
    raises finegemm.Unsupported; `linear` has gradients.
    """
    rows = (_rows(a), _rows(sfa), b, sfb)
    options = (_rows(c), bias, alpha, beta, numerics, num_sms, pdl, batch_invariant)
    if out is None:
        if accumulate:
            raise InvalidArgument("accumulate: is True, but out is None; pass the float32 tensor that is added to")
        d: Tensor = call(operators.gemm_new, *rows, out_dtype, *options)
        return d if a.dim() == 2 else d.view(*a.shape[:-1], d.shape[-1])
    check_dtype(out, out_dtype)
    check_grad(out, *rows, c, bias)
    d = out if out.dim() == 2 else out.view(-1, out.shape[-1])
    call(operators.gemm_out, *rows, d, accumulate, *options)
    return out


def check_dtype(out: Tensor, out_dtype: Dtype | None) -> None:
    if out_dtype is not None and out.dtype != out_dtype:
        raise InvalidArgument(f"out_dtype: is {out_dtype}, but out has dtype {out.dtype}; leave one of them away")


def grouped_gemm(
    a: Tensor,
    sfa: Tensor | None,
    b: Tensor,
    sfb: Tensor | None,
    *,
    out: Tensor | None = None,
    out_dtype: Dtype | None = None,
    offsets: Integers | None = None,
    m_indices: Integers | None = None,
    prefix_sums: Integers | None = None,
    masked_m: Integers | None = None,
    heads: bool = False,
    alignment: int = 128,
    expected_m: int = 0,
    alpha: float = 1.0,
    beta: float | None = None,
    c: Tensor | None = None,
    bias: Tensor | None = None,
    numerics: Numerics = "fast",
    num_sms: int = 0,
    pdl: bool = False,
) -> Tensor:
    """finegemm.grouped_gemm as an operator of torch. Returns a's shape, with N for K.

    a [M, K], with `masked_m` [G, M, K] and with `heads` [M, G, K]; b [G, N, K]; sfa, sfb, c and `out` to match. What
    says which rows are whose may be integers of any type, or a list. Rows of no group are not written, so a new result
    holds there whatever its memory held. The rest as in finegemm.grouped_gemm and `gemm`.
    """
    layouts = {"offsets": offsets, "m_indices": m_indices, "prefix_sums": prefix_sums, "masked_m": masked_m}
    given = [name for name, x in layouts.items() if x is not None] + ["heads"] * heads
    if len(given) != 1:
        names = "offsets, m_indices, prefix_sums, masked_m and heads"
        raise InvalidArgument(f"{names}: {', '.join(given) or 'none'} given, must be one; pass one")
    layout = layouts.get(given[0])
    groups = (None if layout is None else int32(layout, a.device), given[0])
    options = (c, bias, alpha, beta, numerics, num_sms, pdl, alignment, expected_m)
    if out is None:
        return call(operators.grouped_gemm_new, a, sfa, b, sfb, out_dtype, *groups, *options)
    check_dtype(out, out_dtype)
    check_grad(out, a, sfa, b, sfb, c, bias)
    call(operators.grouped_gemm_out, a, sfa, b, sfb, out, *groups, *options)
    return out


def k_grouped_gemm(
    a: Tensor,
    sfa: Tensor | None,
    b: Tensor,
    sfb: Tensor | None,
    *,
    out: Tensor | None = None,
    offsets: Integers | None = None,
    sizes: Integers | None = None,
    accumulate: bool = False,
    numerics: Numerics = "fast",
    num_sms: int = 0,
    pdl: bool = False,
) -> Tensor:
    """finegemm.k_grouped_gemm as an operator of torch. Returns [G, M, N] of torch.float32, or `out`.

    a [M, K], b [N, K], with scales [M, K/128] and [N, K/128]; the k of each group begin at a multiple of 128.
    `offsets` [G + 1] may be on the device of a or on the CPU, `sizes` [G] on the CPU, either a list. `accumulate`: the
    products are added to `out`. The rest as in finegemm.k_grouped_gemm and `gemm`.
    """
    if (offsets is None) == (sizes is None):
        given = "none" if offsets is None else "both"
        raise InvalidArgument(f"offsets and sizes: {given} given, must be one; pass one")
    form, layout = ("offsets", offsets) if sizes is None else ("sizes", sizes)
    groups = (int32(layout, "cpu"), form)  # a tensor stays where it is
    if out is None:
        if accumulate:
            raise InvalidArgument("accumulate: is True, but out is None; pass the float32 tensor that is added to")
        return call(operators.k_grouped_gemm_new, a, sfa, b, sfb, *groups, numerics, num_sms, pdl)
    check_grad(out, a, sfa, b, sfb)
    call(operators.k_grouped_gemm_out, a, sfa, b, sfb, out, accumulate, *groups, numerics, num_sms, pdl)
    return out


def einsum(
    equation: Literal["bhr,hdr->bhd", "bhd,hdr->bhr", "bmk,bnk->mn"],
    a: Tensor,
    b: Tensor,
    *,
    sfa: Tensor | None = None,
    sfb: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: Dtype | None = None,
    accumulate: bool = False,
    numerics: Numerics = "fast",
    batch_invariant: bool | None = None,
    num_sms: int = 0,
    pdl: bool = False,
) -> Tensor:
    """finegemm.einsum as an operator of torch: [B, H, D], [B, H, R] or [M, N] by the equation.

    The last dimension of a, b and `out` is contiguous, other strides are free. A new result has `out_dtype`, else a's,
    of codes torch.bfloat16. `accumulate`: the sum of "bmk,bnk->mn" is added to an `out` of torch.float32. The rest as
    in finegemm.einsum and `gemm`.
    """
    operands, options = (equation, a, sfa, b, sfb), (numerics, num_sms, pdl, batch_invariant)
    if out is None:
        if accumulate:
            raise InvalidArgument("accumulate: is True, but out is None; pass the float32 tensor that is added to")
        return call(operators.einsum_new, *operands, out_dtype, *options)
    check_dtype(out, out_dtype)
    check_grad(out, a, sfa, b, sfb)
    call(operators.einsum_out, *operands, out, accumulate, *options)
    return out


def quantize_rows(
    x: Tensor, *, power_of_two_scales: bool = False, dtype: Dtype = operators.E4M3, whole_rows: bool = False
) -> tuple[Tensor, Tensor]:
    """Casts x [..., K] to e4m3 with a scale for each row and 128 columns. Returns codes and scales [..., ceil(K/128)].

    x: bfloat16, float16 or float32; K a multiple of 16. `dtype` of the codes: float8_e4m3fn, float8_e5m2 or int8. With
    `whole_rows` a row has one scale, [..., 1]. As finegemm.quantize_rows; x need not be contiguous.
    """
    matrix = x.reshape(-1, x.shape[-1]).contiguous()
    codes, scales = call(operators.quantize_rows, matrix, power_of_two_scales, dtype, whole_rows)
    return codes.view(x.shape), scales.view(*x.shape[:-1], scales.shape[-1])


def quantize_blocks(
    x: Tensor, *, power_of_two_scales: bool = False, dtype: Dtype = operators.E4M3
) -> tuple[Tensor, Tensor]:
    """Casts x [N, K] or [G, N, K] to e4m3 with a scale for each 128x128 block. Returns codes and scales.

    Scales: [ceil(N/128), ceil(K/128)], or [G, ceil(N/128), ceil(K/128)]: no block has rows of two matrices. K is a
    multiple of 16. `dtype` as of quantize_rows. As finegemm.quantize_blocks; x need not be contiguous.
    """
    codes, scales = call(operators.quantize_blocks, x.contiguous(), power_of_two_scales, dtype)
    return codes, scales


def quantize_weights(x: Tensor, *, power_of_two_scales: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """quantize_blocks, with the codes transposed from the same pass. Returns codes, scales and codes [K, N].

    x [N, K] or [G, N, K]; N and K are multiples of 16. As finegemm.quantize_weights; x need not be contiguous.
    """
    codes, scales, transposed = call(operators.quantize_weights, x.contiguous(), power_of_two_scales)
    return codes, scales, transposed


def quantize_columns(
    x: Tensor, offsets: Integers | None = None, *, rows: bool = False, power_of_two_scales: bool = False
) -> tuple[Tensor, ...]:
    """Casts x [..., K] to transposed e4m3 with a scale for each column and 128 rows, as gradients of weights need.

    Returns codes [K, M'] and scales [K, ceil(M'/128)] of the M rows, and M' is M up to the next multiple of 16. With
    `offsets` [G + 1] the rows offsets[g] up to offsets[g + 1] of each group begin at a multiple of 128; M' is the same
    for all offsets, and a third result says where they begin now, as k_grouped_gemm takes it. Padding is zero, and rows
    of no group are left out. With `rows` the last two results are those of quantize_rows, from the same pass over x;
    they are not written for rows of no group. K is a multiple of 16. As finegemm.quantize_columns; x need not be
    contiguous.
    """
    matrix = x.reshape(-1, x.shape[-1]).contiguous()
    groups = () if offsets is None else (int32(offsets, x.device),)
    of_groups = "" if offsets is None else "group_"
    operator = getattr(operators, f"quantize_{of_groups}columns" + ("_and_rows" if rows else ""))
    results: tuple[Tensor, ...] = tuple(call(operator, matrix, *groups, power_of_two_scales))
    if not rows:
        return results
    *columns, codes, scales = results
    return *columns, codes.view(x.shape), scales.view(*x.shape[:-1], scales.shape[-1])


def reencode(codes: Tensor, words: Tensor, *, blocks: bool = False) -> tuple[Tensor, Tensor]:
    """MXFP8, codes [M, K] or [G, M, K] with exponents for 32 columns, as codes with scales for 128. Returns both.

    words [M, ceil(K/128)] of each matrix: int32 of four exponents, as finegemm.mxfp8.pack_scales makes them. Scales are
    those of rows, MN-major, or with `blocks` of 128x128 blocks. K is a multiple of 16. As finegemm.reencode;
    finegemm.mxfp8.reencode takes exponents of any form, and says how much is kept.
    """
    new_codes, scales = call(operators.reencode, codes, words, blocks)
    return new_codes, scales


def scale_layout(
    sf: Tensor, *, packed: bool = False, rows: int | None = None, power_of_two_scales: bool = False
) -> Tensor:
    """Scales [R, K] or [G, R, K] with rows contiguous, and four exponents to an int32 if `packed`, or back.

    As finegemm.scale_layout, which has layouts of groups too.
    """
    result = call(operators.scale_layout_new, sf, packed, rows, power_of_two_scales)
    return result


def dequantize(codes: Tensor, scales: Tensor, *, dtype: Dtype = torch.float32) -> Tensor:
    """The values that codes [..., R, K] of e4m3 stand for, in `dtype`.

    scales [..., R, ceil(K/128)] of rows or [..., ceil(R/128), ceil(K/128)] of blocks; one row or column of scales, as
    [R, 1] and [1, 1] have, is for all.
    """
    r, k = codes.shape[-2:]
    if scales.shape[-1] != 1:
        scales = scales.repeat_interleave(operators.BLOCK, -1)[..., :k]
    if scales.shape[-2] not in (1, r):
        scales = scales.repeat_interleave(operators.BLOCK, -2)[..., :r, :]
    return (codes.float() * scales).to(dtype)
