"""Scores of an indexer for sparse attention as operators of torch."""

from typing import Any, Literal

import torch

import finegemm
from finegemm.errors import InvalidArgument

from .functions import Integers, call, check_dtype, check_grad, int32
from .operators import Dtype, Tensor, define_new, define_out

_OPTIONS = "str form, str relu, SymInt num_sms, bool pdl"
_NEW = f"ScalarType out_dtype, SymInt? width, {_OPTIONS}"


def _named(form: str, relu: str, num_sms: int, pdl: bool) -> dict[str, Any]:
    return {"form": form, "relu": relu, "num_sms": num_sms, "pdl": pdl}


def _named_new(out_dtype: Dtype, width: int | None, *options: Any) -> dict[str, Any]:
    return _named(*options) | {"out_dtype": str(out_dtype).removeprefix("torch."), "width": width}


def mqa_logits_new(q: Tensor, k: Tensor, sfk: Tensor, w: Tensor, starts: Tensor, ends: Tensor, *options: Any) -> Tensor:
    return finegemm.mqa_logits(q, k, sfk, w, starts, ends, **_named_new(*options))


def mqa_logits_out(
    q: Tensor, k: Tensor, sfk: Tensor, w: Tensor, starts: Tensor, ends: Tensor, out: Tensor, *options: Any
) -> None:
    finegemm.mqa_logits(q, k, sfk, w, starts, ends, out, **_named(*options))


def _new_logits(
    q: Tensor, k: Tensor, sfk: Tensor, w: Tensor, starts: Tensor, ends: Tensor, out_dtype: Dtype, *options: Any
) -> Tensor:
    width = options[0]
    return w.new_empty(q.shape[0], k.shape[0] if width is None else width, dtype=out_dtype)


def paged_mqa_logits_new(
    q: Tensor, cache: Tensor, w: Tensor, lengths: Tensor, block_table: Tensor, page_size: int, *options: Any
) -> Tensor:
    """`page_size`: for `fake`, which sees no more of the cache than its shape."""
    return finegemm.paged_mqa_logits(q, cache, w, lengths, block_table, **_named_new(*options))


def paged_mqa_logits_out(
    q: Tensor, cache: Tensor, w: Tensor, lengths: Tensor, block_table: Tensor, out: Tensor, *options: Any
) -> None:
    finegemm.paged_mqa_logits(q, cache, w, lengths, block_table, d=out, **_named(*options))


def _new_paged_logits(
    q: Tensor, cache: Tensor, w: Tensor, lengths: Tensor, block_table: Tensor, page_size: int, *options: Any
) -> Tensor:
    out_dtype, width = options[:2]
    return w.new_empty(w.shape[0], block_table.shape[1] * page_size if width is None else width, dtype=out_dtype)


_OPERANDS = "Tensor q, Tensor k, Tensor sfk, Tensor w, Tensor starts, Tensor ends"
define_new(mqa_logits_new, f"({_OPERANDS}, {_NEW}) -> Tensor", _new_logits)
define_out(mqa_logits_out, f"({_OPERANDS}, Tensor(a!) out, {_OPTIONS})")
_PAGED = "Tensor q, Tensor cache, Tensor w, Tensor lengths, Tensor block_table"
define_new(paged_mqa_logits_new, f"({_PAGED}, SymInt page_size, {_NEW}) -> Tensor", _new_paged_logits)
define_out(paged_mqa_logits_out, f"({_PAGED}, Tensor(a!) out, {_OPTIONS})")


def _check_out(out: Tensor, out_dtype: Dtype | None, width: int | None, *operands: Tensor) -> None:
    check_dtype(out, out_dtype)
    check_grad(out, *operands)
    if width is not None and out.shape[-1] != width:
        raise InvalidArgument(f"width: is {width}, but out has {out.shape[-1]} columns; leave one of them away")


def mqa_logits(
    q: Tensor,
    k: Tensor,
    sfk: Tensor,
    w: Tensor,
    starts: Integers,
    ends: Integers,
    *,
    out: Tensor | None = None,
    form: Literal["filled", "untouched", "compressed"] = "filled",
    relu: Literal["exact", "abs"] = "exact",
    out_dtype: Dtype | None = None,
    width: int | None = None,
    num_sms: int = 0,
    pdl: bool = False,
) -> Tensor:
    """finegemm.mqa_logits as an operator of torch. Returns [S, Skv] of `out_dtype`, torch.float32 or torch.bfloat16.

    `out`: what is returned, instead of a new tensor of `out_dtype` (None: torch.float32) and `width`.

    q [S, H, D] and k [Skv, D] of torch.float8_e4m3fn, sfk [Skv] and w [S, H] of torch.float32; starts and ends [S] are
    integers of any type, or lists. The rest as in finegemm.mqa_logits. Backward through the result raises
    finegemm.Unsupported.
    """
    windows = (int32(starts, q.device), int32(ends, q.device))
    operands, options = (q, k, sfk, w, *windows), (form, relu, num_sms, pdl)
    if out is None:
        logits: Tensor = call(mqa_logits_new, *operands, out_dtype or torch.float32, width, *options)
        return logits
    _check_out(out, out_dtype, width, *operands)
    call(mqa_logits_out, *operands, out, *options)
    return out


def paged_mqa_logits(
    q: Tensor,
    cache: Tensor,
    w: Tensor,
    lengths: Integers,
    block_table: Tensor,
    *,
    out: Tensor | None = None,
    form: Literal["filled", "untouched"] = "filled",
    relu: Literal["exact", "abs"] = "exact",
    out_dtype: Dtype | None = None,
    width: int | None = None,
    num_sms: int = 0,
    pdl: bool = False,
) -> Tensor:
    """finegemm.paged_mqa_logits as an operator of torch. Returns [B * T, width] of `out_dtype`.

    q [B, T, H, D] of torch.float8_e4m3fn, cache [pages, P, 1, D + 4] or [pages, P, D + 4] or [pages, P * (D + 4)] of
    torch.uint8, w [B * T, H] of torch.float32, lengths [B, T] or [B], block_table [B, any]: integers of any type.
    `width`: without it the keys of all pages of a row of block_table. The rest, and `out`, as in
    finegemm.paged_mqa_logits and `mqa_logits`.
    """
    operands = (q, cache, w, int32(lengths, q.device), int32(block_table, q.device))
    options = (form, relu, num_sms, pdl)
    if out is None:
        page_size = cache[0].numel() // (q.shape[-1] + 4)
        new = (page_size, out_dtype or torch.float32, width)
        logits: Tensor = call(paged_mqa_logits_new, *operands, *new, *options)
        return logits
    _check_out(out, out_dtype, width, *operands)
    call(paged_mqa_logits_out, *operands, out, *options)
    return out
