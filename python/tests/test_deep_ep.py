"""finegemm.deep_ep on ranks that are threads, against NumPy: what comes, in which order, what goes back."""

import concurrent.futures
import datetime

import numpy as np
import pytest

import finegemm
from torch_support import torch

distributed = pytest.importorskip("torch.distributed", reason="torch is built without torch.distributed")
if not (distributed.is_available() and distributed.is_gloo_available()):
    pytest.skip("torch is built without gloo", allow_module_level=True)
from finegemm import deep_ep  # noqa: E402

HIDDEN, CHOICES = 256, 3


def groups_of(ranks, threads):
    """A process group for each rank. Now and then Gloo finds a connection closed while all connect: they begin anew."""
    timeout = datetime.timedelta(seconds=5)
    for last in (False, False, True):
        store = distributed.HashStore()
        made = [threads.submit(distributed.ProcessGroupGloo, store, rank, ranks, timeout) for rank in range(ranks)]
        if last or not any(future.exception() for future in made):
            return [future.result() for future in made]


def on_ranks(ranks, call):
    """call(group) on a thread for each rank; the results."""
    with concurrent.futures.ThreadPoolExecutor(ranks) as threads:
        futures = [threads.submit(call, group) for group in groups_of(ranks, threads)]
    errors = [future.exception() for future in futures]
    for error in sorted(filter(None, errors), key=lambda e: "Timed out" in str(e)):
        raise error  # of the rank that others have waited for
    return [future.result() for future in futures]


class Tokens:
    """Of one rank: the same for all that ask."""

    def __init__(self, rank, ranks, experts, count=None):
        g = torch.Generator().manual_seed(rank)
        self.count = (5, 0, 17, 8)[rank % 4] if count is None else count
        self.x = torch.randn(self.count, HIDDEN, generator=g).bfloat16()
        odds = torch.rand(self.count, ranks * experts, generator=g)
        self.ids = odds.topk(min(CHOICES, ranks * experts), 1).indices
        self.ids[torch.rand(self.ids.shape, generator=g) < 0.2] = -1
        self.weights = torch.rand(self.ids.shape, generator=g)

    def ranks_of(self, experts):
        """Which each token goes to, in order."""
        return [sorted({i // experts for i in row if i >= 0}) for row in self.ids.tolist()]


def came_to(rank, ranks, experts):
    """(sender, token) of each row that comes there."""
    all_ = [Tokens(r, ranks, experts) for r in range(ranks)]
    return [(r, t) for r in range(ranks) for t, to in enumerate(all_[r].ranks_of(experts)) if rank in to]


def equal(found, wanted):
    assert found.dtype == wanted.dtype and found.shape == wanted.shape, (found.dtype, found.shape, wanted.shape)
    if found.numel():
        np.testing.assert_array_equal(found.contiguous().view(torch.uint8), wanted.contiguous().view(torch.uint8))


def dispatched(buffer, t, ranks, experts, **more):
    per_rank, _, per_expert, in_rank, event = buffer.get_dispatch_layout(t.ids, ranks * experts)
    return buffer.dispatch(
        more.pop("x", t.x),
        num_tokens_per_rank=per_rank,
        is_token_in_rank=in_rank,
        num_tokens_per_expert=per_expert,
        topk_idx=t.ids,
        topk_weights=t.weights,
        previous_event=event,
        **more,
    )


@pytest.mark.parametrize("ranks, experts", [(2, 4), (3, 1), (8, 2)])
def test_layouts_count_tokens_once_for_a_rank(ranks, experts):
    def one(group):
        t = Tokens(group.rank(), ranks, experts)
        buffer = deep_ep.Buffer(group)
        per_rank, of_hosts, per_expert, in_rank, _ = buffer.get_dispatch_layout(t.ids, ranks * experts)
        chosen = t.ranks_of(experts)
        assert of_hosts is None and in_rank.dtype == torch.bool
        assert [[r for r, here in enumerate(row) if here] for row in in_rank.tolist()] == chosen
        assert per_rank.tolist() == [sum(r in to for to in chosen) for r in range(ranks)]
        assert per_expert.tolist() == [int((t.ids == e).any(1).sum()) for e in range(ranks * experts)]
        assert per_rank.dtype == per_expert.dtype == torch.int32

    on_ranks(ranks, one)


@pytest.mark.parametrize("ranks, experts", [(1, 4), (2, 4), (3, 1), (5, 2), (8, 2)])
def test_tokens_come_in_the_order_of_ranks_and_go_back_as_sums(ranks, experts):
    def one(group):
        t, rank = Tokens(group.rank(), ranks, experts), group.rank()
        buffer = deep_ep.Buffer(group)
        x, ids, weights, numbers, handle, _ = dispatched(buffer, t, ranks, experts, expert_alignment=4)
        senders = [Tokens(r, ranks, experts) for r in range(ranks)]
        wanted = came_to(rank, ranks, experts)
        first = rank * experts

        def stacked(name, width):
            rows = [getattr(senders[r], name)[i] for r, i in wanted]
            return torch.stack(rows) if rows else getattr(t, name).new_empty(0, width)

        all_ids = stacked("ids", t.ids.shape[1])
        here = (all_ids >= first) & (all_ids < first + experts)
        equal(x, stacked("x", HIDDEN))
        equal(ids, torch.where(here, all_ids - first, -1))
        equal(weights, torch.where(here, stacked("weights", t.ids.shape[1]), 0))
        assert numbers == [-(-int((ids == e).any(1).sum()) // 4) * 4 for e in range(experts)]

        y, sums, _ = buffer.combine(x * 2, handle, topk_weights=weights)
        copies = torch.tensor([len(to) for to in t.ranks_of(experts)], dtype=torch.float32).view(-1, 1)
        equal(y, (t.x.float() * 2 * copies + 0).bfloat16())  # nobody's is 0, and not -0
        equal(sums, torch.where(t.ids >= 0, t.weights, 0))

        grads = torch.randn(t.x.shape, generator=torch.Generator().manual_seed(50 + rank)).bfloat16()
        again, *nothing, event = buffer.dispatch(grads, handle=handle)
        assert nothing == [None] * 4 and again.shape == x.shape
        biased, _, _ = buffer.combine(x, handle, bias=(grads, t.x))
        equal(biased, (t.x.float() * copies + grads.float() + t.x.float()).bfloat16())
        event.current_stream_wait()

    on_ranks(ranks, one)


def test_codes_travel_with_their_scales():
    ranks, experts = 4, 2

    def one(group):
        t = Tokens(group.rank(), ranks, experts)
        codes = (
            finegemm.quantize_rows(t.x)
            if t.count
            else (t.x.new_empty(0, HIDDEN, dtype=torch.float8_e4m3fn), t.x.new_empty(0, 2, dtype=torch.float32))
        )
        (q, scales), *_ = dispatched(deep_ep.Buffer(group), t, ranks, experts, x=codes)
        wanted = came_to(group.rank(), ranks, experts)
        senders = [
            finegemm.quantize_rows(Tokens(r, ranks, experts, max(1, Tokens(r, ranks, experts).count)).x)
            for r in range(ranks)
        ]
        assert wanted
        equal(q, torch.stack([senders[r][0][i].view(torch.uint8) for r, i in wanted]).view(torch.float8_e4m3fn))
        equal(scales, torch.stack([senders[r][1][i] for r, i in wanted]))

    on_ranks(ranks, one)


def test_a_worst_number_of_tokens_gives_the_same_rows_with_nobodys_behind():
    ranks, experts = 4, 2

    def one(group):
        t = Tokens(group.rank(), ranks, experts)
        buffer = deep_ep.Buffer(group)
        x, ids, weights, *_ = dispatched(buffer, t, ranks, experts)
        most = ranks * 17 + 3
        found, found_ids, found_weights, numbers, handle, _ = dispatched(
            buffer, t, ranks, experts, num_worst_tokens=most
        )
        rows = len(x)
        assert numbers == [] and len(found) == most
        equal(found[:rows], x), equal(found_ids[:rows], ids), equal(found_weights[:rows], weights)
        assert (found_ids[rows:] == -1).all() and not found_weights[rows:].any()
        y, _, _ = buffer.combine(found, handle)
        copies = torch.tensor([len(to) for to in t.ranks_of(experts)], dtype=torch.float32).view(-1, 1)
        equal(y, (t.x.float() * copies + 0).bfloat16())
        with pytest.raises(finegemm.Unsupported, match="handle: is of a dispatch with num_worst_tokens"):
            buffer.dispatch(t.x, handle=handle)

    on_ranks(ranks, one)


@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("hook", [False, True])
@pytest.mark.parametrize("ranks, experts", [(2, 4), (8, 1)])
def test_few_tokens_lie_with_their_experts_and_come_back_weighted(ranks, experts, fp8, hook):
    most = 18

    def one(group):
        t, rank = Tokens(group.rank(), ranks, experts), group.rank()
        buffer = deep_ep.Buffer(group, 0, 1, low_latency_mode=True, num_qps_per_rank=experts)
        stats = torch.full((experts,), 7, dtype=torch.int32)
        rows, numbers, handle, _, wait = buffer.low_latency_dispatch(
            t.x,
            t.ids,
            most,
            ranks * experts,
            cumulative_local_expert_recv_stats=stats,
            use_fp8=fp8,
            return_recv_hook=hook,
        )
        assert (wait is not None) == hook
        if hook:
            wait()
        senders = [Tokens(r, ranks, experts) for r in range(ranks)]
        wanted = [
            [(r, i) for r in range(ranks) for i, row in enumerate(senders[r].ids.tolist()) if e in row]
            for e in range(rank * experts, (rank + 1) * experts)
        ]
        assert numbers.tolist() == [len(rows) for rows in wanted] and numbers.dtype == torch.int32
        assert (stats - 7).tolist() == numbers.tolist()
        q, scales = rows if fp8 else (rows, None)
        assert q.shape == (experts, ranks * most, HIDDEN)
        y = torch.full(q.shape, float("nan"), dtype=torch.bfloat16)
        for e, there in enumerate(wanted):
            for at, (r, i) in enumerate(there):
                x = senders[r].x[i : i + 1]
                if fp8:
                    codes, of_codes = finegemm.quantize_rows(x)
                    equal(q[e, at].view(torch.uint8), codes[0].view(torch.uint8))
                    equal(scales[e, at], of_codes[0])
                else:
                    equal(q[e, at], x[0])
                y[e, at] = (x[0] * (rank * experts + e + 1)).bfloat16()
        assert scales is None or (scales.dtype == torch.float32 and scales.stride(1) == 1)
        zero_copy = buffer.get_next_low_latency_combine_buffer(handle)
        zero_copy.copy_(y)
        out = torch.full(t.x.shape, float("nan"), dtype=torch.bfloat16)
        found, _, wait = buffer.low_latency_combine(
            zero_copy, t.ids, t.weights, handle, zero_copy=True, return_recv_hook=hook, out=out
        )
        if hook:
            wait()
        assert found is out
        sums = np.zeros(t.x.shape, np.float32)
        for c in range(t.ids.shape[1]):
            row = (t.x * (t.ids[:, c : c + 1] + 1)).bfloat16().float().numpy()
            sums = np.where((t.ids[:, c : c + 1] >= 0).numpy(), sums + t.weights[:, c : c + 1].numpy() * row, sums)
        equal(out, torch.from_numpy(sums).bfloat16())

    on_ranks(ranks, one)


def experts_of(ranks, experts, pairs=128):
    g = torch.Generator().manual_seed(3)
    shapes = ((ranks * experts, 2 * pairs, HIDDEN), (ranks * experts, HIDDEN, pairs))
    parts = [torch.randn(s, generator=g) / s[-1] ** 0.5 for s in shapes]
    return [part for w in parts for part in finegemm.quantize_weights(w)[:2]]


def through_experts(q, scales, numbers, gate_up, gate_up_scales, down, down_scales):
    """Masked rows through both products."""
    experts, rows, _ = q.shape
    between = torch.empty(experts, rows, gate_up.shape[1], dtype=torch.bfloat16)
    finegemm.grouped_gemm(q, scales, gate_up, gate_up_scales, between, masked_m=numbers)
    act, act_scales = finegemm.swiglu_quantize(between, masked_m=numbers, to_bf16=True)
    y = torch.full(q.shape, float("nan"), dtype=torch.bfloat16)
    finegemm.grouped_gemm(act, act_scales, down, down_scales, y, masked_m=numbers)
    return y


def test_a_layer_of_few_tokens_has_the_bits_of_one_rank_whatever_is_in_flight():
    ranks, experts, most = 3, 2, 18
    every = experts_of(ranks, experts)

    def one(group):
        t, rank = Tokens(group.rank(), ranks, experts), group.rank()
        mine = [w[rank * experts : (rank + 1) * experts] for w in every]
        buffer = deep_ep.Buffer(group)
        halves = [slice(0, t.count // 2), slice(t.count // 2, None)]
        begun = [
            buffer.low_latency_dispatch(t.x[h], t.ids[h], most, ranks * experts, return_recv_hook=True) for h in halves
        ]
        back = []
        for half, ((q, scales), numbers, handle, _, hook) in zip(halves, begun, strict=True):
            hook()
            y = through_experts(q, scales, numbers, *mine)
            back.append(buffer.low_latency_combine(y, t.ids[half], t.weights[half], handle, return_recv_hook=True))
        for _, _, hook in back:
            hook()
        equal(torch.cat([out for out, _, _ in back]), finegemm.moe(t.x, t.ids, *every, t.weights))

    on_ranks(ranks, one)


def test_what_is_wrong_is_named():
    bf16, codes = (torch.zeros(4, HIDDEN, dtype=d) for d in (torch.bfloat16, torch.float8_e4m3fn))
    ids, odds = torch.zeros(4, 2, dtype=torch.int64), torch.zeros(4, 2)

    def one(group):
        b = deep_ep.Buffer(group)
        per_rank, _, per_expert, in_rank, _ = b.get_dispatch_layout(ids, 4)
        layout = {"num_tokens_per_rank": per_rank, "num_tokens_per_expert": per_expert, "is_token_in_rank": in_rank}
        *_, handle, _ = b.dispatch(bf16, **layout)
        low = b.low_latency_dispatch(bf16, ids, 4, 4)[2]
        rows = b.get_next_low_latency_combine_buffer(low).zero_()
        cases = [
            ("group: is None, must be a ProcessGroup", lambda: deep_ep.Buffer()),
            ("communicators of mpi4py are not served", lambda: deep_ep.Buffer(comm=1)),
            ("enable_shrink: ranks cannot be masked", lambda: deep_ep.Buffer(group, enable_shrink=True)),
            ("topk_idx: is torch.int32 [4, 2], must be of torch.int64", lambda: b.get_dispatch_layout(ids.int(), 4)),
            ("num_experts: is 0, must be a multiple", lambda: b.get_dispatch_layout(ids, 0)),
            ("x: is torch.float32 [4, 256], must be of torch.bfloat16", lambda: b.dispatch(bf16.float(), **layout)),
            ("x: has 1 tensors", lambda: b.dispatch((codes,), **layout)),
            ("x[1]: is torch.float32 [3, 2]", lambda: b.dispatch((codes, torch.zeros(3, 2)), **layout)),
            ("is_token_in_rank: is NoneType", lambda: b.dispatch(bf16, num_tokens_per_expert=per_expert)),
            ("num_tokens_per_rank: says 5 rows, but", lambda: b.dispatch(
                bf16, num_tokens_per_rank=per_rank + 1, num_tokens_per_expert=per_expert, is_token_in_rank=in_rank)),
            ("topk_weights: is NoneType", lambda: b.dispatch(bf16, topk_idx=ids, **layout)),
            ("topk_idx: is None", lambda: b.dispatch(bf16, num_worst_tokens=9, **layout)),
            ("num_worst_tokens: is 3, which is 3 for each rank", lambda: b.dispatch(
                bf16, topk_idx=ids, topk_weights=odds, num_worst_tokens=3, **layout)),
            ("x: is torch.bfloat16 [3, 256]", lambda: b.combine(bf16[:3], handle)),
            ("bias: is torch.bfloat16 [3, 256]", lambda: b.combine(bf16, handle, bias=bf16[:3])),
            ("num_max_dispatch_tokens_per_rank: is 3", lambda: b.low_latency_dispatch(bf16, ids, 3, 4)),
            ("use_ue8m0: packed scales", lambda: b.low_latency_dispatch(bf16, ids, 4, 4, use_ue8m0=True)),
            ("dispatch_wait_recv_cost_stats", lambda: b.low_latency_dispatch(bf16, ids, 4, 4, None, odds)),
            ("x: is torch.bfloat16 [4, 256]", lambda: b.low_latency_combine(bf16, ids, odds, low)),
            ("topk_idx: is torch.int64 [3, 2]", lambda: b.low_latency_combine(rows, ids[:3], odds, low)),
            ("out: is torch.float32", lambda: b.low_latency_combine(rows, ids, odds, low, out=bf16.float())),
            ("combine_wait_recv_cost_stats", lambda: b.low_latency_combine(
                rows, ids, odds, low, combine_wait_recv_cost_stats=odds)),
        ]  # fmt: skip
        for sentence, call in cases:
            with pytest.raises(finegemm.FineGemmError) as error:
                call()
            assert sentence in str(error.value), (sentence, str(error.value))

    on_ranks(1, one)
