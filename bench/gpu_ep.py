"""Checks and times layers of experts over GPUs of one host, a process for each: what ep_*.json records.

`--cpu` runs the checks on threads, `--threads` on threads with a GPU each. Bits are those of finegemm.moe with the
experts of all ranks.
"""

import argparse
import itertools
import multiprocessing
import pathlib
import statistics
import threading
import time
from typing import Any

import torch

import finegemm
from ep_cases import Rank, Tokens, Weights, captured, check, check_graph, check_many, tokens_of, weights_of
from finegemm import ep
from records import write_record

# Name, hidden, intermediate, choices.
LAYERS = (("DeepSeek-V4-Flash", 4096, 2048, 6), ("DeepSeek-V3", 7168, 2048, 8))
EXPERTS = 32  # of a rank
TOKENS = (8, 64, 512, 1024, 4096, 8192)
MOST_OF_GRAPHS = 1024  # tokens
SMS_OF_HALVES = (0, 100)  # of products, where the messages of the other half want some; 0: all


def us_of(calls: dict[str, Any], rounds: int) -> dict[str, float]:
    """Microseconds between events, one after the other, median; L2 is flushed before each, and ranks meet there."""
    flush = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
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
        for _ in range(rounds):  # behind one another, so that no rank is late
            call()
        torch.cuda.synchronize()
    events = sorted(
        (e for e in trace.events() if "nccl" in e.name.lower() and e.device_type.name == "CUDA"),
        key=lambda e: e.time_range.start,
    )
    each = len(events) // rounds
    runs = [[e.time_range.elapsed_us() for e in events[i * each : (i + 1) * each]] for i in range(rounds)]
    return [statistics.median(t) for t in zip(*runs, strict=True)] if each else []


def bare(given: list[int], taken: list[int], row_bytes: int):
    """NCCL's all-to-all of so many rows for and from each rank, as torch.distributed calls it."""
    sizes = [[rows * row_bytes for rows in all_] for all_ in (given, taken)]
    x, y = (torch.ones(sum(each), dtype=torch.uint8, device="cuda") for each in sizes)
    return lambda: torch.distributed.all_to_all_single(y, x, sizes[1], sizes[0])


def halves(rank: Rank, t: Tokens, weights: Weights, capacity: int, out: torch.Tensor, sms: int):
    """Half of the tokens on a stream and a communicator of its own: one computes while the rows of the other travel."""
    assert rank.other
    communicators = (rank.c, rank.other)
    middle, streams = len(t.x) // 2, [torch.cuda.Stream() for _ in range(2)]
    parts = [slice(0, middle), slice(middle, len(t.x))]
    places = -(-capacity // 2)

    def call() -> None:
        current = torch.cuda.current_stream()
        for c, stream, part in zip(communicators, streams, parts, strict=True):
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                half = Tokens(*(x[part] for x in t))
                ep.moe(c, half.x, half.ids, *weights, half.weights, out[part], capacity=places, num_sms=sms)
        for stream in streams:
            current.wait_stream(stream)

    return call


def layer_calls(rank: Rank, all_tokens: list[Tokens], weights: Weights, capacity: int, arrive: int) -> dict[str, Any]:
    """The layer without a capacity, with one, through memory of all ranks, and the experts that are here alone."""
    c, t = rank.c, all_tokens[rank.c.rank]
    (tokens, choices), (hidden, pairs) = t.ids.shape, weights.down.shape[1:]
    out = torch.empty_like(t.x)
    size = ep.workspace_bytes(tokens, choices, hidden, pairs, EXPERTS, ranks=c.ranks, capacity=capacity)
    workspace = torch.empty(size, dtype=torch.uint8, device=rank.device)
    peers = rank.memory(tokens, choices, weights)
    every = Tokens(*(torch.cat(parts) for parts in zip(*all_tokens, strict=True)))
    local_out = torch.empty_like(every.x)

    def layer(memory: ep.PeerMemory | None) -> None:
        ep.moe(c, t.x, t.ids, *weights, t.weights, out, capacity=capacity, workspace=workspace, memory=memory)

    def local() -> None:
        first, expected = c.rank * EXPERTS, -(-arrive // EXPERTS)
        finegemm.moe(
            every.x, every.ids, *weights, weights=every.weights, first=first, out=local_out, expected_m=expected
        )

    return {
        "exact": lambda: ep.moe(c, t.x, t.ids, *weights, t.weights, out),
        "capacity": lambda: layer(None),
        "peers": lambda: layer(peers),
        "local": local,
    }


def time_layer(
    rank: Rank, layer: tuple, tokens: int, kind: str, weights: Weights, rounds: int, profiled: bool
) -> dict[str, Any]:
    (name, hidden, _, choices), c, device, experts = layer, rank.c, rank.device, EXPERTS * rank.c.ranks
    all_tokens = [tokens_of(tokens, hidden, choices, experts, 10 + r, device, kind) for r in range(c.ranks)]
    chosen = torch.stack([torch.bincount((x.ids // EXPERTS).flatten(), minlength=c.ranks) for x in all_tokens]).tolist()
    capacity = -(-max(map(max, chosen)) // 16) * 16
    coming = [row[c.rank] for row in chosen]
    sent, returned = -(-(hidden + hidden // 32 + 8) // 32) * 32, 2 * hidden  # bytes of a row
    placed = [bare([capacity] * c.ranks, [capacity] * c.ranks, row) for row in (sent, returned)]
    calls = layer_calls(rank, all_tokens, weights, capacity, sum(coming)) | {
        "bare dispatch": bare(chosen[c.rank], coming, sent),
        "bare combine": bare(coming, chosen[c.rank], returned),
        "bare places": lambda: [f() for f in placed],
    }
    timed = dict(calls)  # what graphs read stays alive with the calls that they were captured of
    if tokens <= MOST_OF_GRAPHS:  # where the host may be slower than the GPU
        timed |= {name: captured(calls[name]).replay for name in ("capacity", "peers", "local")}
    us = us_of(timed, rounds)
    traced = {"layer": "capacity", "bare": "bare places"} if profiled else {}
    kernels = {name: nccl_us(timed[call], 9) for name, call in traced.items()}
    return {
        "layer": name,
        "kind": kind,
        "tokens": tokens,
        "capacity": capacity,
        "rows": sum(coming),
        "us": {k: round(v, 1) for k, v in us.items()},
        "nccl_us": {k: [round(x, 1) for x in v] for k, v in kernels.items()},
        "row_bytes": [sent, returned],
    }


def time_halves(rank: Rank, layer: tuple, tokens: int, weights: Weights, rounds: int) -> dict[str, Any]:
    name, hidden, _, choices = layer
    t = tokens_of(tokens, hidden, choices, EXPERTS * rank.c.ranks, 10 + rank.c.rank, rank.device, "even")
    capacity = -(-int(1.1 * t.ids.numel() / rank.c.ranks) // 16) * 16
    out = torch.empty_like(t.x)

    def whole() -> None:
        ep.moe(rank.c, t.x, t.ids, *weights, weights=t.weights, capacity=capacity, out=out)

    calls = {"whole": whole} | {f"halves, {n} SMs": halves(rank, t, weights, capacity, out, n) for n in SMS_OF_HALVES}
    return {"layer": name, "tokens": tokens, "us": {k: round(v, 1) for k, v in us_of(calls, rounds).items()}}


def out_of_time(deadline: float) -> bool:
    """Whether any rank says so: all do the same."""
    passed = torch.tensor(float(time.perf_counter() > deadline), device="cuda")
    torch.distributed.all_reduce(passed)
    return bool(passed)


def lose_a_rank(rank: Rank, peers: bool = False) -> dict[str, Any]:
    """The last rank does not come: the others are told by its name in time, and their GPUs go on."""
    c = rank.c
    weights = weights_of(2, 512, 256, 3, rank.device)
    t = tokens_of(8, 512, 2, 2 * c.ranks, 1, rank.device, "even")
    size = ep.workspace_bytes(8, 2, 512, 256, 2, ranks=c.ranks, capacity=16)
    memory = torch.empty(size, dtype=torch.uint8, device=rank.device)  # in it can be seen who has come
    of_all = rank.memory(8, 2, weights) if peers else None
    ep.moe(c, t.x, t.ids, *weights, weights=t.weights, capacity=16, workspace=memory, memory=of_all)
    rank.wait()
    if c.rank == c.ranks - 1:
        time.sleep(6)
        return {}
    begin = time.perf_counter()
    ep.moe(c, t.x, t.ids, *weights, weights=t.weights, capacity=16, workspace=memory, memory=of_all)
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
        "nccl",
        init_method="tcp://127.0.0.1:29517",
        rank=index,
        world_size=options.ranks,
        device_id=torch.device("cuda", index),
    )
    begin = time.perf_counter()
    rank = Rank(ep.Communicator(name, index, options.ranks, index), ep.Communicator.from_torch())
    told: dict[str, Any] = {}
    try:
        told["check"] = check(rank, 1)
        told["graph"] = check_graph(rank, options.replays)
        told["peers"] = check_graph(rank, options.replays, peers=True) | check_many(rank)
        if index == 0:
            print(round(time.perf_counter() - begin, 1), told, flush=True)
        rows = []
        for layer in LAYERS:
            weights = weights_of(EXPERTS, layer[1], layer[2], 20 + index, rank.device)
            for tokens, kind in itertools.product(options.tokens, ("even", "zipf")):
                if not out_of_time(begin + options.seconds):
                    rows.append(time_layer(rank, layer, tokens, kind, weights, options.rounds, not options.brief))
                    if index == 0:
                        print(round(time.perf_counter() - begin, 1), rows[-1], flush=True)
        told["rows"] = rows
        queue.put((index, dict(told)))
        told["halves"] = [
            time_halves(rank, layer, tokens, weights_of(EXPERTS, *layer[1:3], 20 + index, rank.device), options.rounds)
            for layer, tokens in itertools.product(LAYERS, TOKENS)
            if tokens >= MOST_OF_GRAPHS and not options.brief
        ]
        if index == 0:
            print(told["halves"], flush=True)
        if options.ranks > 1:
            told["lost"] = lose_a_rank(Rank(ep.Communicator.from_torch(timeout=2)))
            told["lost from memory"] = lose_a_rank(Rank(ep.Communicator.from_torch(timeout=2)), peers=True)
    except Exception as e:  # the other ranks would wait
        told["error"] = f"{type(e).__name__}: {e}"
        print(index, told["error"], flush=True)
    queue.put((index, told))


def on_threads(ranks: int, gpus: bool) -> None:
    """Ranks on the CPU, or with a GPU each."""
    errors, name = [], ep.communicator_id() if gpus else b""
    ends = [None] * ranks if gpus else ep.Communicator.of_threads(ranks)

    def one(index: int, end: ep.Communicator | None) -> None:
        try:
            if gpus:
                torch.cuda.set_device(index)
            rank = Rank(end or ep.Communicator(name, index, ranks, index, timeout=5))
            print(index, check(rank, 1), check_graph(rank, 200, peers=True) | check_many(rank) if gpus else "")
        except BaseException as e:
            errors.append(e)
            if end:
                end.end()

    threads = [threading.Thread(target=one, args=each) for each in enumerate(ends)]
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
    parser.add_argument("--seconds", type=float, default=600, help="after which no more is timed")
    parser.add_argument("--brief", action="store_true", help="without NCCL's own times, and without halves")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--commit", default="")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--threads", action="store_true", help="GPUs of one process: checks alone")
    options = parser.parse_args()
    if options.cpu or options.threads:
        return on_threads(options.ranks, options.threads)
    spawn = multiprocessing.get_context("spawn")
    queue, name = spawn.Queue(), ep.communicator_id()
    processes = [spawn.Process(target=process, args=(r, options, name, queue)) for r in range(options.ranks)]
    for p in processes:
        p.start()
    method = f"events between flushes of L2 at which ranks meet, median of {options.rounds}; nccl_us: CUPTI"
    record = {"gpu": torch.cuda.get_device_name(0), "commit": options.commit, "ranks": options.ranks, "method": method}
    for _ in range(2):  # the second time with what may not end
        told = dict(queue.get() for _ in processes)
        rows = [{"rank": rank} | row for rank, of in sorted(told.items()) for row in of.pop("rows", [])]
        if options.out:
            write_record(options.out, record | {"told": told, "rows": rows})
    print(told)
    if errors := [t["error"] for t in told.values() if "error" in t]:
        raise SystemExit("; ".join(errors))


if __name__ == "__main__":
    main()
