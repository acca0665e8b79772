"""Checks and times layers of experts over GPUs of one host, a process for each: what ep_*.json records.

`--cpu` runs the checks on threads. Bits are those of finegemm.moe with the experts of all ranks.
"""

import argparse
import json
import multiprocessing
import pathlib
import statistics
import threading
import time
from typing import Any, NamedTuple

import torch

import finegemm
from finegemm import ep

# Name, hidden, intermediate, choices.
LAYERS = (("DeepSeek-V4-Flash", 4096, 2048, 6), ("DeepSeek-V3", 7168, 2048, 8))
EXPERTS = 32  # of a rank
TOKENS = (8, 64, 512, 1024, 4096, 8192)


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
        codes(experts, 2 * pairs, hidden), scales(2 * pairs, hidden), codes(experts, hidden, pairs), scales(hidden, pairs)
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
    def __init__(self, communicator: ep.Communicator):
        self.c = communicator
        self.device = "cpu" if communicator.device < 0 else f"cuda:{communicator.device}"

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
        for capacity in (0, 70 * choices, 70 * choices + 3):
            counts = torch.full((c.ranks,), -1, dtype=torch.int32, device=device)
            found = ep.moe(c, t.x, t.ids, *mine, weights=t.weights, capacity=capacity, counts=counts)
            rank.wait()
            same(f"{kind}, {count} tokens, capacity {capacity}", found, wanted)
            chosen = [int(((t.ids >= 0) & (t.ids // experts == r)).sum()) for r in range(c.ranks)]
            assert counts.tolist() == chosen, (counts, chosen)
            layers += 1
    check_overflow(rank, mine, weights)
    return {"layers": layers}


def check_overflow(rank: Rank, mine: Weights, weights: Weights) -> None:
    """Tokens whose choice has no place are NaN, the others as ever, and the error names the rank."""
    c, experts = rank.c, len(mine.gate_up)
    t = tokens_of(9, mine.gate_up.shape[2], 1, experts * c.ranks, 5, rank.device, "even")
    t.ids.fill_(0)
    wanted = finegemm.moe(t.x, t.ids, *weights, weights=t.weights)
    found = ep.moe(c, t.x, t.ids, *mine, weights=t.weights, capacity=6)
    rank.wait()
    same("tokens that fit", found[:6], wanted[:6])
    assert bool(found[6:].isnan().all()), "tokens that do not fit are not NaN"
    try:
        ep.moe(c, t.x, t.ids, *mine, weights=t.weights, capacity=6, check_values=True)
        raise AssertionError("an overflow was not found")
    except finegemm.InvalidArgument as e:
        assert "rank 0 (experts 0 to" in str(e) and "9 times" in str(e), e


def check_graph(rank: Rank, replays: int) -> dict[str, Any]:
    """Replays of a graph with routing that changes, and two layers in flight on two streams."""
    c, device, experts, hidden, pairs, count, choices = rank.c, rank.device, 4, 512, 256, 40, 3
    weights = weights_of(experts * c.ranks, hidden, pairs, 8, device)
    mine = weights.of(c.rank, experts)
    t = tokens_of(count, hidden, choices, experts * c.ranks, c.rank, device, "even")
    out, wanted = torch.empty_like(t.x), torch.empty_like(t.x)

    def call() -> None:
        ep.moe(c, t.x, t.ids, *mine, weights=t.weights, capacity=count * choices, out=out)

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
        for stream, to in zip(streams, outs, strict=True):
            with torch.cuda.stream(stream):
                ep.moe(c, t.x, t.ids, *mine, weights=t.weights, capacity=count * choices, out=to)
    for stream, to in zip(streams, outs, strict=True):
        c.wait(stream)
        same("a layer on a stream of its own", to, wanted)
    return {"replays": replays}


def captured(call) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def us_of(calls: dict[str, Any], rounds: int) -> dict[str, float]:
    """Microseconds between events, one after the other, median; L2 is flushed before each, and ranks meet there."""
    flush = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    one = torch.zeros(1, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(rounds + 1):
        for name, call in calls.items():
            flush.zero_()
            torch.distributed.all_reduce(one)
            a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            a.record()
            call()
            b.record()
            torch.cuda.synchronize()
            if i:
                times[name].append(1000 * a.elapsed_time(b))
    return {name: statistics.median(t) for name, t in times.items()}


def nccl_us(call, rounds: int) -> list[float]:
    """Durations of NCCL's kernels of a call, in their order, median over calls."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as trace:
        for _ in range(rounds):
            call()
            torch.cuda.synchronize()
    events = sorted((e for e in trace.events() if "nccl" in e.name.lower() and e.device_type.name == "CUDA"),
                    key=lambda e: e.time_range.start)
    each = len(events) // rounds
    runs = [[e.time_range.elapsed_us() for e in events[i * each : (i + 1) * each]] for i in range(rounds)]
    return [statistics.median(t) for t in zip(*runs, strict=True)] if each else []


def time_layer(rank: Rank, layer: tuple, tokens: int, kind: str, weights: Weights, rounds: int) -> dict[str, Any]:
    name, hidden, pairs, choices = layer
    c, device, experts = rank.c, rank.device, EXPERTS * rank.c.ranks
    all_tokens = [tokens_of(tokens, hidden, choices, experts, 10 + r, device, kind) for r in range(c.ranks)]
    t = all_tokens[c.rank]
    chosen = torch.stack([torch.bincount((x.ids // EXPERTS).flatten(), minlength=c.ranks) for x in all_tokens]).tolist()
    capacity = -(-max(map(max, chosen)) // 16) * 16
    out = torch.empty_like(t.x)
    memory = torch.empty(
        ep.workspace_bytes(tokens, choices, hidden, pairs, EXPERTS, ranks=c.ranks, capacity=capacity),
        dtype=torch.uint8, device=device,
    )

    def with_capacity() -> None:
        ep.moe(c, t.x, t.ids, *weights, weights=t.weights, capacity=capacity, out=out, workspace=memory)

    def exact() -> None:
        ep.moe(c, t.x, t.ids, *weights, weights=t.weights, out=out)

    # The same tokens and these experts, without the other ranks.
    every = Tokens(*(torch.cat(parts) for parts in zip(*all_tokens, strict=True)))
    local_out = torch.empty_like(every.x)
    arrive = sum(row[c.rank] for row in chosen)

    def local() -> None:
        finegemm.moe(every.x, every.ids, *weights, weights=every.weights, first=c.rank * EXPERTS, out=local_out,
                     expected_m=-(-arrive // EXPERTS))

    row_bytes = -(-(hidden + hidden // 32 + 8) // 32) * 32
    sizes = [[n * row_bytes for n in chosen[c.rank]], [row[c.rank] * row_bytes for row in chosen]]
    back = [[row[c.rank] * 2 * hidden for row in chosen], [n * 2 * hidden for n in chosen[c.rank]]]

    def bare(split: list[list[int]]):
        given, taken = (torch.empty(sum(part), dtype=torch.uint8, device=device) for part in split)
        return lambda: torch.distributed.all_to_all_single(taken, given, split[1], split[0])

    def bare_places(bytes_each: int):
        given, taken = (torch.empty(c.ranks * bytes_each, dtype=torch.uint8, device=device) for _ in range(2))
        return lambda: torch.distributed.all_to_all_single(taken, given)

    dispatch, combine = bare(sizes), bare(back)
    placed = [bare_places(capacity * row_bytes), bare_places(capacity * 2 * hidden)]
    calls = {"exact": exact, "local": local, "bare dispatch": dispatch, "bare combine": combine,
             "bare places": lambda: [f() for f in placed]}
    if tokens <= 1024:
        calls["graph"] = captured(with_capacity).replay
    else:
        calls["capacity"] = with_capacity
    us = us_of(calls, rounds)
    kernels = {"layer": nccl_us(with_capacity, 5), "bare": nccl_us(lambda: [f() for f in placed], 5)}
    return {
        "layer": name, "kind": kind, "tokens": tokens, "capacity": capacity, "rows": arrive,
        "us": {k: round(v, 1) for k, v in us.items()},
        "nccl_us": {k: [round(x, 1) for x in v] for k, v in kernels.items()},
        "bytes": [sum(sizes[0]), sum(back[0])],
    }


def lose_a_rank(rank: Rank) -> dict[str, Any]:
    """The last rank does not come: the others are told by its name in time, and their GPUs go on."""
    c = rank.c
    if c.rank == c.ranks - 1:
        time.sleep(6)
        return {}
    weights = weights_of(2, 512, 256, 3, rank.device)
    t = tokens_of(8, 512, 2, 2 * c.ranks, 1, rank.device, "even")
    begin = time.perf_counter()
    ep.moe(c, t.x, t.ids, *weights, weights=t.weights, capacity=16)
    try:
        rank.wait()
        raise AssertionError("nobody missed the rank")
    except finegemm.PeerError as e:
        said, took = str(e), time.perf_counter() - begin
    assert f"rank {c.ranks - 1} (experts" in said and took < 5, (said, took)
    torch.cuda.synchronize()
    assert float((torch.ones(4, device=rank.device) + 1).sum()) == 8
    return {"said": said, "seconds": round(took, 2)}


def process(index: int, options: argparse.Namespace, name: bytes, queue) -> None:
    torch.cuda.set_device(index)
    torch.distributed.init_process_group(
        "nccl", init_method="tcp://127.0.0.1:29517", rank=index, world_size=options.ranks, device_id=torch.device("cuda", index)
    )
    rank = Rank(ep.Communicator(name, index, options.ranks, index))
    told: dict[str, Any] = {}
    try:
        told["check"] = check(rank, 1)
        told["graph"] = check_graph(rank, options.replays)
        rows = []
        for layer in LAYERS:
            weights = weights_of(EXPERTS, layer[1], layer[2], 20 + index, rank.device)
            for tokens in options.tokens:
                for kind in ("even", "zipf"):
                    rows.append(time_layer(rank, layer, tokens, kind, weights, options.rounds))
                    if index == 0:
                        print(time.strftime("%T"), rows[-1], flush=True)
        told["rows"] = rows
        told["lost"] = lose_a_rank(Rank(ep.Communicator.from_torch(timeout=2)))
    except Exception as e:  # the other ranks would wait
        told["error"] = f"{type(e).__name__}: {e}"
        print(index, told["error"], flush=True)
    queue.put((index, told))


def on_threads(ranks: int) -> None:
    errors = []

    def one(communicator: ep.Communicator) -> None:
        try:
            print(communicator.rank, check(Rank(communicator), 1))
        except BaseException as e:
            errors.append(e)
            communicator.abort()

    threads = [threading.Thread(target=one, args=(c,)) for c in ep.Communicator.of_threads(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--tokens", type=lambda text: [int(x) for x in text.split(",")], default=list(TOKENS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--replays", type=int, default=1000)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--commit", default="")
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    if options.cpu:
        return on_threads(options.ranks)
    spawn = multiprocessing.get_context("spawn")
    queue, name = spawn.Queue(), ep.communicator_id()
    processes = [spawn.Process(target=process, args=(r, options, name, queue)) for r in range(options.ranks)]
    for p in processes:
        p.start()
    told = dict(queue.get() for _ in processes)
    card = torch.cuda.get_device_name(0)
    print(card, {r: {k: v for k, v in t.items() if k != "rows"} for r, t in told.items()})
    if options.out:
        method = f"events between flushes of L2 at which ranks meet, median of {options.rounds}; nccl_us: CUPTI"
        record = {"gpu": card, "commit": options.commit, "ranks": options.ranks, "method": method, "told": told}
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    if errors := [t["error"] for t in told.values() if "error" in t]:
        raise SystemExit("; ".join(errors))


if __name__ == "__main__":
    main()
