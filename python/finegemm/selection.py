"""The k largest numbers of each row, and of an indexer's scores, as declarations of native functions."""

import json
from typing import Any, Literal

from finegemm import _native
from finegemm.calls import T, Tensor, native
from finegemm.context import Context


@native
def topk(
    logits: T,
    k: int | None = None,
    indices: T | None = None,
    *,
    starts: Tensor | None = None,
    ends: Tensor | None = None,
    values: Tensor | None = None,
    histogram: Tensor | None = None,
    sorted: bool = False,
    num_sms: int = 0,
    pdl: bool = False,
    stream: Any = None,
    context: Context | None = None,
) -> T:
    """The columns of the k largest numbers of each row, by ascending column, or `sorted`. Returns `indices`.

    logits [rows, cols]: float32, rows contiguous. Of equal numbers those of lower columns are selected, and go first;
    -0 equals 0, and NaN is above all, as torch.topk has it. starts, ends [rows]: int32, of row i the numbers from
    column starts[i] to before ends[i] are looked at; without them all are. indices [rows, k]: int32, k from 1 to 2048,
    -1 where a row has fewer numbers; a new array when None, of as many columns as `k` says. values [rows, k]: float32,
    is written if given, -inf where there is no number.

    histogram [rows, 256]: int32, is written if given: how many numbers each bin has. Bins ascend with numbers, four
    for each power of two from 2^-15 to 2^16, those from 128 on of numbers from 0 on (docs/indexer_topk.md). With k = 0
    it is all that is made, and returned.
    """


@native
def mqa_topk(
    q: T,
    k: Tensor,
    sfk: Tensor,
    w: Tensor,
    starts: Tensor,
    ends: Tensor,
    topk: int | None = None,
    indices: T | None = None,
    *,
    values: Tensor | None = None,
    histogram: Tensor | None = None,
    logits: Tensor | None = None,
    sorted: bool = False,
    form: Literal["filled", "untouched"] = "filled",
    relu: Literal["exact", "abs"] = "exact",
    check_values: bool | None = None,
    num_sms: int = 0,
    pdl: bool = False,
    stream: Any = None,
    context: Context | None = None,
) -> T:
    """The keys of the `topk` largest logits of each query. Returns `indices` [S, topk].

    Exactly those that finegemm.topk selects from what mqa_logits returns; operands are as there, outputs as of topk.
    The logits of all queries are never in memory at once, but where `logits` [S, Skv], float32, is given: then it is
    written, as `form` says of mqa_logits.
    """


@native
def paged_mqa_topk(
    q: T,
    cache: Tensor,
    w: Tensor,
    lengths: Tensor,
    block_table: Tensor,
    topk: int | None = None,
    indices: T | None = None,
    *,
    keys: int = 0,
    values: Tensor | None = None,
    histogram: Tensor | None = None,
    logits: Tensor | None = None,
    sorted: bool = False,
    form: Literal["filled", "untouched"] = "filled",
    relu: Literal["exact", "abs"] = "exact",
    check_values: bool | None = None,
    num_sms: int = 0,
    pdl: bool = False,
    stream: Any = None,
    context: Context | None = None,
) -> T:
    """mqa_topk for decoding, with keys in the pages of a cache. Returns `indices` [B * T, topk], of keys of a request.

    Operands are as of paged_mqa_logits; key p * P + s of a request is in slot s of its page p. `keys`: that a request
    has at most, others are cut; 0: as many as block_table has room for. Memory is taken for as many, of some requests
    at once. logits [B * T, any]: float32, is written if given, and has a column for each key.
    """


def explain_topk(
    queries: int,
    keys: int,
    k: int,
    heads: int | None = None,
    dim: int | None = None,
    *,
    requests: int | None = None,
    page_size: int = 64,
    relu: Literal["exact", "abs"] = "exact",
    form: Literal["filled", "untouched"] = "filled",
    logits: bool = False,
    histogram: bool = False,
    sorted: bool = False,
    num_sms: int = 0,
    device: str | None = None,
) -> dict[str, Any]:
    """Which kernel selects on a GPU, and why: of topk, with `heads` of mqa_topk, with `requests` of paged_mqa_topk.

    `queries`: rows of topk's logits, S, or queries of a request. `keys`: columns of logits. `k`: columns of indices, 0
    for histograms alone. `logits`, `histogram`: are asked for. `device`: as in explain. Where logits are computed,
    "logits" says which kernel does that, and "steps" of how many rows at once.
    """
    told: dict[str, Any] = json.loads(_native.explain_topk(locals()))
    return told
