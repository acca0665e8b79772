#!/usr/bin/env python3
"""A layer of experts in one call: a router, then finegemm.moe, with NumPy arrays or torch tensors.

Each of several ranks has some of the experts, and computes what these add to a token: the sum over ranks is the layer.
Needs: pip install ".[numpy]" in this repository, NumPy 2 or later; torch if there is a GPU to use
"""

import sys
from typing import Any

import numpy as np

import finegemm

TOKENS, HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, RANKS = 48, 512, 256, 8, 2, 2


def chosen(x: Any, router: Any) -> tuple[Any, Any]:
    """ids and weights, [tokens, TOP_K], of a softmax over what was chosen."""
    library = sys.modules[type(x).__module__.partition(".")[0]]
    logits = x @ router.T
    ids = library.argsort(-logits, stable=True)[:, :TOP_K]
    picked = logits[library.arange(len(x), device=x.device)[:, None], ids]
    odds = library.exp(picked - picked[:, :1])  # the first is the largest
    return ids, odds / odds.sum(-1)[:, None]


def quantised(w: Any) -> tuple[Any, Any]:
    """Weights of all experts, [E, N, K], N a multiple of 128, with a scale for each 128x128 of them: once, before."""
    experts, n, k = w.shape
    q, scales = finegemm.quantize_blocks(w.reshape(experts * n, k))
    return q.reshape(experts, n, k), scales.reshape(experts, n // 128, -1)


def layer(x: Any, bf16: Any, router: Any, gate_up: Any, down: Any) -> list[np.ndarray]:
    """What the experts of each rank add to each token. x: float32, bf16: the same in bfloat16."""
    ids, weights = chosen(x, router)
    parts = (*quantised(gate_up), *quantised(down))
    here = EXPERTS // RANKS
    return [
        to_numpy(finegemm.moe(bf16, ids, *(w[first : first + here] for w in parts), weights, first=first))
        for first in range(0, EXPERTS, here)
    ]


def to_numpy(x: Any) -> np.ndarray:
    return x.astype(np.float32) if isinstance(x, np.ndarray) else x.float().cpu().numpy()


def plain(x: np.ndarray, router: np.ndarray, gate_up: np.ndarray, down: np.ndarray) -> np.ndarray:
    """The layer in float32, a token and an expert at a time."""
    out = np.zeros_like(x)
    ids, weights = chosen(x, router)
    for t, token in enumerate(x):
        for expert, weight in zip(ids[t], weights[t], strict=True):
            gate, up = np.split(gate_up[expert] @ token, 2)
            out[t] += weight * (down[expert] @ (gate / (1 + np.exp(-gate)) * up))
    return out


def example() -> tuple[np.ndarray, ...]:
    """x, router, gate_up and down, of magnitudes that layers of models have."""
    random = np.random.default_rng(0)
    shapes = ((EXPERTS, HIDDEN), (EXPERTS, 2 * INTERMEDIATE, HIDDEN), (EXPERTS, HIDDEN, INTERMEDIATE))
    weights = ((random.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32) for shape in shapes)
    return random.standard_normal((TOKENS, HIDDEN)).astype(np.float32), *weights


def worst_error(out: np.ndarray, want: np.ndarray) -> float:
    """Relative, of a token."""
    return float((np.linalg.norm(out - want, axis=1) / np.linalg.norm(want, axis=1)).max())


# Tokens, weights of gate, of up and of down, and what leaves the activation are rounded to e4m3, 2.4% of a value in
# root mean square each; twice what the five make together is left for chance.
TOLERANCE = 2 * 5**0.5 * 0.024


def main() -> int:
    arrays, library = example(), "NumPy"
    try:
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        tensors = [torch.from_numpy(x).to(device) for x in arrays]
        library, parts = f"torch on {device}", layer(tensors[0], tensors[0].bfloat16(), *tensors[1:])
    except ImportError:  # NumPy will do
        import ml_dtypes

        parts = layer(arrays[0], arrays[0].astype(ml_dtypes.bfloat16), *arrays[1:])
    error = worst_error(sum(parts), plain(*arrays))
    print(f"{library}: {TOKENS} tokens, {EXPERTS} experts on {RANKS} ranks: relative error {error:.4f} of the worst")
    told = finegemm.explain_moe(TOKENS, TOP_K, HIDDEN, INTERMEDIATE, EXPERTS, device="h200")
    print(f"an H200 would make {len(told['launches'])} launches for one rank that has all: {told['why'][0]}")
    return 0 if error < TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
