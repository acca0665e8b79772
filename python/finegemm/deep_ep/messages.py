"""Rows of several tensors as one message, and collectives of torch.distributed that take them to other ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

Tensor = Any  # torch's
Rows = list[Any]  # tensors with as many rows, [rows, columns]


def bytes_of(part: Tensor) -> Tensor:
    """[rows, bytes]; of no row, too, whose strides may be anything."""
    whole = part.contiguous() if part.numel() else part.new_empty(part.shape)
    return whole.view(torch.uint8)


def packed(parts: Sequence[Tensor]) -> Tensor:
    """[rows, bytes]: what each row has in all of them."""
    return torch.cat([bytes_of(part) for part in parts], 1)


def unpacked(message: Tensor, like: Sequence[Tensor]) -> Rows:
    """The rows of a message whose columns and types are those of `like`."""
    widths = [part.shape[1] * part.element_size() for part in like]
    columns = message.split(widths, 1)
    return [column.contiguous().view(part.dtype) for column, part in zip(columns, like, strict=True)]


def of_rows(part: Tensor, rows: Tensor) -> Tensor:
    """Those rows of a tensor of any type: index_select may not know it."""
    return bytes_of(part).index_select(0, rows).view(part.dtype)


def padded(part: Tensor, rows: int) -> Tensor:
    """With so many rows in all, zeros at the end."""
    return torch.nn.functional.pad(bytes_of(part), (0, 0, 0, rows - len(part))).view(part.dtype)


def exchange(group: Any, parts: Sequence[Tensor], send: list[int] | None = None, get: list[int] | None = None) -> Rows:
    """Rows for rank 0, rank 1 and so on, of which `send` says how many, for those of each rank: `get` says how many.

    Without numbers as many for each.
    """
    message = packed(parts)
    rows = len(message) if get is None else sum(get)
    came = message.new_empty(rows, message.shape[1])
    dist.all_to_all_single(came, message, get, send, group=group)
    return unpacked(came, parts)


def begin_exchange(group: Any, rows: Tensor) -> Callable[[], Tensor]:
    """As many rows for each rank. What is returned waits for those of the ranks, and returns them."""
    came = torch.empty_like(rows)
    work = dist.all_to_all_single(came, rows, group=group, async_op=True)

    def wait(keep: Tensor = rows) -> Tensor:
        work.wait()
        return came

    return wait


def begin_gather(group: Any, ranks: int, parts: Sequence[Tensor]) -> Callable[[], Rows]:
    """As many rows from each rank, for all. What is returned waits for those of rank 0, 1 and so on."""
    message = packed(parts)
    came = message.new_empty(ranks * len(message), message.shape[1])
    work = dist.all_gather_into_tensor(came, message, group=group, async_op=True)

    def wait(keep: Tensor = message) -> Rows:
        work.wait()
        return unpacked(came, parts)

    return wait
