"""Dispatch and combine of few tokens, at a capacity: nothing waits for the GPU, and CUDA graphs may capture both.

Each rank has the tokens of all, and takes the rows of its experts from them. A row of bfloat16 comes back for each
choice, to the place of that choice, so that sums are those of one rank that has all experts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import finegemm

from .messages import Tensor, begin_exchange, begin_gather, padded


@dataclass(frozen=True)
class LowLatencyHandle:
    """Where the rows of a dispatch are."""

    inverse: Tensor  # int32 [ranks * most, k]: the row here of each choice of all tokens, -1: elsewhere
    most: int  # tokens of a rank
    tokens: int
    shape: tuple[int, int, int]  # of what combine takes


def dispatch(
    group: Any, x: Tensor, ids: Tensor, most: int, experts: int, fp8: bool, power_of_two: bool
) -> tuple[Any, Tensor, LowLatencyHandle, Callable[[], None]]:
    """Rows, their numbers, the handle; and what waits for them and fills these. experts: of each rank."""
    ranks, rank = group.size(), group.rank()
    tokens, hidden = x.shape
    parts = list(finegemm.quantize_rows(x, power_of_two_scales=power_of_two)) if fp8 else [x]
    parts.append(ids)
    parts = [padded(part, most) for part in parts]
    parts[-1][tokens:] = -1
    gathered = begin_gather(group, ranks, parts)
    rows = ranks * most
    q = x.new_empty(experts, rows, hidden, dtype=parts[0].dtype)
    scales = x.new_empty(experts, -(-hidden // 128), rows, dtype=torch.float32).transpose(1, 2) if fp8 else None
    numbers = ids.new_empty(experts, dtype=torch.int32)
    inverse = ids.new_empty(rows, ids.shape[1], dtype=torch.int32)
    handle = LowLatencyHandle(inverse, most, tokens, (experts, rows, hidden))

    def finish() -> None:
        came, *scales_came, ids_came = gathered()
        finegemm.route(ids_came, experts, inverse, numbers, form="masked_m", first=rank * experts, rows=rows)
        finegemm.permute_quantize(came, inverse, q, scales, x_scales=scales_came[0] if fp8 else None)

    return (q, scales) if fp8 else q, numbers, handle, finish


def combine(
    group: Any, y: Tensor, ids: Tensor, weights: Tensor, handle: LowLatencyHandle, experts: int, out: Tensor
) -> Callable[[], None]:
    """Sends rows back; what is returned waits for those of this rank's tokens, and sums them to `out`."""
    choices = ids.shape[1]
    sent = y.reshape(-1, y.shape[2]).index_select(0, handle.inverse.flatten().clamp(min=0))
    came = begin_exchange(group, sent)
    places = torch.arange(ids.numel(), device=ids.device).view(ids.shape) + ids // experts * (handle.most * choices)
    inverse = torch.where(ids >= 0, places, -1).to(torch.int32)

    def finish() -> None:
        finegemm.combine(came(), inverse, weights, out)

    return finish
