"""What gpu_check.py checks and times of a whole layer of experts: the one of examples/python, beside plain BF16."""

import collections
import importlib.util
import itertools
import pathlib
import sys
import types

import torch

from gpu_cases import blocks, expanded
from gpu_fixture import Fixture
from gpu_library import OFFSETS, Library
from gpu_timing import median_times

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent / "examples/python/moe_layer.py"
# Tokens, hidden, intermediate, experts, how many of them a token has.
LAYERS = ((512, 2048, 1024, 32, 8), (4096, 2048, 1024, 32, 8), (512, 4096, 1536, 32, 4), (4096, 4096, 1536, 32, 4))

# Bound for the relative error of a row of a product, the codes being given. Rounding to bf16 is off by 0.15% in root
# mean square: (2^-7)^2 / 12 over 7 / 3. Of a block a tensor core cuts 132 addends and 4 sums at 2^(E - 13), where 2^E
# is at most the largest of them: about 16 times a product in root mean square, and a sum of 128 is 128^0.5 times.
# What is cut has random signs: (136 / 3 / 128)^0.5 * 16 * 2^-13 = 0.12%. Together 0.19%; twice that is left for
# chance and uneven operands.
PRODUCT_TOLERANCE = 2.0**-8

# a, sfa, b, sfb, d, offsets
Product = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


class Functions(types.ModuleType):
    """What the example calls of the Python package, by the C ABI. products: the last two, operands and result."""

    def __init__(self, tested: Library):
        super().__init__("finegemm")
        self.tested = tested
        self.products: collections.deque[Product] = collections.deque(maxlen=2)

    def quantized(self, kind: str, x, rows_of_scales: int):
        q = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
        scales = torch.empty(rows_of_scales, blocks(x.shape[1]), device=x.device)
        self.tested.quantize(kind, x, q, scales)
        return q, scales

    def quantize_rows(self, x):
        return self.quantized("rows", x, len(x))

    def quantize_blocks(self, x):
        return self.quantized("blocks", x, blocks(len(x)))

    def grouped_gemm(self, a, sfa, b, sfb, offsets):
        d = torch.empty(len(a), b.shape[1], dtype=torch.bfloat16, device=a.device)
        self.products.append((a, sfa, b, sfb, d, offsets))
        self.tested.grouped_gemm(*self.products[-1], OFFSETS)
        return d


def example_with(functions: Functions):
    """The example as it stands; `functions` are there instead of the Python package, which a check does not need."""
    sys.modules["finegemm"] = functions
    spec = importlib.util.spec_from_file_location(EXAMPLE.stem, EXAMPLE)
    assert spec and spec.loader
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


def layer_operands(
    tokens: int, hidden: int, intermediate: int, experts: int, generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """x, router, gate_up, down: BF16, as a model has them, but for the router."""

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=generator.device, generator=generator) / shape[-1] ** 0.5

    x = normal(tokens, hidden) * hidden**0.5
    gate_up, down = normal(experts, 2 * intermediate, hidden), normal(experts, hidden, intermediate)
    return x.bfloat16(), normal(experts, hidden), gate_up.bfloat16(), down.bfloat16()


def plain(x, router, gate_up, down, top_k: int) -> torch.Tensor:
    """The same layer with torch.matmul in BF16, an expert at a time: nothing is permuted, nothing in FP8."""
    odds, chosen = (x.float() @ router.t()).topk(top_k)
    weights = odds.softmax(1)
    out = torch.zeros(x.shape, device=x.device)
    for expert in range(len(router)):
        tokens, choices = (chosen == expert).nonzero(as_tuple=True)
        gate, up = (x[tokens] @ gate_up[expert].t()).float().chunk(2, 1)
        rows = (torch.nn.functional.silu(gate) * up).bfloat16() @ down[expert].t()
        out.index_add_(0, tokens, weights[tokens, choices, None] * rows)
    return out


def worst_row(errors, a, sfa, b, sfb, d, offsets) -> float:
    """The relative error of a product's worst row, against the dequantised operands in double."""
    ends, worst = offsets.tolist(), [0.0]
    for group, (begin, end) in enumerate(itertools.pairwise(ends)):
        if end > begin:
            exact = expanded(a[begin:end], sfa[begin:end], 1) @ expanded(b[group], sfb[group], 128).t()
            worst.append(float(errors(d[begin:end], exact).max()))
    return max(worst)


class Moe(Fixture):
    def moe(self):
        """Layers of experts: both products against double, each token against plain BF16, and what they take."""
        functions = Functions(self.tested)
        example = example_with(functions)
        return {"layers": [self.one_layer(example, functions, *shape) for shape in LAYERS]}

    def one_layer(self, example, functions: Functions, tokens, hidden, intermediate, experts, top_k) -> dict:
        operands = layer_operands(tokens, hidden, intermediate, experts, self.generator)
        x, layer = operands[0], example.Layer(*operands[1:], top_k)
        worst = {"token": float(example.errors(layer(x), plain(*operands, top_k)).max())}
        products = list(functions.products)
        worst |= {name: worst_row(example.errors, *p) for name, p in zip(("gate_up", "down"), products, strict=True)}
        what = {"tokens": tokens, "hidden": hidden, "intermediate": intermediate, "experts": experts, "top_k": top_k}
        for name, error in worst.items():
            tolerance = example.TOLERANCE if name == "token" else PRODUCT_TOLERANCE
            if not error <= tolerance:
                raise AssertionError(f"{what}: {name} is off by {error:.4f}, {tolerance:.4f} is allowed")
        gemms = [self.tested.prepare_grouped(*p, OFFSETS) for p in products]
        calls = {
            "layer": lambda: layer(x),
            "its products": lambda: [gemm() for gemm in gemms],
            "plain bf16": lambda: plain(*operands, top_k),
        }
        us = {name: round(t, 1) for name, t in median_times(calls, self.options.rounds).items()}
        return what | {"worst": {name: round(error, 5) for name, error in worst.items()}, "us": us}
