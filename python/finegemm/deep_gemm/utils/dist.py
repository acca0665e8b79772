"""Processes with a GPU each."""

import os
from typing import Any

from finegemm.torch_module import torch

from ..operands import Tensor


def init_dist(local_rank: int, num_local_ranks: int) -> tuple[int, int, Any]:
    """Joins the process group of all nodes, by MASTER_ADDR, MASTER_PORT, WORLD_SIZE (nodes) and RANK (this node).

    Returns the rank, the number of ranks and the group; new tensors are on this rank's GPU afterwards.
    """
    address, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), os.environ.get("MASTER_PORT", "8361")
    nodes, node = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    torch.distributed.init_process_group(
        backend="nccl",
        init_method=f"tcp://{address}:{port}",
        world_size=nodes * num_local_ranks,
        rank=node * num_local_ranks + local_rank,
    )
    torch.set_default_device("cuda")
    torch.cuda.set_device(local_rank)
    ranks = torch.distributed.get_world_size()
    return torch.distributed.get_rank(), ranks, torch.distributed.new_group(list(range(ranks)))


def uneven_all_gather(tensor: Tensor, dim: int = 0, group: Any = None) -> Tensor:
    """The tensors of all ranks behind each other; only their extents in `dim` may differ."""
    ranks = torch.distributed.get_world_size(group)
    extent = torch.tensor([tensor.shape[dim]], dtype=torch.int64, device=tensor.device)
    extents = [torch.empty_like(extent) for _ in range(ranks)]
    torch.distributed.all_gather(extents, extent, group=group)
    counts = [int(x) for x in extents]

    first = tensor.movedim(dim, 0)
    mine = first.new_zeros(max(counts), *first.shape[1:])
    mine[: first.shape[0]] = first
    all_of_them = [torch.empty_like(mine) for _ in range(ranks)]
    torch.distributed.all_gather(all_of_them, mine, group=group)
    parts = [part[:count] for part, count in zip(all_of_them, counts, strict=True)]
    return torch.cat(parts).movedim(0, dim).contiguous()


def dist_print(s: str = "", once_in_node: bool = False) -> None:
    """Prints, on the first GPU of each node alone if asked, and waits for all ranks."""
    if not once_in_node or torch.cuda.current_device() == 0:
        print(s, flush=True)
    torch.distributed.barrier()
