"""Dispatch and combine of many tokens: a token travels once to each rank that has some of its experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

import finegemm
from finegemm.errors import InvalidArgument, Unsupported

from .messages import Rows, Tensor, begin_gather, exchange, of_rows, padded

MOST_ADDED = 16  # rows of a sum


@dataclass(frozen=True)
class Handle:
    """Where the rows of a dispatch came from, and where they go back to."""

    send: list[int] | None  # rows for each rank; None: as many for each, in places
    get: list[int] | None  # from each rank
    tokens: Tensor  # int64: of each row that is sent
    inverse: Tensor  # int32 [T, columns]: where the rows of each token come back, -1: nowhere
    order: Tensor | None  # int64: the place of each row that came, where these are in places
    rows: int  # that a combine takes


def columns_of(rows: Tensor, most: int) -> Tensor:
    """[T, ranks], -1 where there is none, without so many of those that only `most` are left, in order."""
    if rows.shape[1] <= most:
        return rows
    return rows.gather(1, (rows < 0).to(torch.uint8).argsort(dim=1, stable=True)[:, :most])


def exactly(
    group: Any, in_rank: Tensor, per_rank: Tensor, per_expert: Tensor, choices: int | None
) -> tuple[Handle, Tensor]:
    """The handle, and how many rows come for each expert here: a tensor of the host. Waits for the GPU."""
    ranks = group.size()
    told = torch.cat([per_rank.view(ranks, 1), per_expert.view(ranks, -1)], 1).to(torch.int64)
    (came,) = exchange(group, [told])
    numbers = torch.cat([told, came]).cpu()
    send, get = numbers[:ranks, 0].tolist(), numbers[ranks:, 0].tolist()
    by_rank = in_rank.t().contiguous()
    tokens = by_rank.nonzero()[:, 1]
    if len(tokens) != sum(send):
        raise InvalidArgument(
            f"num_tokens_per_rank: says {sum(send)} rows, but is_token_in_rank has {len(tokens)}; pass both as "
            f"get_dispatch_layout returns them"
        )
    places = (by_rank.flatten().cumsum(0).view(by_rank.shape) - 1).t()
    rows = torch.where(in_rank, places, -1).to(torch.int32)
    most = min(ranks, choices) if choices is not None else int(in_rank.sum(1).max()) if len(in_rank) else 1
    inverse = columns_of(rows, max(most, 1)).contiguous()
    return Handle(send, get, tokens, inverse, None, sum(get)), numbers[ranks:, 1:].sum(0)


def in_places(
    group: Any, in_rank: Tensor, capacity: int, choices: int, parts: Rows, all_rows: int
) -> tuple[Handle, Rows]:
    """A capacity of rows for each rank, whose places are those of the tokens; nothing waits for the GPU.

    The last of `parts` are ids of experts of all ranks. Rows that no expert here is for come last.
    """
    ranks, tokens = group.size(), len(in_rank)
    *came, wanted = begin_gather(group, ranks, [padded(part, capacity) for part in (*parts, in_rank.to(torch.uint8))])()
    mine = wanted[:, group.rank()]
    order = mine.argsort(descending=True, stable=True)
    places = torch.arange(tokens, device=in_rank.device).view(-1, 1)
    places = places + capacity * torch.arange(ranks, device=in_rank.device)
    rows = columns_of(torch.where(in_rank, places, -1).to(torch.int32), min(ranks, choices)).contiguous()
    at = torch.arange(tokens, device=in_rank.device)
    handle = Handle(None, None, at, rows, order, all_rows)
    came[-1] = torch.where(mine.bool().view(-1, 1), came[-1], -1)
    came = [padded(of_rows(part, order), all_rows) for part in came]
    came[-1][len(order) :] = -1
    return handle, came


def again(group: Any, parts: Rows, handle: Handle) -> Rows:
    """The rows of other tensors, as a dispatch before."""
    if handle.send is None:
        raise Unsupported(
            "handle: is of a dispatch with num_worst_tokens, which has no other rows; leave num_worst_tokens out there"
        )
    return exchange(group, [of_rows(part, handle.tokens) for part in parts], handle.send, handle.get)


def local_ids(ids: Tensor, rank: int, experts: int) -> Tensor:
    """Of experts here, from 0 on; -1 for those of other ranks."""
    here = ids - rank * experts
    return torch.where((here >= 0) & (here < experts), here, -1)


def combine(
    group: Any, x: Tensor, handle: Handle, weights: Tensor | None, bias: Sequence[Tensor]
) -> tuple[Tensor, Tensor | None]:
    """Sums of the rows that come back, in the order of ranks, and of their weights."""
    parts = [x] if weights is None else [x, weights]
    if handle.order is not None:
        placed = []
        for part in parts:
            placed.append(torch.empty_like(part[: len(handle.order)]))
            placed[-1][handle.order] = part[: len(handle.order)]
        came = exchange(group, placed)
    else:
        came = exchange(group, parts, handle.get, handle.send)
    rows, inverse = came[0], handle.inverse
    if bias:
        tokens = torch.arange(len(inverse), dtype=torch.int32, device=inverse.device).view(-1, 1)
        inverse = torch.cat([inverse, *(len(rows) + i * len(tokens) + tokens for i in range(len(bias)))], 1)
        rows = torch.cat([rows, *bias])
    if inverse.shape[1] > MOST_ADDED:
        raise Unsupported(
            f"combine: adds {inverse.shape[1]} rows for a token, but {MOST_ADDED} at most; choose fewer experts"
        )
    out = x.new_empty(len(inverse), x.shape[1])
    if not len(rows):
        out.zero_()
    elif len(out):
        finegemm.combine(rows, inverse, None, out)
    return out, None if weights is None else sums_of(came[1], handle.inverse)


def sums_of(weights: Tensor, inverse: Tensor) -> Tensor:
    """Of rows of float32, in the order of columns."""
    out = weights.new_zeros(len(inverse), weights.shape[1])
    if len(weights):
        for rows in inverse.unbind(1):
            out += torch.where((rows >= 0).view(-1, 1), weights.index_select(0, rows.clamp(min=0)), 0)
    return out
