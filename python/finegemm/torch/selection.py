"""The largest of rows and the best keys of an indexer as operators of torch."""

from collections.abc import Callable
from typing import Any, Literal

import torch

import finegemm
from finegemm.errors import InvalidArgument

from .functions import Integers, call, check_grad, int32
from .operators import Tensor, define_new, define_out

Outputs = tuple[Tensor | None, ...]  # indices, values, histogram, and of an indexer logits


def _named(sorted: bool, form: str, relu: str, num_sms: int, pdl: bool) -> dict[str, Any]:
    return {"sorted": sorted, "form": form, "relu": relu, "num_sms": num_sms, "pdl": pdl}


def _outputs(indices: Tensor | None, *others: Tensor | None) -> dict[str, Any]:
    """As what is written is passed on; without indices only a histogram is made."""
    named = dict(zip(("values", "histogram", "logits"), others, strict=False))
    return named | ({"topk": 0} if indices is None else {"indices": indices})


def topk_new(logits: Tensor, k: int, starts: Tensor | None, ends: Tensor | None, *options: Any) -> Tensor:
    sorted, num_sms, pdl = options
    return finegemm.topk(logits, k, starts=starts, ends=ends, sorted=sorted, num_sms=num_sms, pdl=pdl)


def topk_out(
    logits: Tensor,
    starts: Tensor | None,
    ends: Tensor | None,
    indices: Tensor | None,
    values: Tensor | None,
    histogram: Tensor | None,
    *options: Any,
) -> None:
    sorted, num_sms, pdl = options
    k = 0 if indices is None else None
    finegemm.topk(
        logits,
        k,
        indices,
        starts=starts,
        ends=ends,
        values=values,
        histogram=histogram,
        sorted=sorted,
        num_sms=num_sms,
        pdl=pdl,
    )


def mqa_topk_new(
    q: Tensor, k: Tensor, sfk: Tensor, w: Tensor, starts: Tensor, ends: Tensor, topk: int, *options: Any
) -> Tensor:
    return finegemm.mqa_topk(q, k, sfk, w, starts, ends, topk, **_named(*options))


def mqa_topk_out(
    q: Tensor, k: Tensor, sfk: Tensor, w: Tensor, starts: Tensor, ends: Tensor, *outputs_and_options: Any
) -> None:
    outputs, options = outputs_and_options[:4], outputs_and_options[4:]
    finegemm.mqa_topk(q, k, sfk, w, starts, ends, **_outputs(*outputs), **_named(*options))


def paged_mqa_topk_new(
    q: Tensor, cache: Tensor, w: Tensor, lengths: Tensor, block_table: Tensor, topk: int, keys: int, *options: Any
) -> Tensor:
    return finegemm.paged_mqa_topk(q, cache, w, lengths, block_table, topk, keys=keys, **_named(*options))


def paged_mqa_topk_out(
    q: Tensor, cache: Tensor, w: Tensor, lengths: Tensor, block_table: Tensor, keys: int, *outputs_and_options: Any
) -> None:
    outputs, options = outputs_and_options[:4], outputs_and_options[4:]
    finegemm.paged_mqa_topk(q, cache, w, lengths, block_table, keys=keys, **_outputs(*outputs), **_named(*options))


def _new_of_numbers(logits: Tensor, k: int, *_: Any) -> Tensor:
    return logits.new_empty(logits.shape[0], k, dtype=torch.int32)


def _new_of_rows(
    q: Tensor, k: Tensor, sfk: Tensor, w: Tensor, starts: Tensor, ends: Tensor, topk: int, *_: Any
) -> Tensor:
    return w.new_empty(w.shape[0], topk, dtype=torch.int32)


def _new_of_pages(
    q: Tensor, cache: Tensor, w: Tensor, lengths: Tensor, block_table: Tensor, topk: int, *_: Any
) -> Tensor:
    return w.new_empty(w.shape[0], topk, dtype=torch.int32)


_WRITTEN = "Tensor(a!)? indices, Tensor(b!)? values, Tensor(c!)? histogram"
_BOUNDS, _LAUNCH = "Tensor? starts, Tensor? ends", "bool sorted, SymInt num_sms, bool pdl"
define_new(topk_new, f"(Tensor logits, SymInt k, {_BOUNDS}, {_LAUNCH}) -> Tensor", _new_of_numbers)
define_out(topk_out, f"(Tensor logits, {_BOUNDS}, {_WRITTEN}, {_LAUNCH})")
_OPTIONS = "bool sorted, str form, str relu, SymInt num_sms, bool pdl"
_ROWS = "Tensor q, Tensor k, Tensor sfk, Tensor w, Tensor starts, Tensor ends"
define_new(mqa_topk_new, f"({_ROWS}, SymInt topk, {_OPTIONS}) -> Tensor", _new_of_rows)
define_out(mqa_topk_out, f"({_ROWS}, {_WRITTEN}, Tensor(d!)? logits, {_OPTIONS})")
_PAGES = "Tensor q, Tensor cache, Tensor w, Tensor lengths, Tensor block_table"
define_new(paged_mqa_topk_new, f"({_PAGES}, SymInt topk, SymInt keys, {_OPTIONS}) -> Tensor", _new_of_pages)
define_out(paged_mqa_topk_out, f"({_PAGES}, SymInt keys, {_WRITTEN}, Tensor(d!)? logits, {_OPTIONS})")


def _select(
    new: Callable[..., Any],
    writes: Callable[..., Any],
    operands: tuple[Any, ...],
    count: tuple[str, int | None],
    outputs: Outputs,
    options: tuple[Any, ...],
    keys: tuple[int, ...] = (),
) -> Tensor:
    """Indices, or without any the histogram. `count`: what k is called, and k; `keys`: goes before options."""
    (name, k), (out, values, histogram, *logits) = count, outputs
    if (k is None) == (out is None):
        raise InvalidArgument(f"{name}: must be given where out is not, and only there; pass one of both")
    if k == 0 and histogram is None:
        raise InvalidArgument(f"{name}: is 0, which is for a histogram alone, and none is given; pass one of both")
    first, rest = (operands[:1], operands[1:]) if new is topk_new else (operands, ())
    if all(x is None for x in outputs):
        indices: Tensor = call(new, *first, k, *rest, *keys, *options)
        return indices
    check_grad(out, *(x for x in operands if x is not None), values)
    if out is None and k != 0:
        rows = operands[0].shape[0] if new is not paged_mqa_topk_new else operands[2].shape[0]
        out = operands[0].new_empty(rows, k, dtype=torch.int32)
    call(writes, *operands, *keys, out, values, histogram, *logits, *options)
    return histogram if out is None else out


def topk(
    logits: Tensor,
    k: int | None = None,
    *,
    out: Tensor | None = None,
    starts: Integers | None = None,
    ends: Integers | None = None,
    values: Tensor | None = None,
    histogram: Tensor | None = None,
    sorted: bool = False,
    num_sms: int = 0,
    pdl: bool = False,
) -> Tensor:
    """finegemm.topk as an operator of torch. Returns the columns [rows, k] of torch.int32.

    `out`: what is returned, instead of a new tensor of `k` columns. logits [rows, cols] of torch.float32; starts and
    ends [rows] are integers of any type, or lists. values [rows, k] of torch.float32 and histogram [rows, 256] of
    torch.int32 are written if given; with k = 0 the histogram is returned. The rest as in finegemm.topk. Backward
    through what autograd sees raises finegemm.Unsupported; what is written it does not see.
    """
    bounds = tuple(None if x is None else int32(x, logits.device) for x in (starts, ends))
    outputs, options = (out, values, histogram), (sorted, num_sms, pdl)
    return _select(topk_new, topk_out, (logits, *bounds), ("k", k), outputs, options)


def mqa_topk(
    q: Tensor,
    k: Tensor,
    sfk: Tensor,
    w: Tensor,
    starts: Integers,
    ends: Integers,
    topk: int | None = None,
    *,
    out: Tensor | None = None,
    values: Tensor | None = None,
    histogram: Tensor | None = None,
    logits: Tensor | None = None,
    sorted: bool = False,
    form: Literal["filled", "untouched"] = "filled",
    relu: Literal["exact", "abs"] = "exact",
    num_sms: int = 0,
    pdl: bool = False,
) -> Tensor:
    """finegemm.mqa_topk as an operator of torch. Returns the keys [S, topk] of torch.int32.

    Operands as in finegemm.torch.mqa_logits, outputs as in `topk`; `logits` [S, Skv] of torch.float32 is written if
    given, in `form`.
    """
    operands = (q, k, sfk, w, int32(starts, q.device), int32(ends, q.device))
    outputs, options = (out, values, histogram, logits), (sorted, form, relu, num_sms, pdl)
    return _select(mqa_topk_new, mqa_topk_out, operands, ("topk", topk), outputs, options)


def paged_mqa_topk(
    q: Tensor,
    cache: Tensor,
    w: Tensor,
    lengths: Integers,
    block_table: Tensor,
    topk: int | None = None,
    *,
    keys: int = 0,
    out: Tensor | None = None,
    values: Tensor | None = None,
    histogram: Tensor | None = None,
    logits: Tensor | None = None,
    sorted: bool = False,
    form: Literal["filled", "untouched"] = "filled",
    relu: Literal["exact", "abs"] = "exact",
    num_sms: int = 0,
    pdl: bool = False,
) -> Tensor:
    """finegemm.paged_mqa_topk as an operator of torch. Returns the keys [B * T, topk] of torch.int32.

    Operands as in finegemm.torch.paged_mqa_logits, outputs as in `mqa_topk`; `keys`: that a request has at most.
    """
    operands = (q, cache, w, int32(lengths, q.device), int32(block_table, q.device))
    outputs, options = (out, values, histogram, logits), (sorted, form, relu, num_sms, pdl)
    return _select(paged_mqa_topk_new, paged_mqa_topk_out, operands, ("topk", topk), outputs, options, (keys,))
