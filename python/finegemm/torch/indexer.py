"""Scores of an indexer for sparse attention as operators of torch."""

from typing import Any, Literal

import torch

import finegemm

from .functions import Integers, call, int32
from .operators import Dtype, Tensor, define_new

_OPTIONS = "ScalarType out_dtype, str form, SymInt? width, str relu, SymInt num_sms, bool pdl"


def _named(out_dtype: Dtype, form: str, width: int | None, relu: str, num_sms: int, pdl: bool) -> dict[str, Any]:
    name = str(out_dtype).removeprefix("torch.")
    return {"out_dtype": name, "form": form, "width": width, "relu": relu, "num_sms": num_sms, "pdl": pdl}


def mqa_logits_new(q: Tensor, k: Tensor, sfk: Tensor, w: Tensor, starts: Tensor, ends: Tensor, *options: Any) -> Tensor:
    return finegemm.mqa_logits(q, k, sfk, w, starts, ends, **_named(*options))


def _new_logits(
    q: Tensor, k: Tensor, sfk: Tensor, w: Tensor, starts: Tensor, ends: Tensor, out_dtype: Dtype, *options: Any
) -> Tensor:
    width = options[1]
    return w.new_empty(q.shape[0], k.shape[0] if width is None else width, dtype=out_dtype)


def paged_mqa_logits_new(
    q: Tensor, cache: Tensor, w: Tensor, lengths: Tensor, block_table: Tensor, page_size: int, *options: Any
) -> Tensor:
    """`page_size`: for `fake`, which sees no more of the cache than its shape."""
    return finegemm.paged_mqa_logits(q, cache, w, lengths, block_table, **_named(*options))


def _new_paged_logits(
    q: Tensor, cache: Tensor, w: Tensor, lengths: Tensor, block_table: Tensor, page_size: int, *options: Any
) -> Tensor:
    out_dtype, _, width = options[:3]
    return w.new_empty(w.shape[0], block_table.shape[1] * page_size if width is None else width, dtype=out_dtype)


_OPERANDS = "Tensor q, Tensor k, Tensor sfk, Tensor w, Tensor starts, Tensor ends"
define_new(mqa_logits_new, f"({_OPERANDS}, {_OPTIONS}) -> Tensor", _new_logits)
_PAGED = "Tensor q, Tensor cache, Tensor w, Tensor lengths, Tensor block_table, SymInt page_size"
define_new(paged_mqa_logits_new, f"({_PAGED}, {_OPTIONS}) -> Tensor", _new_paged_logits)


def mqa_logits(
    q: Tensor,
    k: Tensor,
    sfk: Tensor,
    w: Tensor,
    starts: Integers,
    ends: Integers,
    *,
    form: Literal["filled", "untouched", "compressed"] = "filled",
    relu: Literal["exact", "abs"] = "exact",
    out_dtype: Dtype = torch.float32,
    width: int | None = None,
    num_sms: int = 0,
    pdl: bool = False,
) -> Tensor:
    """finegemm.mqa_logits as an operator of torch. Returns [S, Skv] of `out_dtype`, torch.float32 or torch.bfloat16.

    q [S, H, D] and k [Skv, D] of torch.float8_e4m3fn, sfk [Skv] and w [S, H] of torch.float32; starts and ends [S] are
    integers of any type, or lists. The rest as in finegemm.mqa_logits. Backward through the result raises
    finegemm.Unsupported.
    """
    windows = (int32(starts, q.device), int32(ends, q.device))
    logits: Tensor = call(mqa_logits_new, q, k, sfk, w, *windows, out_dtype, form, width, relu, num_sms, pdl)
    return logits


def paged_mqa_logits(
    q: Tensor,
    cache: Tensor,
    w: Tensor,
    lengths: Integers,
    block_table: Tensor,
    *,
    form: Literal["filled", "untouched"] = "filled",
    relu: Literal["exact", "abs"] = "exact",
    out_dtype: Dtype = torch.float32,
    width: int | None = None,
    num_sms: int = 0,
    pdl: bool = False,
) -> Tensor:
    """finegemm.paged_mqa_logits as an operator of torch. Returns [B * T, width] of `out_dtype`.

    q [B, T, H, D] of torch.float8_e4m3fn, cache [pages, P, 1, D + 4] or [pages, P, D + 4] or [pages, P * (D + 4)] of
    torch.uint8, w [B * T, H] of torch.float32, lengths [B, T] or [B], block_table [B, any]: integers of any type.
    `width`: without it the keys of all pages of a row of block_table. The rest as in finegemm.paged_mqa_logits and
    `mqa_logits`.
    """
    page_size = cache[0].numel() // (q.shape[-1] + 4)
    numbers = (int32(lengths, q.device), int32(block_table, q.device), page_size)
    options = (out_dtype, form, width, relu, num_sms, pdl)
    logits: Tensor = call(paged_mqa_logits_new, q, cache, w, *numbers, *options)
    return logits
