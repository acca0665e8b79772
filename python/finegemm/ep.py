"""A layer of experts over several ranks: communicators, and `moe`, in which tokens travel to their experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from finegemm import _native
from finegemm.calls import T, Tensor, native
from finegemm.context import Context, default_handle, handle_of

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from finegemm.four_bit import FourBitWeights

__all__ = ["Communicator", "PeerMemory", "communicator_id", "moe", "workspace_bytes"]


def _options(timeout: float, nccl_path: str | None) -> dict[str, Any]:
    return {"timeout": timeout, "nccl_path": nccl_path}


def communicator_id(*, nccl_path: str | None = None, context: Context | None = None) -> bytes:
    """Names a communicator that is about to be made: one rank calls it and hands the 128 bytes to all others.

    nccl_path: as of Communicator. Unsupported where NCCL is missing.
    """
    handle = default_handle() if context is None else handle_of(context)
    return _native.communicator_id(handle, {"nccl_path": nccl_path})


class Communicator:
    """One of several ranks that exchange rows, each with a GPU of its own: returns when all ranks have come.

    id: of communicator_id, the same on all; device: index of the GPU. timeout: seconds after which a rank that has not
    come ends the communicator. nccl_path: a libnccl.so.2 or its folder; None: that of the process, torch's say, of pip
    or of the system. All ranks make the same calls with it in the same order; where one does not come in time, calls of
    the others raise PeerError, and the ranks that are left can make another. NCCL_NVLS_ENABLE is set to 0 for the
    process.
    """

    def __init__(
        self,
        id: bytes,
        rank: int,
        ranks: int,
        device: int,
        *,
        timeout: float = 30.0,
        nccl_path: str | None = None,
        context: Context | None = None,
    ) -> None:
        where = {"id": id, "rank": rank, "ranks": ranks, "device": device}
        handle = default_handle() if context is None else handle_of(context)
        self._adopt(_native.communicator(handle, where | _options(timeout, nccl_path)))

    def _adopt(self, handle: Any) -> Communicator:
        self.handle = handle
        self.rank, self.ranks, self.device = _native.communicator_place(handle)
        return self

    @classmethod
    def from_torch(
        cls,
        group: ProcessGroup | None = None,
        device: int | None = None,
        *,
        timeout: float = 30.0,
        nccl_path: str | None = None,
        context: Context | None = None,
    ) -> Communicator:
        """The ranks of a process group of torch.distributed, the default one for None, whatever its backend.

        device: None is torch.cuda's current one.
        """
        import torch
        import torch.distributed as dist

        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        made = [communicator_id(nccl_path=nccl_path, context=context) if rank == 0 else None]
        dist.broadcast_object_list(made, src=dist.get_global_rank(group, 0) if group else 0, group=group)
        name = made[0]
        assert name is not None  # rank 0's
        where = torch.cuda.current_device() if device is None else device
        return cls(name, rank, ranks, where, timeout=timeout, nccl_path=nccl_path, context=context)

    @classmethod
    def of_threads(cls, ranks: int, *, timeout: float = 30.0) -> list[Communicator]:
        """Ranks on the CPU, each for a thread of its own; their `device` is -1."""
        handles = _native.communicators_of_threads({"ranks": ranks} | _options(timeout, None))
        return [cls.__new__(cls)._adopt(handle) for handle in handles]

    def wait(self, stream: Any = None) -> None:
        """Returns when all that is queued on a stream has been done; torch.cuda.synchronize waits for a lost rank
        without end. stream: a number, or what has one as cuda_stream; None: the default stream. PeerError."""
        _native.communicator_wait(self.handle, int(getattr(stream, "cuda_stream", stream) or 0))

    def end(self) -> None:
        """Ends it, here and, of threads, for all; kernels that wait for other ranks end."""
        _native.communicator_end(self.handle)


class PeerMemory:
    """Memory of all ranks of a communicator that each of them reaches: with it rows travel without messages.

    Returns when all ranks have called it. tokens: the most that any rank passes in a call, the same number on all;
    choices, hidden, intermediate and experts: k, H, I and E of calls, E on each rank. There are at most 64 ranks. Ranks
    of threads reach each other; GPUs of one host where they have peer access, also from different processes. reached:
    whether all do; where they do not, calls exchange messages. bytes: that each rank has taken. Layers whose calls are
    in flight together have one each; it goes when calls of all ranks with it have ended. InvalidArgument, DriverError,
    PeerError.
    """

    def __init__(
        self,
        communicator: Communicator,
        tokens: int,
        choices: int,
        hidden: int,
        intermediate: int,
        experts: int,
    ) -> None:
        shape = {"tokens": tokens, "choices": choices, "hidden": hidden, "intermediate": intermediate}
        self.communicator = communicator  # which goes after it
        self.handle = _native.peer_memory(communicator.handle, shape | {"experts": experts})
        self.reached, self.bytes = _native.peer_memory_facts(self.handle)


@native
def moe(
    communicator: Communicator,
    x: T,
    ids: Tensor,
    gate_up: Tensor | FourBitWeights[Any],
    gate_up_scales: Tensor | None,
    down: Tensor | FourBitWeights[Any],
    down_scales: Tensor | None,
    weights: Tensor | None = None,
    out: T | None = None,
    *,
    capacity: int = 0,
    counts: Tensor | None = None,
    memory: PeerMemory | None = None,
    x_scales: Tensor | None = None,
    gate_limit: float = 0.0,
    gate_alpha: float = 1.0,
    up_offset: float = 0.0,
    f32_between: bool = False,
    power_of_two_scales: bool = False,
    fused: bool | None = None,
    expected_m: int = 0,
    workspace: Tensor | None = None,
    numerics: Literal["fast", "exact", "hopper"] = "fast",
    num_sms: int = 0,
    pdl: bool = False,
    check_values: bool | None = None,
    stream: Any = None,
    context: Context | None = None,
) -> T:
    """The layer of finegemm.moe, whose experts are those of all ranks of a communicator; each passes tokens of its own.

    The E experts of gate_up [E, 2 * I, H] and down [E, H, I], as finegemm.moe has them, have the ids from rank * E on.
    x [T, H], ids [T, k] and weights [T, k]: T may differ between ranks, and be 0; k, H, I and E are the same on all,
    and there are at most 1024 experts. Rows travel in e4m3 with their scales, quantised once, and come back in
    bfloat16; sums follow the order of a token's choices. Returns `out` [T, H] with the bits of one rank that has all
    experts.

    capacity: rows from each rank to each other, the same on all ranks; nothing waits for the GPU then, and a CUDA graph
    may capture the call. A choice that does not fit makes its token NaN; check_values, which waits for the result,
    raises InvalidArgument that names the rank. 0: as many as are chosen, which ranks tell each other first: the call
    waits for the GPU. counts: int32 [ranks], written: how many rows this rank has for each, fitting or not. memory:
    of this communicator, for calls with a capacity: takes the place of messages. workspace: uint8 [n], n of
    workspace_bytes, where there is a capacity. Others: as of finegemm.moe. PeerError where a rank does
    not come.
    """


def workspace_bytes(
    tokens: int,
    choices: int,
    hidden: int,
    intermediate: int,
    experts: int,
    *,
    ranks: int,
    capacity: int,
    f32_between: bool = False,
    fused: bool | None = None,
) -> int:
    """Memory that moe takes for such a call with `experts` on each rank, in bytes."""
    return _native.ep_moe_workspace_bytes(locals())
