"""Rows of tokens to the ranks of their experts and back, as DeepEP's Buffer has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch

from finegemm.errors import InvalidArgument, Unsupported

from . import low_latency, normal
from .config import Config
from .messages import Tensor
from .missing import methods_missing
from .utils import EventHandle, EventOverlap


def _shape_of(name: str, x: Any, shape: tuple[int | None, ...], *dtypes: Any) -> None:
    """Raises InvalidArgument for what has another shape or type; None: any extent."""
    if (
        isinstance(x, torch.Tensor)
        and x.dim() == len(shape)
        and all(want is None or have == want for have, want in zip(x.shape, shape, strict=True))
        and (not dtypes or x.dtype in dtypes)
    ):
        return
    extents = ", ".join("any" if extent is None else str(extent) for extent in shape)
    came = f"{x.dtype} {list(x.shape)}" if isinstance(x, torch.Tensor) else type(x).__name__
    kinds = " or ".join(map(str, dtypes)) if dtypes else "any type"
    raise InvalidArgument(f"{name}: is {came}, must be of {kinds} and [{extents}]")


def _rows(x: Any) -> tuple[list[Tensor], bool]:
    """x as its tensors, and whether it is e4m3 with scales."""
    scaled = isinstance(x, tuple | list)
    if not scaled:
        _shape_of("x", x, (None, None), torch.bfloat16)
        return [x], False
    if len(x) != 2:
        raise InvalidArgument(f"x: has {len(x)} tensors, must be one of bfloat16, or e4m3 and its scales")
    _shape_of("x[0]", x[0], (None, None), torch.float8_e4m3fn)
    _shape_of("x[1]", x[1], (len(x[0]), None))
    return list(x), True


def _biases(bias: Any, tokens: int, hidden: int) -> tuple[Tensor, ...]:
    all_ = () if bias is None else tuple(bias) if isinstance(bias, tuple | list) else (bias,)
    for one in all_:
        _shape_of("bias", one, (tokens, hidden), torch.bfloat16)
    return all_


def _wait_for(event: EventOverlap | None) -> None:
    if event is not None:
        event.current_stream_wait()


def _done(recorded: bool = True) -> EventOverlap:
    return EventOverlap(EventHandle() if recorded else None)


@methods_missing
class Buffer:
    """Dispatch and combine over the ranks of a process group of torch.distributed, by its own all-to-all.

    group: of any backend that has all-to-all, NCCL on GPUs. num_nvl_bytes, num_rdma_bytes: kept; calls take the memory
    that they need from torch. The other arguments are those of DeepEP and have no effect. All work is queued on the
    current stream, events that are returned are recorded there, and `previous_event` is waited for.
    """

    num_sms: ClassVar[int] = 20

    def __init__(
        self,
        group: Any = None,
        num_nvl_bytes: int = 0,
        num_rdma_bytes: int = 0,
        low_latency_mode: bool = False,
        num_qps_per_rank: int = 24,
        allow_nvlink_for_low_latency_mode: bool = True,
        allow_mnnvl: bool = False,
        use_fabric: bool = False,
        explicitly_destroy: bool = False,
        enable_shrink: bool = False,
        comm: Any = None,
    ) -> None:
        if group is None:
            way_out = "communicators of mpi4py are not served; make a group of torch.distributed"
            raise (InvalidArgument if comm is None else Unsupported)(
                f"group: is None, must be a ProcessGroup: {way_out}"
            )
        if enable_shrink:
            raise Unsupported("enable_shrink: ranks cannot be masked; make another group of those that are left")
        self.group, self.rank, self.group_size = group, group.rank(), group.size()
        self.num_nvl_bytes, self.num_rdma_bytes = num_nvl_bytes, num_rdma_bytes
        self.low_latency_mode, self.explicitly_destroy = low_latency_mode, explicitly_destroy

    def destroy(self) -> None:
        """Nothing is kept: the group stays as it is."""

    @staticmethod
    def is_sm90_compiled() -> bool:
        """True."""
        return True

    @staticmethod
    def set_num_sms(new_num_sms: int) -> None:
        """Is kept, as num_sms of configs."""
        Buffer.num_sms = new_num_sms

    @staticmethod
    def capture() -> EventOverlap:
        """An event of the current stream, now."""
        return _done()

    @staticmethod
    def get_dispatch_config(num_ranks: int) -> Config:
        """A Config for any number of ranks."""
        return Config(Buffer.num_sms)

    @staticmethod
    def get_combine_config(num_ranks: int) -> Config:
        """A Config for any number of ranks."""
        return Config(Buffer.num_sms)

    @staticmethod
    def get_low_latency_rdma_size_hint(
        num_max_dispatch_tokens_per_rank: int, hidden: int, num_ranks: int, num_experts: int
    ) -> int:
        """Bytes of the rows, of bfloat16, that a rank has of such a dispatch for all of its experts.

        Calls take such memory from torch; the Buffer has none.
        """
        return num_max_dispatch_tokens_per_rank * hidden * 2 * max(num_experts, num_ranks)

    def get_comm_stream(self) -> Any:
        """torch's current stream, on which all is queued."""
        return torch.cuda.current_stream()

    def get_dispatch_layout(
        self,
        topk_idx: Tensor,
        num_experts: int,
        previous_event: EventOverlap | None = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor, Tensor, EventOverlap]:
        """What the tokens of topk_idx [T, k], int64, choose: -1 is nobody.

        Returns (num_tokens_per_rank [ranks], None, num_tokens_per_expert [num_experts], both int32, is_token_in_rank
        [T, ranks], bool, event). A token that chooses several experts of a rank counts there once.
        """
        _shape_of("topk_idx", topk_idx, (None, None), torch.int64)
        experts = self._experts_here(num_experts)
        _wait_for(previous_event)
        tokens, wide = len(topk_idx), num_experts + 1  # one more for nobody
        ids = torch.where((topk_idx >= 0) & (topk_idx < num_experts), topk_idx, num_experts)
        chosen = torch.zeros(tokens, wide, dtype=torch.int32, device=ids.device)
        chosen.scatter_(1, ids, 1)
        chosen = chosen[:, :num_experts]
        in_rank = (
            chosen.view(tokens, self.group_size, experts).any(2) if tokens else chosen[:, : self.group_size].bool()
        )
        per_rank = in_rank.sum(0, dtype=torch.int32)
        return per_rank, None, chosen.sum(0, dtype=torch.int32), in_rank, _done(async_finish)

    def _experts_here(self, num_experts: int) -> int:
        if num_experts < 1 or num_experts % self.group_size:
            raise InvalidArgument(
                f"num_experts: is {num_experts}, must be a multiple of the group's {self.group_size} ranks, which have "
                f"as many each"
            )
        ranks: int = self.group_size
        return num_experts // ranks

    def dispatch(
        self,
        x: Any,
        handle: normal.Handle | None = None,
        num_tokens_per_rank: Tensor | None = None,
        num_tokens_per_rdma_rank: Tensor | None = None,
        is_token_in_rank: Tensor | None = None,
        num_tokens_per_expert: Tensor | None = None,
        topk_idx: Tensor | None = None,
        topk_weights: Tensor | None = None,
        expert_alignment: int = 1,
        num_worst_tokens: int = 0,
        config: Config | None = None,
        previous_event: EventOverlap | None = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[Any, Tensor | None, Tensor | None, list[int] | None, normal.Handle | None, EventOverlap]:
        """Takes tokens to the ranks that have experts of theirs, in the order of ranks and of their tokens.

        x: bfloat16 [T, H], or (e4m3 [T, H], scales [T, any]). Numbers and is_token_in_rank: of get_dispatch_layout.
        topk_idx, int64, and topk_weights, float32 [T, k], go along. Returns (x of R rows, topk_idx [R, k] of experts
        here from 0 on, -1 for others, topk_weights, 0 for those, rows of each expert here rounded up to
        expert_alignment, a handle, an event). The host waits for the GPU, as it must learn R.

        num_worst_tokens: returns so many rows, the last of which have ids of -1, and an empty list; nothing waits. A
        rank has at most an equal share of them in tokens. handle: rows of another x go where those of that dispatch
        went; the result is x and the event alone.
        """
        parts, scaled = _rows(x)
        _wait_for(previous_event)
        if handle is not None:
            came = normal.again(self.group, parts, handle)
            return tuple(came) if scaled else came[0], None, None, None, None, _done(async_finish)
        tokens = len(parts[0])
        _shape_of("is_token_in_rank", is_token_in_rank, (tokens, self.group_size), torch.bool)
        _shape_of("num_tokens_per_expert", num_tokens_per_expert, (None,), torch.int32)
        experts = self._experts_here(len(num_tokens_per_expert))  # type: ignore[arg-type]
        choices = None
        if topk_idx is not None:
            _shape_of("topk_idx", topk_idx, (tokens, None), torch.int64)
            choices = topk_idx.shape[1]
            _shape_of("topk_weights", topk_weights, (tokens, choices), torch.float32)
            parts += [topk_weights, topk_idx]
        if num_worst_tokens > 0:
            handle, came = self._in_places(is_token_in_rank, parts, choices, num_worst_tokens)
            numbers = []
        else:
            _shape_of("num_tokens_per_rank", num_tokens_per_rank, (self.group_size,), torch.int32)
            numbers_of = (num_tokens_per_rank, num_tokens_per_expert)
            handle, rows = normal.exactly(self.group, is_token_in_rank, *numbers_of, choices)
            numbers = [-(-n // expert_alignment) * expert_alignment for n in rows.tolist()]
            came = normal.again(self.group, parts, handle)
        ids = weights = None
        if choices is not None:
            ids, weights = normal.local_ids(came.pop(), self.rank, experts), came.pop()
            weights = torch.where(ids >= 0, weights, 0)
        return tuple(came) if scaled else came[0], ids, weights, numbers, handle, _done(async_finish)

    def _in_places(self, in_rank: Tensor, parts: list[Tensor], choices: int | None, rows: int) -> Any:
        capacity = rows // self.group_size
        if choices is None:
            raise InvalidArgument("topk_idx: is None, must be given where num_worst_tokens is")
        if len(in_rank) > capacity:
            raise InvalidArgument(
                f"num_worst_tokens: is {rows}, which is {capacity} for each rank, but x has {len(in_rank)} tokens; "
                f"pass {self.group_size} times the most tokens of a rank"
            )
        return normal.in_places(self.group, in_rank, capacity, choices, parts, rows)

    def combine(
        self,
        x: Tensor,
        handle: normal.Handle,
        topk_weights: Tensor | None = None,
        bias: Any = None,
        config: Config | None = None,
        previous_event: EventOverlap | None = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[Tensor, Tensor | None, EventOverlap]:
        """Takes rows back to their tokens, which get the sum over ranks, in float32 and rounded once.

        x: bfloat16 [R, H], a row for each that came by the dispatch of `handle`. topk_weights, float32 [R, k], are
        added up likewise. bias: bfloat16 [T, H], or two of them, added last. Returns (sums [T, H], of weights [T, k],
        an event).
        """
        _shape_of("x", x, (handle.rows, None), torch.bfloat16)
        if topk_weights is not None:
            _shape_of("topk_weights", topk_weights, (handle.rows, None), torch.float32)
        _wait_for(previous_event)
        biases = _biases(bias, len(handle.inverse), x.shape[1])
        out, weights = normal.combine(self.group, x, handle, topk_weights, biases)
        return out, weights, _done(async_finish)

    internode_dispatch = dispatch
    internode_combine = combine

    def clean_low_latency_buffer(self, num_max_dispatch_tokens_per_rank: int, hidden: int, num_experts: int) -> None:
        """Nothing is kept that had to be cleaned."""

    def low_latency_dispatch(
        self,
        x: Tensor,
        topk_idx: Tensor,
        num_max_dispatch_tokens_per_rank: int,
        num_experts: int,
        cumulative_local_expert_recv_stats: Tensor | None = None,
        dispatch_wait_recv_cost_stats: Tensor | None = None,
        use_fp8: bool = True,
        round_scale: bool = False,
        use_ue8m0: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
    ) -> tuple[Any, Tensor, low_latency.LowLatencyHandle, EventOverlap, Callable[[], None] | None]:
        """Takes tokens to their experts at a capacity: nothing waits for the GPU, and CUDA graphs may capture it.

        x: bfloat16 [T, H]; topk_idx: int64 [T, k], -1 for nobody; T is at most num_max_dispatch_tokens_per_rank, the
        same on all ranks. Returns (rows, int32 numbers of rows [E] of the E experts here, a handle, an event, a hook).
        Rows: bfloat16 [E, ranks * most, H], or with use_fp8 (e4m3 [E, ranks * most, H], float32 scales [E,
        ranks * most, ceil(H / 128)] with rows contiguous), quantised as quantize_rows does, round_scale to scales that
        are powers of two. Rows of an expert are in the order of ranks and tokens; behind their number nothing is
        written. cumulative_local_expert_recv_stats: int32 [E], to which numbers are added. With return_recv_hook rows
        and numbers are there when hook() has been called, and travel meanwhile.
        """
        _shape_of("x", x, (None, None), torch.bfloat16)
        _shape_of("topk_idx", topk_idx, (len(x), None), torch.int64)
        experts, most = self._experts_here(num_experts), num_max_dispatch_tokens_per_rank
        if len(x) > most:
            raise InvalidArgument(
                f"num_max_dispatch_tokens_per_rank: is {most}, but x has {len(x)} tokens; pass the most of all ranks"
            )
        if use_ue8m0:
            raise Unsupported("use_ue8m0: packed scales are for Blackwell GPUs (SM100); pass round_scale alone")
        if dispatch_wait_recv_cost_stats is not None:
            raise Unsupported("dispatch_wait_recv_cost_stats: waits of ranks are not measured; leave it out")
        rows, numbers, handle, wait = low_latency.dispatch(self.group, x, topk_idx, most, experts, use_fp8, round_scale)

        def finish() -> None:
            wait()
            if cumulative_local_expert_recv_stats is not None:
                cumulative_local_expert_recv_stats.add_(numbers)

        if not return_recv_hook:
            finish()
        return rows, numbers, handle, _done(async_finish), finish if return_recv_hook else None

    def low_latency_combine(
        self,
        x: Tensor,
        topk_idx: Tensor,
        topk_weights: Tensor,
        handle: low_latency.LowLatencyHandle,
        use_logfmt: bool = False,
        zero_copy: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
        out: Tensor | None = None,
        combine_wait_recv_cost_stats: Tensor | None = None,
    ) -> tuple[Tensor, EventOverlap, Callable[[], None] | None]:
        """Takes the experts' rows back and sums them by topk_weights, in float32, in the order of choices.

        x: bfloat16, as the rows of that dispatch lie; topk_idx, topk_weights [T, k], float32: those of its tokens. out:
        bfloat16 [T, H]. Returns (out, an event, a hook), the hook as that of the dispatch. use_logfmt, zero_copy: rows
        travel in bfloat16, from where they lie.
        """
        _shape_of("x", x, handle.shape, torch.bfloat16)
        _shape_of("topk_idx", topk_idx, (handle.tokens, handle.inverse.shape[1]), torch.int64)
        _shape_of("topk_weights", topk_weights, tuple(topk_idx.shape), torch.float32)
        if combine_wait_recv_cost_stats is not None:
            raise Unsupported("combine_wait_recv_cost_stats: waits of ranks are not measured; leave it out")
        out = x.new_empty(handle.tokens, x.shape[2]) if out is None else out
        _shape_of("out", out, (handle.tokens, x.shape[2]), torch.bfloat16)
        finish = low_latency.combine(self.group, x, topk_idx, topk_weights, handle, handle.shape[0], out)
        if not return_recv_hook:
            finish()
        return out, _done(async_finish), finish if return_recv_hook else None

    def get_next_low_latency_combine_buffer(self, handle: low_latency.LowLatencyHandle) -> Tensor:
        """New memory for what low_latency_combine takes, bfloat16 as the rows of that dispatch lie."""
        return torch.empty(handle.shape, dtype=torch.bfloat16, device=handle.inverse.device)
