#!/usr/bin/env python3
"""A layer of experts over several ranks, which each have some of the experts and tokens of their own.

    expert_parallel.py [RANKS]                         a process for each GPU, or a thread for each rank without GPUs
    torchrun --nproc-per-node=GPUS expert_parallel.py  the processes of torch.distributed

Each rank compares what it gets with the layer of one rank that has all experts: the bits are the same.
Needs: pip install ".[numpy]" in this repository, NumPy 2 or later; torch if there are GPUs to use
"""

import concurrent.futures
import multiprocessing
import os
import sys
from typing import Any

import numpy as np

import finegemm
from finegemm import ep

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 256, 128, 4, 2  # EXPERTS: of each rank
TOKENS = (12, 0, 7, 30)  # of rank 0, 1, ...


def weights(ranks: int, on: Any) -> list[Any]:
    """Codes and scales of all experts. A program loads those of its rank alone."""
    random = np.random.default_rng(1)
    shapes = ((ranks * EXPERTS, 2 * INTERMEDIATE, HIDDEN), (ranks * EXPERTS, HIDDEN, INTERMEDIATE))
    parts = [on(random.normal(size=s).astype(np.float32) / s[-1] ** 0.5) for s in shapes]
    return [part for w in parts for part in finegemm.quantize_weights(w)[:2]]


def rank_of_layer(communicator: ep.Communicator, on: Any, bf16: Any) -> None:
    """One rank's part. on: makes a tensor of its device, bf16: of bfloat16."""
    rank, ranks = communicator.rank, communicator.ranks
    random = np.random.default_rng(10 + rank)
    tokens = TOKENS[rank % len(TOKENS)]
    x = bf16(random.normal(size=(tokens, HIDDEN)).astype(np.float32))
    ids = on(random.integers(ranks * EXPERTS, size=(tokens, TOP_K)))
    odds = on(random.random((tokens, TOP_K), dtype=np.float32))
    every = weights(ranks, on)
    mine = [part[rank * EXPERTS : (rank + 1) * EXPERTS] for part in every]

    exactly = ep.moe(communicator, x, ids, *mine, odds)  # ranks tell each other how many rows come
    placed = ep.moe(communicator, x, ids, *mine, odds, capacity=max(TOKENS) * TOP_K)  # nothing waits for the host
    if communicator.device >= 0:
        communicator.wait()
    wanted = finegemm.moe(x, ids, *every, odds)
    for out in (exactly, placed):
        if not bool((bits(out) == bits(wanted)).all()):
            raise SystemExit(f"rank {rank}: the bits differ from those of one rank")
    print(f"rank {rank} of {ranks}: {tokens} tokens, the bits of one rank")


def bits(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return x.view(np.uint16)
    import torch

    return x.view(torch.int16)


def on_gpu(communicator: ep.Communicator) -> None:
    import torch

    torch.cuda.set_device(communicator.device)
    rank_of_layer(communicator, lambda a: torch.from_numpy(a).cuda(), lambda a: torch.from_numpy(a).bfloat16().cuda())


def plain_process(name: bytes, rank: int, ranks: int) -> None:
    on_gpu(ep.Communicator(name, rank, ranks, rank))


def on_threads(ranks: int) -> None:
    import ml_dtypes

    def one(communicator: ep.Communicator) -> None:
        rank_of_layer(communicator, lambda a: a, lambda a: a.astype(ml_dtypes.bfloat16))

    with concurrent.futures.ThreadPoolExecutor(ranks) as threads:
        list(threads.map(one, ep.Communicator.of_threads(ranks)))


def gpus() -> int:
    try:
        import torch
    except ImportError:
        return 0
    return int(torch.cuda.device_count())


def main() -> None:
    if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun started this
        import torch
        import torch.distributed

        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.distributed.init_process_group("nccl")
        on_gpu(ep.Communicator.from_torch())
        torch.distributed.destroy_process_group()
        return
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else max(gpus(), 2)
    if gpus() < ranks:
        return on_threads(ranks)
    spawn, name = multiprocessing.get_context("spawn"), ep.communicator_id()
    processes = [spawn.Process(target=plain_process, args=(name, rank, ranks)) for rank in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit("a rank has failed")


if __name__ == "__main__":
    main()
