"""Scores of an indexer for sparse attention, as declarations of native functions."""

import json
from typing import Any, Literal

from finegemm import _native
from finegemm.calls import T, Tensor, native
from finegemm.context import Context


@native
def mqa_logits(
    q: T,
    k: Tensor,
    sfk: Tensor,
    w: Tensor,
    starts: Tensor,
    ends: Tensor,
    d: T | None = None,
    *,
    form: Literal["filled", "untouched", "compressed"] = "filled",
    relu: Literal["exact", "abs"] = "exact",
    out_dtype: Literal["float32", "bfloat16"] | None = None,
    width: int | None = None,
    check_values: bool | None = None,
    num_sms: int = 0,
    pdl: bool = False,
    stream: Any = None,
    context: Context | None = None,
) -> T:
    """d[i, j] = sfk[j] * sum over heads h of relu(q[i, h] . k[j]) * w[i, h], if query i sees key j. Returns `d`.

    q [S, H, D], k [Skv, D]: float8_e4m3fn (or uint8, its bits), D contiguous; H of 8, 16, 32 or 64, D of 32, 64 or 128.
    sfk [Skv], w [S, H]: float32; scales of q belong into w. starts, ends [S]: int32. Query i sees the keys from
    starts[i] to before ends[i], none where that is not behind it; what lies outside of the keys is ignored. d: float32
    or bfloat16 (or uint16, its bits), rows contiguous; a new array of q's library when None, float32 if `out_dtype`
    says nothing else.

    `form`: "filled", d [S, Skv] is -inf where there is no logit; "untouched", nothing is written there, so a new d
    holds there whatever its memory held; "compressed", column 0 is of the first key that the query sees, and nothing
    is written behind the last. Then d is [S, width], and windows with more keys are cut.

    `relu`: "abs" is (x + |x|) / 2 with the linear half by itself, in e4m3: faster on a GPU with H of 32 or 64, and a
    little less accurate (docs/indexer.md has the bounds). With fewer heads, and of keys in pages, it is exact as well.

    On a GPU the numbers are read when the kernel runs, nothing waits for them; `check_values` looks first for windows
    that reach outside of the keys. The rest as in gemm.
    """


@native
def paged_mqa_logits(
    q: T,
    cache: Tensor,
    w: Tensor,
    lengths: Tensor,
    block_table: Tensor,
    schedule: Tensor | None = None,
    d: T | None = None,
    *,
    form: Literal["filled", "untouched"] = "filled",
    relu: Literal["exact", "abs"] = "exact",
    out_dtype: Literal["float32", "bfloat16"] | None = None,
    width: int | None = None,
    check_values: bool | None = None,
    num_sms: int = 0,
    pdl: bool = False,
    stream: Any = None,
    context: Context | None = None,
) -> T:
    """mqa_logits for decoding, with keys in the pages of a cache. Returns `d` [B * T, width].

    q [B, T, H, D] has the T queries, 1 to 8, of each request. cache [pages, P, 1, D + 4], or without the 1, or
    [pages, P * (D + 4)]: uint8 (or float8_e4m3fn); a page has the e4m3 codes of its P keys, and then their P scales, of
    float32. P is 4, 16, 32 or 64; pages may be apart. w [B * T, H]: float32. block_table [B, any]: int32; key p * P + s
    of request b is in slot s of page block_table[b, p]. lengths [B, T]: int32, how many keys each query sees, none more
    than the last one of its request; or [B], then query t sees lengths[b] - (T - 1 - t).

    `width`: of a new d; without it the keys of all pages of a row of block_table. Row b * T + t is of query t of
    request b. Slots and entries of block_table behind the keys may hold anything. `schedule`: what paged_mqa_schedule
    makes; it may be left out, as kernels of this version split the work by themselves. The rest as in mqa_logits.
    """


@native
def paged_mqa_schedule(
    lengths: T,
    slots: int | None = None,
    schedule: T | None = None,
    *,
    queries_each: int | None = None,
    pdl: bool = False,
    stream: Any = None,
    context: Context | None = None,
) -> T:
    """How work of paged_mqa_logits would be split over slots, as clients of DeepGEMM expect it. Returns `schedule`.

    lengths: as of paged_mqa_logits. `slots`: of a new schedule, most often the SMs of the GPU. schedule
    [slots + 1, 2]: int32, rows of where each slot begins, and the end. `queries_each`: T; the columns of lengths where
    it is not given.
    """


def explain_mqa(
    queries: int,
    keys: int,
    heads: int,
    dim: int,
    *,
    requests: int | None = None,
    page_size: int = 64,
    form: Literal["filled", "untouched", "compressed"] = "filled",
    relu: Literal["exact", "abs"] = "exact",
    out_dtype: Literal["float32", "bfloat16"] = "float32",
) -> dict[str, Any]:
    """Which kernel a GPU takes for mqa_logits, or with `requests` for paged_mqa_logits, and why.

    `queries`: S, or those of a request. `keys`: columns of d.
    """
    told: dict[str, Any] = json.loads(_native.explain_mqa(locals()))
    return told
