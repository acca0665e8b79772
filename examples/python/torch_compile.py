#!/usr/bin/env python3
"""FP8 products inside torch.compile: the call as an operator of torch, which a compiled model has as one node.

torch.compile cannot look into a native module, and would break the graph there. An operator says what it returns; the
compiler needs no more. It stays one launch on torch's current stream, in CUDA graphs of `mode="reduce-overhead"` too.
Needs: pip install . in this repository, torch 2.4 or later; says so and ends where there is no torch
"""

import importlib.util
import sys

if __name__ == "__main__" and importlib.util.find_spec("torch") is None:
    print("torch_compile.py: skipped, torch is not installed")
    sys.exit(0)

import torch
from torch import library

import finegemm

# Rows and weights are rounded to e4m3: a significand of 4 bits, off by 2.4% of a value in root mean square, each of the
# two independently. A sum of products of many is off by sqrt(2) * 2.4%; half as much again is left for chance.
TOLERANCE = 1.5 * 2**0.5 * 0.024


@library.custom_op("finegemm_example::linear", mutates_args=())
def linear(x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """x [M, K] bf16, weight [N, K] e4m3, scales [ceil(N/128), ceil(K/128)] f32: bf16 [M, N]."""
    return finegemm.gemm(*finegemm.quantize_rows(x), weight, scales)


@linear.register_fake
def _(x, weight, scales):
    return x.new_empty(x.shape[0], weight.shape[0])


class Linear(torch.nn.Module):
    """A linear layer whose weights are kept in FP8. For inference: gradients stop here."""

    def __init__(self, weight: torch.Tensor):
        super().__init__()
        codes, scales = finegemm.quantize_blocks(weight)
        self.register_buffer("weight", codes)
        self.register_buffer("scales", scales)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return linear(x, self.weight, self.scales)


def example(device: str) -> tuple[torch.nn.Module, list[torch.Tensor], torch.Tensor]:
    """Two layers with an activation, their weights in bf16, and tokens."""
    torch.manual_seed(0)
    up, down, x = (torch.randn(shape, device=device).bfloat16() for shape in ((512, 256), (256, 512), (33, 256)))
    return torch.nn.Sequential(Linear(up), torch.nn.SiLU(), Linear(down)), [up, down], x


def main() -> int:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, (up, down), x = example(device)
    # On a CPU without inductor, which would need a compiler; the graph is made the same way.
    compiled = torch.compile(model, fullgraph=True, backend="inductor" if device == "cuda" else "aot_eager")
    with torch.no_grad():
        y = compiled(x)
        hidden = torch.nn.functional.silu(x.float() @ up.float().t())
        want = hidden @ down.float().t()
    off = float((y.float() - want).norm() / want.norm())
    print(f"two compiled FP8 layers on {device}: {off:.1%} off plain FP32, at most {2**0.5 * TOLERANCE:.1%} expected")
    return 0 if off < 2**0.5 * TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
