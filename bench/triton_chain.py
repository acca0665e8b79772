#!/usr/bin/env python3
"""Times layers of experts beside a chain in Triton, both in CUDA graphs; writes bench/results/triton_chain_h200.json.

Usage: triton_chain.py [--library FILE] [--out FILE] [--rounds N] [--commit ID] [--layers N] [--tokens N,...]

The chain: choices sorted by expert, rows gathered and quantised, the first product, SwiGLU with quantisation, the
second product, weighted sums. Products are of e4m3 with scales of 1x128 and 128x128 blocks, loaded by TMA; each takes
the configuration that is fastest alone. A row counts where the bound of each product is 75% of its time or more: what a
launch takes that only reads the weights of the experts in use, or its operations at the tensor cores' rate.
"""

import argparse
import itertools
import pathlib
import types
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from gpu_fixture import ROOT, facts_at_work
from gpu_layer import FLOP_PER_US, LAYERS, Layer, Layers, captured, replay_us
from gpu_library import Library
from records import write_record
from weights_read import reader

BLOCK = 128
COUNTS = 0.75  # of a product's bound, from which on a row counts
# Rows and columns of a tile, stages, warps; those of few rows first.
FEW = ((16, 128, 6, 4), (16, 64, 6, 4), (16, 256, 4, 4), (32, 128, 5, 4), (64, 128, 4, 4))
MANY = ((64, 128, 4, 4), (128, 128, 3, 8), (128, 128, 4, 8), (128, 256, 3, 8), (64, 256, 3, 4))
MANY_ROWS = 64  # of an expert
MOST_EXPERTS = tl.constexpr(256)
# Between root mean squares: where sums differ by a bit, what is rounded to bf16, then to e4m3, may be the next code.
TOLERANCE = 0.04


@triton.jit(do_not_specialize=["experts", "limit", "tall"])
def tiles_of_groups(offsets, tile_group, tile_row, experts, limit, tall, T: tl.constexpr):
    """Which expert a tile of `tall` rows is of, and its first row; -1 behind the last one."""
    tile = tl.program_id(0) * T + tl.arange(0, T)
    e = tl.arange(0, MOST_EXPERTS)
    begin = tl.load(offsets + e, mask=e < experts, other=0)
    end = tl.load(offsets + e + 1, mask=e < experts, other=0)
    count = (end - begin + tall - 1) // tall
    behind = tl.cumsum(count, 0)
    here = (tile[:, None] < behind[None, :]) & (tile[:, None] >= (behind - count)[None, :])
    group = tl.sum(tl.where(here, e[None, :] + 1, 0), 1) - 1
    row = tl.sum(tl.where(here, begin[None, :] + (tile[:, None] - (behind - count)[None, :]) * tall, 0), 1)
    tl.store(tile_group + tile, group, mask=tile < limit)
    tl.store(tile_row + tile, row, mask=tile < limit)


@triton.jit(do_not_specialize=["k", "rows"])
def gather_quantize(x, order, q, scales, hidden, k, rows, BLOCKS: tl.constexpr):
    row = tl.program_id(0)
    token = tl.load(order + row) // k
    b = tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)
    col = b[:, None] * 128 + tl.arange(0, 128)[None, :]
    v = tl.load(x + token * hidden + col, mask=col < hidden, other=0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(v), 1), 1e-10) / 448.0
    tl.store(q + row.to(tl.int64) * hidden + col, (v / scale[:, None]).to(tl.float8e4nv), mask=col < hidden)
    tl.store(scales + b * rows + row, scale, mask=b * 128 < hidden)


@triton.jit(do_not_specialize=["rows"])
def swiglu_quantize(x, q, scales, pairs, rows, BLOCKS: tl.constexpr):
    row = tl.program_id(0)
    b = tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)
    col = b[:, None] * 128 + tl.arange(0, 128)[None, :]
    at = x + row.to(tl.int64) * 2 * pairs + col
    gate = tl.load(at, mask=col < pairs, other=0).to(tl.float32)
    up = tl.load(at + pairs, mask=col < pairs, other=0).to(tl.float32)
    v = (gate * tl.sigmoid(gate) * up).to(tl.bfloat16).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(v), 1), 1e-10) / 448.0
    tl.store(q + row.to(tl.int64) * pairs + col, (v / scale[:, None]).to(tl.float8e4nv), mask=col < pairs)
    tl.store(scales + b * rows + row, scale, mask=b * 128 < pairs)


@triton.jit(do_not_specialize=["m_tiles", "rows"])
def grouped_product(
    a, b, sa, sb, d, offsets, tile_group, tile_row, m_tiles, n, k, rows,
    BM: tl.constexpr, BN: tl.constexpr, TALL: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """D[rows, n] = A B^T of each expert. Tiles of TALL rows of tiles are neighbours, so that they share B in L2."""
    pid, n_tiles = tl.program_id(0), tl.cdiv(n, BN)
    first = pid // (TALL * n_tiles) * TALL
    tall = min(m_tiles - first, TALL)
    m_tile, n_tile = first + pid % (TALL * n_tiles) % tall, pid % (TALL * n_tiles) // tall
    group = tl.load(tile_group + m_tile)
    if group < 0:
        return
    row, end = tl.load(tile_row + m_tile), tl.load(offsets + group + 1)
    r = row + tl.arange(0, BM)
    k_blocks = tl.cdiv(k, 128)
    of_columns = sb + (group * tl.cdiv(n, 128) + n_tile * BN // 128).to(tl.int64) * k_blocks
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for kb in tl.range(0, k_blocks, num_stages=STAGES):
        x, y = a.load([row, kb * 128]), b.load([group * n + n_tile * BN, kb * 128])
        of_rows = tl.load(sa + kb * rows + r, mask=r < end, other=0)
        if BN <= 128:
            sums += tl.dot(x, y.T) * (of_rows * tl.load(of_columns + kb))[:, None]
        else:
            c = tl.arange(0, BN) // 128
            sums += tl.dot(x, y.T) * of_rows[:, None] * tl.load(of_columns + c * k_blocks + kb)[None, :]
    col = n_tile * BN + tl.arange(0, BN)
    to = d + r.to(tl.int64)[:, None] * n + col[None, :]
    tl.store(to, sums.to(tl.bfloat16), mask=(r < end)[:, None] & (col < n)[None, :])


@triton.jit
def weighted_sum(y, inverse, weights, out, hidden, K: tl.constexpr, COLS: tl.constexpr):
    token, col = tl.program_id(0), tl.program_id(1) * COLS + tl.arange(0, COLS)
    sums = tl.zeros((COLS,), dtype=tl.float32)
    for c in tl.static_range(K):
        row = tl.load(inverse + token * K + c).to(tl.int64)
        value = tl.load(y + row * hidden + col, mask=col < hidden, other=0).to(tl.float32)
        sums += tl.load(weights + token * K + c) * value
    tl.store(out + token.to(tl.int64) * hidden + col, sums.to(tl.bfloat16), mask=col < hidden)


class Product:
    """A grouped product with its operands, by the fastest configuration."""

    def __init__(self, chain: "Chain", q, of_q, weights, scales, d):
        self.chain, self.q, self.of_q, self.weights, self.scales, self.d = chain, q, of_q, weights, scales, d
        self.config = self.configs()[0]

    def configs(self) -> tuple:
        return MANY if len(self.q) > MANY_ROWS * len(self.weights) else FEW

    def prepare(self) -> None:
        """Tiles of groups, which one launch finds."""
        rows, experts, tall = len(self.q), len(self.weights), self.config[0]
        self.m_tiles = min(rows, rows // tall + experts)
        self.tile_group, self.tile_row = (torch.empty(self.m_tiles, dtype=torch.int32, device="cuda") for _ in "ab")

    def find_tiles(self) -> None:
        at_once, tiles = 16, (self.chain.offsets, self.tile_group, self.tile_row)
        sizes = (len(self.weights), self.m_tiles, self.config[0])
        tiles_of_groups[(triton.cdiv(self.m_tiles, at_once),)](*tiles, *sizes, at_once)

    def multiply(self) -> None:
        tall, wide, stages, warps = self.config
        _, n, k = self.weights.shape
        a = TensorDescriptor.from_tensor(self.q, [tall, BLOCK])
        b = TensorDescriptor.from_tensor(self.weights.view(-1, k), [wide, BLOCK])
        operands = (a, b, self.of_q, self.scales, self.d, self.chain.offsets, self.tile_group, self.tile_row)
        grouped_product[(self.m_tiles * triton.cdiv(n, wide),)](
            *operands, self.m_tiles, n, k, len(self.q), tall, wide, 8, stages, num_warps=warps
        )


class Chain:
    def __init__(self, layer: Layer, out: torch.Tensor):
        self.layer, self.out = layer, out
        gate_up, gate_up_scales, down, down_scales = layer.of_experts
        (_, hidden), rows, pairs = layer.x.shape, layer.ids.numel(), down.shape[2]
        self.inverse = torch.empty(rows, dtype=torch.int64, device="cuda")
        self.places = torch.arange(rows, device="cuda")
        self.offsets = torch.zeros(len(down) + 1, dtype=torch.int32, device="cuda")
        self.bounds = torch.arange(len(down) + 1, device="cuda")

        def matrix(cols: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.empty(rows, cols, dtype=dtype, device="cuda")

        def scales(cols: int) -> torch.Tensor:
            return torch.empty(-(-cols // BLOCK), rows, dtype=torch.float32, device="cuda")

        self.q, self.of_q, self.between = (
            matrix(hidden, torch.float8_e4m3fn),
            scales(hidden),
            matrix(2 * pairs, out.dtype),
        )
        self.z, self.of_z, self.y = matrix(pairs, torch.float8_e4m3fn), scales(pairs), matrix(hidden, out.dtype)
        self.first = Product(self, self.q, self.of_q, gate_up, gate_up_scales, self.between)
        self.second = Product(self, self.z, self.of_z, down, down_scales, self.y)

    def route(self) -> None:
        experts, self.order = torch.sort(self.layer.ids.flatten(), stable=True)
        self.offsets.copy_(torch.searchsorted(experts, self.bounds))
        self.inverse.scatter_(0, self.order, self.places)
        self.first.find_tiles()
        if self.second.config[0] != self.first.config[0]:
            self.second.find_tiles()
        else:
            self.second.tile_group, self.second.tile_row = self.first.tile_group, self.first.tile_row

    def __call__(self) -> None:
        (tokens, hidden), k, rows = self.layer.x.shape, self.layer.ids.shape[1], len(self.q)
        pairs, blocks, cols = self.z.shape[1], 8, 1024
        self.route()
        gather_quantize[(rows, triton.cdiv(hidden, blocks * BLOCK))](
            self.layer.x, self.order, self.q, self.of_q, hidden, k, rows, blocks
        )
        self.first.multiply()
        swiglu_quantize[(rows, triton.cdiv(pairs, blocks * BLOCK))](
            self.between, self.z, self.of_z, pairs, rows, blocks
        )
        self.second.multiply()
        weighted_sum[(tokens, triton.cdiv(hidden, cols))](
            self.y, self.inverse, self.layer.weights, self.out, hidden, k, cols
        )

    def tune(self, rounds: int) -> dict[str, float]:
        """Microseconds of each product alone, in a graph, by its fastest configuration."""
        for product in (self.first, self.second):
            product.prepare()
        self()  # operands of both
        us = {}
        for name, product in (("gate_up", self.first), ("down", self.second)):
            graphs, kept = {}, []
            for config in product.configs():
                product.config = config
                product.prepare()
                product.find_tiles()
                kept.append((product.tile_group, product.tile_row))  # as long as graphs read them
                graphs[config] = captured(product.multiply)
            times = replay_us(graphs, rounds)
            product.config = min(times, key=lambda config: times[config])
            product.prepare()
            us[name] = times[product.config]
        return us


def difference(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Of root mean squares."""
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())


def bounds(layer: Layer, rounds: int) -> dict[str, float]:
    """Of each product."""
    used, of_products = layer.ids.unique(), {"gate_up": layer.of_experts[0], "down": layer.of_experts[2]}
    readers = {name: reader(used, weights) for name, weights in of_products.items()}
    us = replay_us({name: captured(read) for name, read in readers.items()}, rounds)
    operations = {name: 2 * layer.ids.numel() * weights[0].numel() for name, weights in of_products.items()}
    return {name: max(us[name], operations[name] / FLOP_PER_US) for name in us}


def row_of(layer: Layer, library: Library, rounds: int) -> dict:
    out, wanted = torch.empty_like(layer.x), torch.empty_like(layer.x)
    call = layer.prepare(library, wanted, layer.workspace(library).t)
    chain = Chain(layer, out)
    products = chain.tune(rounds)
    us = replay_us({"moe": captured(call), "triton": captured(chain)}, rounds)
    if (off := difference(out, wanted)) > TOLERANCE:
        raise AssertionError(f"the chain's result is off by {off}")
    busy, of_bound = int(layer.ids.unique().numel()), bounds(layer, rounds)
    of_bound = {name: round(us / products[name], 3) for name, us in of_bound.items()}
    configs = {"gate_up": chain.first.config, "down": chain.second.config}
    counts = min(of_bound.values()) >= COUNTS
    return {"busy": busy, "us": us, "products_us": products, "of_bound": of_bound, "configs": configs, "counts": counts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", dest="tested", default=str(ROOT / "build/libfinegemm.so"))
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/triton_chain_h200.json")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--commit", default="")
    parser.add_argument("--layers", type=int, default=len(LAYERS))
    parser.add_argument("--tokens", default="1,8,64,512,4096,16384")
    options = parser.parse_args()
    tested, facts = Library(options.tested), facts_at_work()
    source: Any = types.SimpleNamespace(generator=torch.Generator("cuda").manual_seed(1))
    rows = []
    for name, hidden, pairs, experts, choices in LAYERS[: options.layers]:
        whole = Layers.layer_of(source, 1, choices, hidden, pairs, experts)
        for tokens, kind in itertools.product(map(int, options.tokens.split(",")), ("even", "zipf", "rank")):
            layer = Layers.part_of(source, whole, tokens, choices, kind)
            row = {"layer": name, "kind": kind, "tokens": tokens} | row_of(layer, tested, options.rounds)
            rows.append(row)
            print(row, flush=True)
            record = {"machine": facts, "torch": torch.__version__, "triton": triton.__version__, "rows": rows}
            write_record(options.out, record | {"commit": options.commit, "finegemm": tested.version()})


if __name__ == "__main__":
    main()
