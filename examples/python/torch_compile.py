#!/usr/bin/env python3
"""A compiled model with FP8 layers: each product is a node of one graph, whatever the number of rows.

finegemm.torch puts FP8 layers in the place of a model's linear ones. On a GPU a product stays one launch on torch's
current stream, in CUDA graphs of `mode="reduce-overhead"` too.
Needs: pip install . in this repository, torch 2.11 or later; says so and ends where there is no torch
"""

import copy
import importlib.util
import sys

if __name__ == "__main__" and importlib.util.find_spec("torch") is None:
    print("torch_compile.py: skipped, torch is not installed")
    sys.exit(0)

import torch

import finegemm.torch

# Rows and weights are rounded to e4m3: a significand of 4 bits, off by 2.4% of a value in root mean square, each of the
# two independently. A sum of products of many is off by sqrt(2) * 2.4%; half as much again is left for chance.
TOLERANCE = 1.5 * 2**0.5 * 0.024


def example(device: str) -> tuple[torch.nn.Module, torch.nn.Module, torch.Tensor]:
    """Two layers with an activation, in FP8 and as they were, and tokens."""
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.SiLU(), torch.nn.Linear(512, 256)).to(device)
    model = finegemm.torch.convert_to_serving(copy.deepcopy(plain))
    return model, plain, torch.randn(33, 256, device=device)


def main() -> int:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, plain, x = example(device)
    # On a CPU without inductor, which would need a compiler; the graph is made the same way.
    backend = "inductor" if device == "cuda" else "aot_eager"
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=backend)
    with torch.no_grad():
        y, want = compiled(x), plain(x)
    off = float((y - want).norm() / want.norm())
    print(f"two compiled FP8 layers on {device}: {off:.1%} off plain FP32, at most {2**0.5 * TOLERANCE:.1%} expected")
    return 0 if off < 2**0.5 * TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
