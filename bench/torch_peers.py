#!/usr/bin/env python3
"""Times forward and both gradients of FP8 layers beside those of torchao, quantisation included; writes a record.

Usage: torch_peers.py [--only linear|experts] [--out FILE] [--rounds N] [--commit ID]

"torchao, 1x128" has finegemm's recipe: activations and gradients with a scale for each 128 columns, weights for each
128x128 block. "torchao, rows" has one scale for a row; linear layers are compiled, as torchao asks for. Its experts
take groups of multiples of 16 rows, so that these are even. Shapes, method and bounds are those of torch_training.py.
"""

import argparse
import os
import pathlib
import sys
from importlib import metadata, util

import hopper
import torch_training
from records import write_record
from torch_training import EXPERTS, LINEAR, METHOD, ROOT, random_values, row_of


def linear_layers(weight) -> dict:
    """Layers x, weight -> x weight^T of this weight alone, a torch.nn.Parameter [N, K]."""
    import torch
    from torchao.float8 import Float8LinearConfig
    from torchao.float8.float8_linear import Float8Linear
    from torchao.prototype.blockwise_fp8_training.linear import fp8_blockwise_mm

    import finegemm.torch

    plain = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    plain.weight = weight
    by_rows = Float8Linear.from_float(plain, Float8LinearConfig.from_recipe_name("rowwise"))
    by_rows = torch.compile(by_rows, dynamic=False)  # for each of the shapes, as is best for it
    return {
        "torch": torch.nn.functional.linear,
        "finegemm": finegemm.torch.linear,
        "torchao, 1x128": lambda x, w: fp8_blockwise_mm.apply(x, w, 128),
        "torchao, rows": lambda x, w: by_rows(x),
    }


def linear_rows(options) -> list[dict]:
    import torch

    rows = []
    for m, n, k in LINEAR:
        x, dy = random_values("cuda", m, k).requires_grad_(), random_values("cuda", m, n)
        weight = torch.nn.Parameter(random_values("cuda", n, k, scale=k**-0.5))
        rows.append(row_of("linear", f"{m} x {k} -> {n}", linear_layers(weight), (x, weight), dy, options))
    return rows


def expert_rows(options) -> list[dict]:
    import torch
    from torchao.prototype.moe_training.fp8_grouped_mm import _to_fp8_rowwise_then_scaled_grouped_mm as by_rows

    import finegemm.torch

    groups, hidden, inner, count = EXPERTS.values()
    offsets = torch.arange(0, count + 1, count // groups, dtype=torch.int32, device="cuda")
    ends, unpadded = offsets[1:].contiguous(), (torch.bfloat16, torch.float8_e4m3fn, False)
    products = {
        "torch": lambda x, w: torch_training.grouped_mm(x, w, offsets),
        "finegemm": lambda x, w: finegemm.torch.grouped_linear(x, w, offsets, all_rows=True),
        "torchao, rows": lambda x, w: by_rows(x, w.mT, ends, *unpadded),
    }
    layers = {name: torch_training.whole(product) for name, product in products.items()}
    x = random_values("cuda", count, hidden).requires_grad_()
    gate_up = random_values("cuda", groups, 2 * inner, hidden, scale=hidden**-0.5).requires_grad_()
    down = random_values("cuda", groups, hidden, inner, scale=inner**-0.5).requires_grad_()
    dy = random_values("cuda", count, hidden)
    return [row_of("experts", "even", layers, (x, gate_up, down), dy, options)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=("linear", "experts"), help="leave the other rows out")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/torch_peers_h200.json")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--commit", default="", help="for the record, where git cannot say")
    options = parser.parse_args()
    options.device = "cuda"
    hopper.require("torch_peers")
    if util.find_spec("torchao") is None:
        sys.exit("torch_peers: needs torchao, which is not installed (pip install torchao)")
    os.environ.setdefault("TORCHAO_FORCE_SKIP_LOADING_SO_FILES", "1")  # these layers need none of its libraries
    rows = []
    for kind, rows_of in {"linear": linear_rows, "experts": expert_rows}.items():
        if options.only in (None, kind):
            rows += rows_of(options)
    for row in rows:
        print(f"{row['kind']}, {row['name']}: {row['us']}, apart {row['apart']}")
    record = {"bench": "torch_peers", "method": METHOD} | torch_training.machine(options)
    write_record(options.out, record | {"torchao": metadata.version("torchao"), "rows": rows})
    return 0 if all(row["within"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
