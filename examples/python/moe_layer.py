#!/usr/bin/env python3
"""A mixture of experts in FP8: routing, two grouped GEMMs with SwiGLU between them, and the weighted sum of experts.

The same code runs on NumPy arrays and on torch tensors, on a CPU and on a GPU; on a GPU nothing waits for it.
Needs: pip install ".[numpy]" in this repository, NumPy 2 or later; torch if there is a GPU to use
"""

import dataclasses
import sys
from typing import Any

import numpy as np

import finegemm

TOKENS, HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 64, 256, 128, 8, 2
IDLE_EXPERT = 3  # no token goes there: a group may be empty

# Six roundings to e4m3 stand between the layer and its FP32 twin: tokens and weights of gate and of up, what comes out
# of SwiGLU, and the weights of down. A significand of 4 bits is off by half a unit at most, evenly, which is 2.4% of a
# value in root mean square: (2^-3)^2 / 12 over 7 / 3, the mean square of [1, 2). The six are independent of one another
# and average over the sum, so the layer is off by sqrt(6) * 2.4% = 5.9%; twice that is left for chance, as a token is a
# weighted sum of two experts only and SwiGLU is not linear.
TOLERANCE = 2 * 6**0.5 * 0.024


def library_of(x: Any) -> Any:
    """numpy or torch: below are only functions that both have under one name."""
    return sys.modules[type(x).__module__.partition(".")[0]]


def cast(x: Any, dtype: Any) -> Any:
    return x.astype(dtype) if isinstance(x, np.ndarray) else x.to(dtype)


def quantise_experts(w: Any) -> tuple[Any, Any]:
    """[E, N, K] to e4m3, a scale for 128x128 weights. N is a multiple of 128: no block has weights of two experts."""
    experts, n, k = w.shape
    q, scales = finegemm.quantize_blocks(w.reshape(experts * n, k))
    return q.reshape(experts, n, k), scales.reshape(experts, n // 128, -1)


@dataclasses.dataclass
class Routing:
    weights: Any  # [tokens, top_k]
    source: Any  # [tokens * top_k]: which token each row of the permuted matrix is
    slot: Any  # [tokens * top_k]: where the row of each token and choice went
    offsets: Any  # [experts + 1], int32: where the rows of each expert begin, on the device of the tokens


def route(x: Any, router: Any, top_k: int = TOP_K) -> Routing:
    xp = library_of(x)
    logits = cast(x, xp.float32) @ router.T
    tokens, experts = logits.shape
    chosen = xp.argsort(-logits, stable=True)[:, :top_k]
    picked = logits[xp.arange(tokens, device=x.device)[:, None], chosen]
    odds = xp.exp(picked - picked[:, :1])  # the first is the largest
    expert_of_row = chosen.reshape(-1)
    order = xp.argsort(expert_of_row, stable=True)  # rows of one expert become neighbours
    begins = xp.searchsorted(expert_of_row[order], xp.arange(experts + 1, device=x.device))
    return Routing(
        weights=odds / odds.sum(-1)[:, None],
        source=order // top_k,
        slot=xp.argsort(order, stable=True),
        offsets=cast(begins, xp.int32),
    )


def swiglu(gate_and_up: Any) -> Any:
    xp = library_of(gate_and_up)
    x = cast(gate_and_up, xp.float32)
    gate, up = x[:, : x.shape[1] // 2], x[:, x.shape[1] // 2 :]
    return gate / (1 + xp.exp(-gate)) * up


class Layer:
    """Weights are quantised once. gate_up [E, 2 * intermediate, hidden], down [E, hidden, intermediate]: FP32 or BF16,
    as tokens; router [E, hidden]: FP32."""

    def __init__(self, router: Any, gate_up: Any, down: Any, top_k: int = TOP_K) -> None:
        self.router, self.top_k = router, top_k
        self.gate_up = quantise_experts(gate_up)
        self.down = quantise_experts(down)

    def __call__(self, x: Any) -> Any:
        to = route(x, self.router, self.top_k)
        rows = x[to.source]
        rows = swiglu(finegemm.grouped_gemm(*finegemm.quantize_rows(rows), *self.gate_up, offsets=to.offsets))
        rows = finegemm.grouped_gemm(*finegemm.quantize_rows(rows), *self.down, offsets=to.offsets)
        of_tokens = cast(rows[to.slot], library_of(x).float32).reshape(*to.weights.shape, -1)
        return (of_tokens * to.weights[:, :, None]).sum(1)


def plain(x: np.ndarray, router: np.ndarray, gate_up: np.ndarray, down: np.ndarray) -> np.ndarray:
    """The same layer in FP32, a token and an expert at a time."""
    out = np.zeros_like(x)
    logits = x @ router.T
    for t, token in enumerate(x):
        chosen = np.argsort(-logits[t], stable=True)[:TOP_K]
        odds = np.exp(logits[t, chosen])
        for expert, weight in zip(chosen, odds / odds.sum(), strict=True):
            out[t] += weight * (down[expert] @ swiglu((gate_up[expert] @ token)[None])[0])
    return out


def example() -> tuple[np.ndarray, ...]:
    """x, router, gate_up, down. Values have magnitudes that layers of models have."""
    random = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32)

    x = normal(TOKENS, HIDDEN) * np.float32(HIDDEN**0.5)
    router = normal(EXPERTS, HIDDEN)
    x[:, 0], router[:, 0] = 1, 0
    router[IDLE_EXPERT, 0] = -100
    return x, router, normal(EXPERTS, 2 * INTERMEDIATE, HIDDEN), normal(EXPERTS, HIDDEN, INTERMEDIATE)


def errors(out: Any, want: Any) -> Any:
    """Of each token, relative."""
    norm = library_of(want).linalg.norm
    return norm(out - want, axis=1) / norm(want, axis=1)


def main() -> int:
    arrays = example()
    library, inputs = "NumPy", arrays
    try:
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        library, inputs = f"torch on {device}", tuple(torch.from_numpy(x).to(device) for x in arrays)
    except ImportError:
        pass  # NumPy will do
    x, *weights = inputs
    out = Layer(*weights)(x)
    worst = errors(out if library == "NumPy" else out.cpu().numpy(), plain(*arrays)).max()
    print(f"{library}: {TOKENS} tokens, {EXPERTS} experts, top {TOP_K}: relative error {worst:.4f} of the worst token")
    return 0 if worst < TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
