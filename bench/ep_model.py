#!/usr/bin/env python3
"""What exchanges of a layer of experts over ranks would take on more hosts than were measured: a model, on paper.

Rows of sampled choices are counted for each link; a link takes a time for each message and one for its bytes, and an
exchange lasts as long as its slowest link. NVLink's numbers are fitted to bench/results/ep_h100.json, of two GPUs;
those of the network are assumed: one 400 Gb/s adapter for each GPU at nine tenths of its speed.

flat: a message from each rank to each other. rails: rows cross between hosts once for each host, to the rank there that
has the sender's place, which hands them on by NVLink; on the way back rows come one by one, so that sums keep their
order, or summed by host.
"""

import argparse
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


class Links(NamedTuple):
    nvlink: float = 290e3  # bytes a microsecond, each way: measured
    nvlink_us: float = 7.0  # of an exchange: measured
    network: float = 45e3  # assumed
    network_us: float = 12.0  # of an exchange: assumed
    message_us: float = 0.6  # of each message on the network: assumed


class Layer(NamedTuple):
    hidden: int = 7168
    choices: int = 8
    experts: int = 256

    @property
    def sent(self) -> int:
        """Bytes of a row on its way to an expert, as docs/expert_parallel.md has them."""
        return -(-(self.hidden + self.hidden // 32 + 8) // 32) * 32

    @property
    def returned(self) -> int:
        return 2 * self.hidden


class Flows(NamedTuple):
    """Rows from each rank to each other: by choice, and once for each host that a token chooses."""

    rows: Array  # [ranks, ranks]
    hosts: Array  # [ranks, hosts]


SAMPLE = 64  # tokens of a rank that are drawn; more are that many times over


def flows_of(layer: Layer, ranks: int, per_host: int, tokens: int, zipf: float, seed: int = 1) -> Flows:
    """zipf: experts are chosen by 1 / place^zipf, in an order that is the same on all ranks; 0: evenly."""
    random = np.random.default_rng(seed)
    experts = max(layer.experts, ranks)
    log_odds = -zipf * np.log1p(random.permutation(experts).astype(np.float64))
    drawn, hosts = min(tokens, SAMPLE), -(-ranks // per_host)
    rows, once = np.zeros((ranks, ranks)), np.zeros((ranks, hosts))
    rank_of = np.arange(experts) * ranks // experts
    for rank in range(ranks):  # the k largest of odds with Gumbel's noise are k draws without a second of any
        noisy = log_odds + random.gumbel(size=(drawn, experts))
        chosen = rank_of[np.argpartition(-noisy, layer.choices, axis=1)[:, : layer.choices]]
        rows[rank] = np.bincount(chosen.ravel(), minlength=ranks)
        seen = np.zeros((drawn, hosts), bool)
        np.put_along_axis(seen, chosen // per_host, True, axis=1)
        once[rank] = seen.sum(0)
    return Flows(rows * tokens / drawn, once * tokens / drawn)


def slowest(out: Array, into: Array, speed: float, slow: float) -> float:
    """Microseconds of links of ranks, of which the first has a part of its speed."""
    speeds = np.full(len(out), speed)
    speeds[0] *= slow
    return float(np.maximum(out / speeds, into / speeds).max())


def on_network(links: Links, rows: Array, row_bytes: int, slow: float) -> float:
    """Rows from each rank to each on another host."""
    if not rows.any():
        return 0.0
    messages = float((rows > 0).sum(1).max())
    each = slowest(rows.sum(1) * row_bytes, rows.sum(0) * row_bytes, links.network, slow)
    return links.network_us + messages * links.message_us + each


def on_nvlink(links: Links, rows: Array, row_bytes: int, slow: float) -> float:
    """Rows from each rank to each other of its host."""
    if not rows.any():
        return 0.0
    return links.nvlink_us + slowest(rows.sum(1) * row_bytes, rows.sum(0) * row_bytes, links.nvlink, slow)


def exchange_us(
    links: Links, layer: Layer, flows: Flows, per_host: int, way: str, slow: float = 1
) -> tuple[float, float]:
    """Microseconds of rows' way there and back. way: flat, rails, or summed by host on the way back."""
    ranks = len(flows.rows)
    host = np.arange(ranks, dtype=np.int64) // per_host
    same = host[:, None] == host[None]
    apart = flows.rows * ~same
    local = flows.rows * (same & ~np.eye(ranks, dtype=bool))
    if way == "flat":
        both = ((layer.sent, apart, local), (layer.returned, apart.T, local.T))
        there, back = (
            max(on_network(links, far, size, slow), on_nvlink(links, near, size, slow)) for size, far, near in both
        )
        return there, back
    # To the rank of the same place on each host, which hands rows on there.
    rails, handed = np.zeros_like(apart), local.copy()
    for rank in range(ranks):
        for other in range(flows.hosts.shape[1]):
            peer = other * per_host + rank % per_host
            if other == host[rank] or peer >= ranks:
                continue
            rails[rank, peer] = flows.hosts[rank, other]
            here = host == other
            handed[peer, here] += flows.rows[rank, here]
    np.fill_diagonal(handed, 0)
    there = on_network(links, rails, layer.sent, slow) + on_nvlink(links, handed, layer.sent, slow)
    back_rows = rails.T if way == "summed" else carried(flows, host, per_host).T
    back = on_network(links, back_rows, layer.returned, slow) + on_nvlink(links, handed.T, layer.returned, slow)
    return there, back


def carried(flows: Flows, host: Numbers, per_host: int) -> Array:
    """Rows, one for each choice, between ranks of the same place."""
    ranks = len(flows.rows)
    all_ = np.zeros_like(flows.rows)
    for other in range(flows.hosts.shape[1]):
        of_host = flows.rows[:, host == other].sum(1)
        for rank in range(ranks):
            peer = other * per_host + rank % per_host
            if other != host[rank] and peer < ranks:
                all_[rank, peer] = of_host[rank]
    return all_


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-host", type=int, default=8)
    parser.add_argument("--tokens", type=int, nargs="+", default=[64, 4096])
    options = parser.parse_args()
    print("| ranks | tokens of each | ids | flat | rails | rails, summed | rails, summed, one link at half speed |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    links, layer = Links(), Layer()
    for tokens in options.tokens:
        for ranks in (2, 8, 16, 64, 256, 1024):
            for name, zipf in (("even", 0.0), ("Zipf", 1.0)):
                flows = flows_of(layer, ranks, options.per_host, tokens, zipf)
                ways = [exchange_us(links, layer, flows, options.per_host, way) for way in ("flat", "rails", "summed")]
                ways.append(exchange_us(links, layer, flows, options.per_host, "summed", 0.5))
                cells = " | ".join(f"{there:.0f} + {back:.0f}" for there, back in ways)
                print(f"| {ranks} | {tokens} | {name} | {cells} |")


if __name__ == "__main__":
    main()
