"""Layers of experts over ranks, and checks of them: bits are those of finegemm.moe with the experts of all ranks."""

from typing import Any, NamedTuple

import torch

import finegemm
from finegemm import ep


class Weights(NamedTuple):
    gate_up: torch.Tensor
    gate_up_scales: torch.Tensor
    down: torch.Tensor
    down_scales: torch.Tensor

    def of(self, rank: int, experts: int) -> "Weights":
        return Weights(*(w[rank * experts : (rank + 1) * experts] for w in self))


def weights_of(experts: int, hidden: int, pairs: int, seed: int, device: str) -> Weights:
    g = torch.Generator(device).manual_seed(seed)

    def codes(*shape: int) -> torch.Tensor:  # from 1/4 to 1, or below 0
        x = torch.randint(0x28, 0x38, shape, dtype=torch.uint8, device=device, generator=g)
        sign = torch.randint(0, 2, shape, dtype=torch.uint8, device=device, generator=g)
        return (x | sign << 7).view(torch.float8_e4m3fn)

    def scales(rows: int, cols: int) -> torch.Tensor:
        shape = (experts, -(-rows // 128), -(-cols // 128))
        return 0.01 + torch.rand(shape, device=device, generator=g) / 64

    return Weights(
        codes(experts, 2 * pairs, hidden),
        scales(2 * pairs, hidden),
        codes(experts, hidden, pairs),
        scales(hidden, pairs),
    )


class Tokens(NamedTuple):
    x: torch.Tensor
    ids: torch.Tensor
    weights: torch.Tensor


def tokens_of(count: int, hidden: int, choices: int, experts: int, seed: int, device: str, kind: str) -> Tokens:
    """`kind`: even, zipf, one (all to the last rank's experts) or mixed (some choose nobody)."""
    g = torch.Generator(device).manual_seed(seed)
    odds = torch.ones(experts, device=device)
    if kind == "zipf":  # the same experts are liked on all ranks
        order = torch.randperm(experts, device=device, generator=torch.Generator(device).manual_seed(1))
        odds = 1 / (1 + order.float())
    if kind == "one":
        odds[: experts // 2] = 0
    ids = (
        torch.multinomial(odds.expand(max(count, 1), experts), choices, generator=g)[:count]
        if choices <= int((odds > 0).sum())
        else torch.zeros(count, choices, dtype=torch.int64, device=device)
    )
    if kind == "mixed":
        ids = torch.where(torch.rand(ids.shape, device=device, generator=g) < 0.2, -1, ids)
    x = torch.randn(count, hidden, device=device, generator=g).bfloat16()
    return Tokens(x, ids, torch.rand(count, choices, device=device, generator=g))


def same(name: str, found: torch.Tensor, wanted: torch.Tensor) -> None:
    if n := int((found.view(torch.int16) != wanted.view(torch.int16)).sum()):
        raise AssertionError(f"{name}: {n} of {found.numel()} elements differ")


class Rank:
    """A rank, with two communicators of the same ranks where two parts of a layer are to be in flight."""

    def __init__(self, communicator: ep.Communicator, other: ep.Communicator | None = None):
        self.c, self.other = communicator, other
        self.device = "cpu" if communicator.device < 0 else f"cuda:{communicator.device}"

    def memory(self, tokens: int, choices: int, weights: Weights) -> ep.PeerMemory:
        experts, hidden, pairs = weights.down.shape
        return ep.PeerMemory(self.c, tokens, choices, hidden, pairs, experts)

    def wait(self) -> None:
        if self.device != "cpu":
            self.c.wait(torch.cuda.current_stream())


def check(rank: Rank, rounds: int) -> dict[str, Any]:
    """Bits of one rank that has all experts, whatever tokens, choices and capacity."""
    c, device, experts, hidden, pairs = rank.c, rank.device, 4, 512, 256
    weights = weights_of(experts * c.ranks, hidden, pairs, 7, device)
    mine = weights.of(c.rank, experts)
    layers = 0
    for i, kind in enumerate(("mixed", "even", "zipf", "one") * rounds):
        choices = 1 + i % 4
        count = (0, 1, 5, 33, 70)[(i + c.rank * 2) % 5]
        t = tokens_of(count, hidden, choices, experts * c.ranks, 100 * i + c.rank, device, kind)
        wanted = finegemm.moe(t.x, t.ids, *weights, weights=t.weights)
        peers, most = rank.memory(70, choices, mine), 70 * choices
        for capacity, memory in ((0, None), (most, None), (most + 3, None), (most, peers), (most + 3, peers)):
            counts = torch.full((c.ranks,), -1, dtype=torch.int32, device=device)
            found = ep.moe(c, t.x, t.ids, *mine, weights=t.weights, capacity=capacity, counts=counts, memory=memory)
            rank.wait()
            same(f"{kind}, {count} tokens, capacity {capacity}, {'memory' if memory else 'messages'}", found, wanted)
            chosen = [int(((t.ids >= 0) & (t.ids // experts == r)).sum()) for r in range(c.ranks)]
            assert counts.tolist() == chosen, (counts, chosen)
            layers += 1
    memory = rank.memory(9, 1, mine)
    check_overflow(rank, mine, weights, None)
    check_overflow(rank, mine, weights, memory)
    return {"layers": layers, "reached": memory.reached}


def check_overflow(rank: Rank, mine: Weights, weights: Weights, memory: ep.PeerMemory | None) -> None:
    """Tokens whose choice has no place are NaN, the others as ever, and the error names the rank."""
    c, experts = rank.c, len(mine.gate_up)
    t = tokens_of(9, mine.gate_up.shape[2], 1, experts * c.ranks, 5, rank.device, "even")
    t.ids.fill_(0)
    wanted = finegemm.moe(t.x, t.ids, *weights, weights=t.weights)
    found = ep.moe(c, t.x, t.ids, *mine, weights=t.weights, capacity=6, memory=memory)
    rank.wait()
    same("tokens that fit", found[:6], wanted[:6])
    assert bool(found[6:].isnan().all()), "tokens that do not fit are not NaN"
    try:
        ep.moe(c, t.x, t.ids, *mine, weights=t.weights, capacity=6, memory=memory, check_values=True)
        raise AssertionError("an overflow was not found")
    except finegemm.InvalidArgument as e:
        assert "rank 0 (experts 0 to" in str(e) and "9 times" in str(e), e


def check_graph(rank: Rank, replays: int, peers: bool = False) -> dict[str, Any]:
    """Replays of a graph with routing that changes, and two layers in flight on two streams; through memory of all."""
    c, device, experts, hidden, pairs, count, choices = rank.c, rank.device, 4, 512, 256, 40, 3
    weights = weights_of(experts * c.ranks, hidden, pairs, 8, device)
    mine = weights.of(c.rank, experts)
    t = tokens_of(count, hidden, choices, experts * c.ranks, c.rank, device, "even")
    out, wanted = torch.empty_like(t.x), torch.empty_like(t.x)

    memories = [rank.memory(count, choices, mine) if peers else None for _ in range(2)]

    def call() -> None:
        ep.moe(c, t.x, t.ids, *mine, weights=t.weights, capacity=count * choices, out=out, memory=memories[0])

    graph = captured(call)
    g = torch.Generator(device).manual_seed(c.rank)
    wrong = torch.zeros((), dtype=torch.int64, device=device)
    for _ in range(replays):
        t.ids.copy_(torch.randint(-1, experts * c.ranks, t.ids.shape, device=device, generator=g))
        t.x.normal_(generator=g)
        graph.replay()
        finegemm.moe(t.x, t.ids, *weights, weights=t.weights, out=wanted)
        wrong += (out.view(torch.int16) != wanted.view(torch.int16)).sum()
    rank.wait()
    if n := int(wrong):
        raise AssertionError(f"{n} elements of replays differ")
    streams = [torch.cuda.Stream() for _ in range(2)]
    outs = [torch.empty_like(t.x) for _ in streams]
    torch.cuda.synchronize()
    for _ in range(20):
        for stream, to, memory in zip(streams, outs, memories, strict=True):
            with torch.cuda.stream(stream):
                ep.moe(c, t.x, t.ids, *mine, weights=t.weights, capacity=count * choices, out=to, memory=memory)
    for stream, to in zip(streams, outs, strict=True):
        c.wait(stream)
        same("a layer on a stream of its own", to, wanted)
    return {"replays": replays}


def check_many(rank: Rank) -> dict[str, Any]:
    """So many rows that results travel beside products, again and again: the bits of messages."""
    c, device, experts, hidden, pairs, count, choices = rank.c, rank.device, 8, 1024, 512, 1500, 4
    weights = weights_of(experts, hidden, pairs, 9 + c.rank, device)
    t = tokens_of(count, hidden, choices, experts * c.ranks, 3 + c.rank, device, "zipf")
    capacity, memory = count * choices, rank.memory(count, choices, weights)
    wanted = ep.moe(c, t.x, t.ids, *weights, weights=t.weights, capacity=capacity)
    rank.wait()
    out, wrong = torch.empty_like(wanted), torch.zeros((), dtype=torch.int64, device=device)

    def call() -> None:
        ep.moe(c, t.x, t.ids, *weights, weights=t.weights, capacity=capacity, out=out, memory=memory)

    replay = captured(call).replay
    for i in range(200):
        (call if i % 2 else replay)()
        wrong += (out.view(torch.int16) != wanted.view(torch.int16)).sum()
    rank.wait()
    if n := int(wrong):
        raise AssertionError(f"{n} elements of calls with many rows differ")
    return {"repeats": 200}


def captured(call) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # torch.distributed has threads of its own; torch's own stream for captures is of the device that was first.
    with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
        call()
    return graph
