"""Scores of an indexer: logits of multi-query attention, and the schedule that programs make for paged ones."""

from typing import Any

from finegemm import _native
from finegemm.context import default_handle
from finegemm.errors import FineGemmError, InvalidArgument, Unsupported
from finegemm.torch_module import torch
from finegemm.torch_operators import define, watched

from . import envs, knobs
from .operands import Tensor, as_written, integer, pair, refuse
from .utils.math import align

_PRODUCT_COLUMNS = 128  # heads of queries that are multiplied together: storage has rows for whole products
_ROW_BYTES, _MORE_KEYS = 1024, 256  # rows of storage are multiples of the first, and have room for the second
_FLOAT32 = None if torch is None else torch.float32
_WRITTEN = {
    "k": "kv[0]",
    "sfk": "kv[1]",
    "w": "weights",
    "starts": "cu_seq_len_k_start",
    "ends": "cu_seq_len_k_end",
    "cache": "kv_cache",
    "lengths": "context_lens",
    "schedule": "schedule_meta",
}


# Each calls its native function itself: calls would pay for another frame.


def mqa_logits(
    q: Tensor, k: Tensor, sfk: Tensor, w: Tensor, starts: Tensor, ends: Tensor, d: Tensor, form: str
) -> None:
    options, settings = knobs.of_call(d), envs.settings()
    options["form"] = form
    handle = default_handle() if settings.context is None else settings.context.handle
    try:
        _native.mqa_logits(handle, None, (q, k, sfk, w, starts, ends, d), options)
    except FineGemmError as e:
        raise as_written(e, **_WRITTEN) from None
    if settings.prints_configs:
        _print_config("mqa_logits", q, d, form)


def paged_mqa_logits(
    q: Tensor,
    cache: Tensor,
    w: Tensor,
    lengths: Tensor,
    block_table: Tensor,
    schedule: Tensor | None,
    d: Tensor,
    form: str,
) -> None:
    options, settings = knobs.of_call(d), envs.settings()
    options["form"] = form
    handle = default_handle() if settings.context is None else settings.context.handle
    try:
        _native.paged_mqa_logits(handle, None, (q, cache, w, lengths, block_table, schedule, d), options)
    except FineGemmError as e:
        raise as_written(e, **_WRITTEN) from None
    if settings.prints_configs:
        _print_config("paged_mqa_logits", q, d, form, requests=q.shape[0], page_size=cache.shape[1])


def _print_config(name: str, q: Tensor, d: Tensor, form: str, **of_pages: int) -> None:
    queries, heads, dim = q.shape[-3:]
    shape = {"queries": queries, "keys": d.shape[1], "heads": heads, "dim": dim, **of_pages}
    envs.print_mqa_config(name, **shape, form=form, out_dtype=str(d.dtype)[6:])


def paged_mqa_schedule(lengths: Tensor, schedule: Tensor, queries_each: int) -> None:
    settings = envs.settings()
    handle = default_handle() if settings.context is None else settings.context.handle
    try:
        _native.paged_mqa_schedule(
            handle, None, (lengths,), {"schedule": schedule, "queries_each": queries_each, "pdl": knobs.get_pdl()}
        )
    except FineGemmError as e:
        raise as_written(e, **_WRITTEN) from None


def _nothing(*arguments: Any) -> None:
    """What each returns, for tensors without data."""


define(
    mqa_logits,
    "(Tensor q, Tensor k, Tensor sfk, Tensor w, Tensor starts, Tensor ends, Tensor(a!) d, str form) -> ()",
    _nothing,
)
define(
    paged_mqa_logits,
    "(Tensor q, Tensor cache, Tensor w, Tensor lengths, Tensor block_table, Tensor? schedule, Tensor(a!) d, str form) "
    "-> ()",
    _nothing,
)
define(paged_mqa_schedule, "(Tensor lengths, Tensor(a!) schedule, SymInt queries_each) -> ()", _nothing)


def _queries(q: Any, dimensions: int) -> Tensor:
    """The matrix of a pair that has no scales, or a matrix by itself."""
    codes, scales = pair("q", q) if isinstance(q, (tuple, list)) else (q, None)
    if scales is not None:
        raise Unsupported(
            "q[1]: is given, but FP4 is for Blackwell GPUs (SM100); on Hopper pass FP8 and None, and multiply weights "
            "by the scales"
        )
    if codes.dim() != dimensions:
        raise InvalidArgument(f"q: has {codes.dim()} dimensions, must have {dimensions}; reshape it")
    return codes


def _storage(rows: int, width: int, pitch: int, dtype: Any, device: Any, storage_rows: int = 0) -> Tensor:
    """Logits [rows, width] in rows of at least `pitch` elements, of which there are at least `storage_rows`."""
    if dtype is not torch.float32 and dtype is not torch.bfloat16:
        raise InvalidArgument(f"logits_dtype: is {dtype}, must be torch.float32 or torch.bfloat16; convert the result")
    pitch = align(pitch, _ROW_BYTES // dtype.itemsize)
    memory = torch.empty(max(rows, storage_rows) * pitch, dtype=dtype, device=device)
    return memory.as_strided((rows, width), (pitch, 1))


def fp8_fp4_mqa_logits(
    q: Any,
    kv: Any,
    weights: Tensor,
    cu_seq_len_k_start: Tensor,
    cu_seq_len_k_end: Tensor,
    clean_logits: bool = True,
    max_seqlen_k: int = 0,
    logits_dtype: Any = _FLOAT32,
    schedule_meta: Any = None,
) -> Tensor:
    """Logits [S, Skv] of q [S, H, D] and kv, a pair of [Skv, D] and scales [Skv]; outside of windows -inf, or, without
    `clean_logits`, what the memory held.

    With `max_seqlen_k` [S, max_seqlen_k], and column 0 is of a window's first key; `clean_logits` must be False then.
    """
    if schedule_meta is not None:
        refuse(schedule_meta=schedule_meta)
    codes, (k, sfk) = _queries(q, 3), pair("kv", kv)
    max_seqlen_k = integer("max_seqlen_k", max_seqlen_k)
    if max_seqlen_k < 0:
        raise InvalidArgument(f"max_seqlen_k: is {max_seqlen_k}, must not be negative; 0 is for a column of each key")
    if max_seqlen_k and clean_logits:
        raise InvalidArgument(
            f"clean_logits: is set, but max_seqlen_k is {max_seqlen_k}, and rows of their own first key are not "
            "cleaned; pass False"
        )
    queries, heads, _ = codes.shape
    rows = align(queries, max(_PRODUCT_COLUMNS // max(heads, 1), 1))
    width = max_seqlen_k or k.shape[0]
    pitch = align(width, _MORE_KEYS) if max_seqlen_k else width + _MORE_KEYS
    d = _storage(queries, width, pitch, logits_dtype, codes.device, rows)
    form = "compressed" if max_seqlen_k else "filled" if clean_logits else "untouched"
    watched(mqa_logits)(codes, k, sfk, weights, cu_seq_len_k_start, cu_seq_len_k_end, d, form)
    return d


def fp8_mqa_logits(
    q: Any,
    kv: Any,
    weights: Tensor,
    cu_seq_len_k_start: Tensor,
    cu_seq_len_k_end: Tensor,
    clean_logits: bool = True,
    max_seqlen_k: int = 0,
) -> Tensor:
    """fp8_fp4_mqa_logits of q without scales, in float32."""
    return fp8_fp4_mqa_logits(q, kv, weights, cu_seq_len_k_start, cu_seq_len_k_end, clean_logits, max_seqlen_k)


_PAGE_SIZES = (4, 16, 32, 64)


def get_paged_mqa_logits_metadata(context_lens: Tensor, block_kv: int, num_sms: int, indices: Any = None) -> Tensor:
    """How paged logits are split over `num_sms` slots: int32 [num_sms + 1, 2]. context_lens: [B] or [B, next_n]."""
    if indices is not None:
        refuse(indices=indices)
    if integer("block_kv", block_kv) not in _PAGE_SIZES:
        raise InvalidArgument(f"block_kv: is {block_kv}, must be one of {_PAGE_SIZES}; pass the keys of a page")
    slots = integer("num_sms", num_sms)
    if slots < 1:
        raise InvalidArgument(f"num_sms: is {slots}, must be at least 1; pass the slots of the schedule")
    schedule = torch.empty((slots + 1, 2), dtype=torch.int32, device=context_lens.device)
    queries_each = context_lens.shape[1] if context_lens.dim() == 2 else 1
    watched(paged_mqa_schedule)(context_lens, schedule, queries_each)
    return schedule


def fp8_fp4_paged_mqa_logits(
    q: Any,
    kv_cache: Tensor,
    weights: Tensor,
    context_lens: Tensor,
    block_table: Tensor,
    schedule_meta: Tensor | None,
    max_context_len: int,
    clean_logits: bool = False,
    logits_dtype: Any = _FLOAT32,
    indices: Any = None,
    *,
    histogram: Any = None,
) -> Tensor:
    """Logits [B * next_n, max_context_len] of q [B, next_n, H, D] and the keys in pages, kv_cache [pages, P, 1, D + 4].

    Behind a query's own keys is what the memory held, or with `clean_logits` -inf.
    """
    if indices is not None or histogram is not None:
        refuse(indices=indices, histogram=histogram)
    codes, width = _queries(q, 4), integer("max_context_len", max_context_len)
    if width < 0:
        raise InvalidArgument(f"max_context_len: is {width}, must not be negative; pass the columns of the result")
    requests, queries, _, _ = codes.shape
    rows = requests * queries
    d = _storage(rows, width, align(width, _MORE_KEYS), logits_dtype, codes.device)
    form = "filled" if clean_logits else "untouched"
    watched(paged_mqa_logits)(codes, kv_cache, weights, context_lens, block_table, schedule_meta, d, form)
    return d


def fp8_paged_mqa_logits(
    q: Any,
    kv_cache: Tensor,
    weights: Tensor,
    context_lens: Tensor,
    block_table: Tensor,
    schedule_meta: Tensor | None,
    max_context_len: int,
    clean_logits: bool = False,
    indices: Any = None,
    *,
    histogram: Any = None,
) -> Tensor:
    """fp8_fp4_paged_mqa_logits of q without scales, in float32."""
    if indices is not None or histogram is not None:
        refuse(indices=indices, histogram=histogram)
    return fp8_fp4_paged_mqa_logits(
        q, kv_cache, weights, context_lens, block_table, schedule_meta, max_context_len, clean_logits
    )
