#!/usr/bin/env python3
"""Times forward and both gradients of FP8 layers, quantisation included, beside BF16 in torch; writes a record.

Usage: torch_training.py [--out FILE] [--rounds N] [--commit ID] [--small] [--device cuda|cpu]

Linear layers, and experts with even groups and with groups by Zipf's law, beside torch._grouped_mm. Weights are
quantised in every call ("finegemm") or kept from before, as in all but the first of accumulated batches ("kept").
--small takes small shapes, --device cpu the CPU: what a machine without a GPU can rehearse. Ends with 1 if gradients
are further from those of BF16 than codes are, or if the floor of the geometric mean is not reached on a GPU.
"""

import argparse
import functools
import pathlib
import statistics
import subprocess
import sys
import time

import hopper
from records import geometric_mean, write_record

ROOT = pathlib.Path(__file__).resolve().parent.parent
METHOD = (
    "events around a call of forward and backward, L2 emptied before, the implementations in turn, median; gradients "
    "of input and weight in bfloat16, where main_grad is named of weights added to float32"
)
LINEAR = ((8192, 4096, 7168), (8192, 7168, 4096))  # M, N, K
EXPERTS = {"experts": 32, "hidden": 7168, "intermediate": 2048, "rows": 65536}
SMALL_LINEAR = ((192, 128, 256), (192, 256, 128))
SMALL_EXPERTS = {"experts": 4, "hidden": 256, "intermediate": 128, "rows": 400}
FLOOR, AIM = 1.25, 1.5  # times as fast as BF16, in geometric mean
FLUSH_BYTES = 1 << 30  # more than the L2, and long enough for the host to get ahead
# Products of codes are 3.4% off in root mean square; the whole of experts has two in a row and a product of halves.
FURTHEST = {"linear": 0.051, "experts": 0.12}


def on_gpu(call, flush) -> float:
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    flush.zero_()
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e3


def on_cpu(call, flush) -> float:
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e6


def median_us(calls: dict, rounds: int, device: str) -> dict:
    """Of each call, in turn, after one round that does not count."""
    import torch

    time_of = on_gpu if device == "cuda" else on_cpu
    flush = torch.empty(FLUSH_BYTES if device == "cuda" else 1, dtype=torch.uint8, device=device)
    times: dict = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            times[name].append(time_of(call, flush))
    return {name: round(statistics.median(us[1:]), 1) for name, us in times.items()}


def gradients(layer, inputs, dy):
    import torch

    y = layer(*inputs)
    # Without a gradient where it was added to main_grad.
    return (y, *torch.autograd.grad(y, inputs, dy, allow_unused=True))


def row_of(kind: str, name: str, layers: dict, inputs: tuple, dy, options) -> dict:
    """Times of the layers, and how far results of ours are from those of torch, which is the first."""
    want = gradients(next(iter(layers.values())), inputs, dy)
    apart = {}
    for layer, call in layers.items():
        pairs = [(x, y) for x, y in zip(gradients(call, inputs, dy), want, strict=True) if x is not None]
        apart[layer] = round(max(((x - y).norm() / y.norm()).item() for x, y in pairs), 4)
    calls = {layer: lambda call=call: gradients(call, inputs, dy) for layer, call in layers.items()}
    us = median_us(calls, options.rounds, options.device)
    bound = FURTHEST["experts" if kind == "experts" else "linear"]
    return {"kind": kind, "name": name, "us": us, "apart": apart, "within": max(apart.values()) < bound}


def random_values(device, *shape, scale=1.0):
    import torch

    return torch.randn(shape, device=device, dtype=torch.bfloat16) * scale


def linear_rows(options) -> list[dict]:
    import torch

    import finegemm.torch as ft

    rows, device = [], options.device
    for m, n, k in SMALL_LINEAR if options.small else LINEAR:
        x, dy = random_values(device, m, k).requires_grad_(), random_values(device, m, n)
        weight = random_values(device, n, k, scale=k**-0.5).requires_grad_()
        kept = ft.quantize_weight(weight)
        layers = {
            "torch": torch.nn.functional.linear,
            "finegemm": ft.linear,
            "kept": lambda x, w, kept=kept: ft.linear(x, w, quantized=kept),
        }
        rows.append(row_of("linear", f"{m} x {k} -> {n}", layers, (x, weight), dy, options))
        rows[-1]["parts_us"] = parts(x.detach(), weight.detach(), dy, options)
    return rows


def parts(x, weight, dy, options, offsets=None) -> dict:
    """What forward and both gradients consist of, of x and dy with rows and columns alone for comparison. `offsets`: of
    experts."""
    import torch

    import finegemm.torch as ft

    of_groups = {} if offsets is None else {"offsets": offsets}
    product = ft.gemm if offsets is None else ft.grouped_gemm
    calls: dict = {}
    for name, matrix in (("x", x), ("dy", dy)):
        calls[f"quantize rows of {name}"] = functools.partial(ft.quantize_rows, matrix)
        calls[f"quantize columns of {name}"] = functools.partial(ft.quantize_columns, matrix, offsets)
        calls[f"quantize both of {name}"] = functools.partial(ft.quantize_columns, matrix, offsets, rows=True)
    calls["quantize weight, transposed too"] = functools.partial(ft.quantize_weight, weight)
    blocks, rows, rows_dy = ft.quantize_weight(weight), ft.quantize_rows(x), ft.quantize_rows(dy)
    columns, columns_dy = (ft.quantize_columns(matrix, offsets) for matrix in (x, dy))
    calls["forward"] = functools.partial(product, *rows, blocks.codes, blocks.scales, **of_groups)
    calls["data gradient"] = functools.partial(product, *rows_dy, blocks.transposed, blocks.scales.mT, **of_groups)
    operands = (*columns_dy[:2], *columns[:2])
    if offsets is None:
        calls["weight gradient"] = functools.partial(ft.gemm, *operands, out_dtype=torch.bfloat16)
    else:
        dw = torch.empty_like(weight)
        calls["weight gradient"] = functools.partial(ft.k_grouped_gemm, *operands, offsets=columns_dy[2], out=dw)
    return median_us(calls, options.rounds, options.device)


def group_sizes(kind: str, groups: int, rows: int) -> list[int]:
    """Even, or by Zipf's law: group g has rows in proportion to 1 / (g + 1)."""
    weights = [1.0 if kind == "even" else 1 / (g + 1) for g in range(groups)]
    sizes = [int(rows * w / sum(weights)) for w in weights]
    sizes[0] += rows - sum(sizes)
    return sizes


def grouped_mm(x, weight, offsets):
    """torch._grouped_mm, or on a CPU, where it may be missing, what it computes."""
    import torch

    if x.is_cuda:
        return torch._grouped_mm(x, weight.mT, offs=offsets[1:])
    parts = x.split(offsets.diff().tolist())
    return torch.cat([part @ w.t() for part, w in zip(parts, weight, strict=True)])


def whole(product):
    """The layer of experts: gate and up in one product, SwiGLU, down."""
    import torch

    def layer(x, gate_up, down):
        gate, up = product(x, gate_up).chunk(2, -1)
        return product(torch.nn.functional.silu(gate) * up, down)

    return layer


def expert_rows(options) -> list[dict]:
    """gate_up and down of all experts with SwiGLU between, and the two products alone."""
    import itertools

    import torch

    sizes, device = SMALL_EXPERTS if options.small else EXPERTS, options.device
    groups, hidden, inner, count = sizes.values()
    rows = []
    for kind in ("even", "zipf"):
        ends = [0, *itertools.accumulate(group_sizes(kind, groups, count))]
        offsets = torch.tensor(ends, dtype=torch.int32, device=device)
        x = random_values(device, count, hidden).requires_grad_()
        gate_up = random_values(device, groups, 2 * inner, hidden, scale=hidden**-0.5).requires_grad_()
        down = random_values(device, groups, hidden, inner, scale=inner**-0.5).requires_grad_()
        dy = random_values(device, count, hidden)
        products = products_of(offsets, (gate_up, down))
        layers = {name: whole(product) for name, product in products.items()}
        rows.append(row_of("experts", kind, layers, (x, gate_up, down), dy, options))
        d_hidden, h = random_values(device, count, 2 * inner), random_values(device, count, inner).requires_grad_()
        for name, inputs, grad in (("gate and up", (x, gate_up), d_hidden), ("down", (h, down), dy)):
            rows.append(row_of("product of experts", f"{name}, {kind}", products, inputs, grad, options))
            rows[-1]["parts_us"] = parts(inputs[0].detach(), inputs[1].detach(), grad, options, offsets)
    return rows


def products_of(offsets, weights) -> dict:
    """Implementations of x, weight -> x times the weights of each row's group."""
    import torch

    import finegemm.torch as ft

    kept = {id(w): ft.quantize_weight(w) for w in weights}
    main_grads = {id(w): torch.zeros(w.shape, device=w.device) for w in weights}

    def in_main_grad(x, w):
        w.main_grad = main_grads[id(w)]
        y = ft.grouped_linear(x, w, offsets, all_rows=True, quantized=kept[id(w)])
        del w.main_grad
        return y

    return {
        "torch": lambda x, w: grouped_mm(x, w, offsets),
        "finegemm": lambda x, w: ft.grouped_linear(x, w, offsets, all_rows=True),
        "kept": lambda x, w: ft.grouped_linear(x, w, offsets, all_rows=True, quantized=kept[id(w)]),
        "kept, main_grad": in_main_grad,
    }


def machine(options) -> dict:
    import torch

    import finegemm

    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    versions = {"torch": torch.__version__, "finegemm": finegemm.__version__, "commit": options.commit or said}
    return {"machine": {"name": name}, **versions}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/torch_training_h200.json")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--commit", default="", help="for the record, where git cannot say")
    parser.add_argument("--small", action="store_true", help="small shapes")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    if options.device == "cuda":
        hopper.require("torch_training")
    rows = [*linear_rows(options), *expert_rows(options)]
    record = {"bench": "torch_training", "method": METHOD, "floor": FLOOR, "aim": AIM} | machine(options)
    means = {}
    for way in ("finegemm", "kept"):
        ratios = [row["us"]["torch"] / row["us"][way] for row in rows if row["kind"] in ("linear", "experts")]
        means[way] = round(geometric_mean(ratios), 3)
    write_record(options.out, record | {"times_as_fast": means, "rows": rows})
    for row in rows:
        wrong = "" if row["within"] else "TOO FAR: "
        print(f"{wrong}{row['kind']}, {row['name']}: {row['us']}, apart {row['apart']}")
    print(f"times as fast as torch in BF16, in geometric mean: {means}; floor {FLOOR}, aim {AIM}")
    slow = options.device == "cuda" and not options.small and means["finegemm"] < FLOOR
    return 0 if all(row["within"] for row in rows) and not slow else 1


if __name__ == "__main__":
    sys.exit(main())
