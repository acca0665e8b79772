#!/usr/bin/env python3
"""Gradients of the weights of a mixture of experts in FP8: dW[e] += dY_e^T X_e over the tokens of each expert, in FP32.

The same code runs on NumPy arrays and on torch tensors, on a CPU and on a GPU; on a GPU nothing waits for it.
Needs: pip install ".[numpy]" in this repository, NumPy 2 or later; torch if there is a GPU to use
"""

import dataclasses
import itertools
import sys
from typing import Any

import numpy as np

import finegemm

TOKENS, HIDDEN, OUT, EXPERTS, BATCHES = 500, 256, 128, 4, 2
IDLE_EXPERT = 2  # no token goes there: a group may be empty
BLOCK = 128  # tokens with a scale of their own; each expert has whole blocks

# Two roundings to e4m3, of dY and of X, each off by 2.4% of a value in root mean square (moe_layer.py derives it),
# independent of one another: sqrt(2) * 2.4% = 3.4% of a gradient; twice that is left for chance.
TOLERANCE = 2 * 2**0.5 * 0.024


def library_of(x: Any) -> Any:
    """numpy or torch: below are only functions that both have under one name."""
    return sys.modules[type(x).__module__.partition(".")[0]]


def contiguous(x: Any) -> Any:
    return np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x.contiguous()


@dataclasses.dataclass
class Slots:
    """Where tokens lie when those of each expert are neighbours and begin at multiples of BLOCK."""

    order: Any  # [tokens]: which token comes next
    slot: Any  # [tokens]: and where
    offsets: Any  # [EXPERTS + 1], int32: where each expert begins, on the device of the tokens
    capacity: int  # tokens and padding, whatever the routing is: known without a look at the device


def slots_of(expert_of_token: Any) -> Slots:
    xp = library_of(expert_of_token)
    tokens, device = expert_of_token.shape[0], expert_of_token.device
    order = xp.argsort(expert_of_token, stable=True)
    expert = expert_of_token[order]
    begins = xp.searchsorted(expert, xp.arange(EXPERTS + 1, device=device))  # without padding
    rank = xp.arange(tokens, device=device) - begins[expert]  # of a token within its expert
    offsets = xp.zeros(EXPERTS + 1, dtype=xp.int32, device=device)
    offsets[1:] = xp.cumsum((begins[1:] - begins[:-1] + BLOCK - 1) // BLOCK * BLOCK, 0)
    capacity = -(-(tokens + EXPERTS * (BLOCK - 1)) // BLOCK) * BLOCK
    return Slots(order, offsets[expert] + rank, offsets, capacity)


def quantise_along_tokens(x: Any, to: Slots) -> tuple[Any, Any]:
    """[tokens, columns] to e4m3 [columns, capacity], a scale for each column and BLOCK tokens. Padding is zero."""
    padded = library_of(x).zeros((to.capacity, x.shape[1]), dtype=x.dtype, device=x.device)
    padded[to.slot] = x[to.order]
    return finegemm.quantize_rows(contiguous(padded.T))


def add_weight_grads(grads: Any, dy: Any, x: Any, expert_of_token: Any) -> None:
    """grads [EXPERTS, OUT, HIDDEN] += dy_e^T x_e; dy [tokens, OUT], x [tokens, HIDDEN]. All in FP32."""
    to = slots_of(expert_of_token)
    a, b = quantise_along_tokens(dy, to), quantise_along_tokens(x, to)
    finegemm.k_grouped_gemm(*a, *b, grads, offsets=to.offsets, accumulate=True)


def as_blocks(x: Any, offsets: list[int]) -> Any:
    """The other layout: a vector of one matrix [columns, tokens of the expert] after the other."""
    return library_of(x).concatenate([x[:, i:j].reshape(-1) for i, j in itertools.pairwise(offsets)])


def weight_grads_of_blocks(dy: Any, x: Any, expert_of_token: Any) -> Any:
    """Gradients of one batch, for those who keep experts apart. Where each begins must be known on the host."""
    to = slots_of(expert_of_token)
    (a, sfa), (b, sfb) = quantise_along_tokens(dy, to), quantise_along_tokens(x, to)
    offsets = to.offsets.tolist()  # waits for the device
    used = offsets[-1] // BLOCK  # the rest of the capacity is left out
    return finegemm.k_grouped_gemm(
        as_blocks(a, offsets), sfa[:, :used], as_blocks(b, offsets), sfb[:, :used], offsets=offsets
    )


def plain(dy: np.ndarray, x: np.ndarray, expert_of_token: np.ndarray) -> np.ndarray:
    """The same in FP32, an expert at a time."""
    return np.stack([dy[expert_of_token == e].T @ x[expert_of_token == e] for e in range(EXPERTS)])


def batch(seed: int) -> tuple[np.ndarray, ...]:
    """dy, x and the expert of each token."""
    random = np.random.default_rng(seed)
    busy = [e for e in range(EXPERTS) if e != IDLE_EXPERT]
    return (
        random.standard_normal((TOKENS, OUT)).astype(np.float32) * np.float32(1e-3),
        random.standard_normal((TOKENS, HIDDEN)).astype(np.float32),
        random.choice(busy, TOKENS),
    )


def errors(out: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Of each expert that has tokens, relative."""
    sizes = np.linalg.norm(want, axis=(1, 2))
    return np.linalg.norm(out - want, axis=(1, 2))[sizes > 0] / sizes[sizes > 0]


def main() -> int:
    batches = [batch(seed) for seed in range(BATCHES)]
    library, inputs, xp = "NumPy", batches, np
    try:
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        library, xp = f"torch on {device}", torch
        inputs = [tuple(torch.from_numpy(x).to(device) for x in arrays) for arrays in batches]
    except ImportError:
        pass  # NumPy will do
    grads = xp.zeros((EXPERTS, OUT, HIDDEN), dtype=xp.float32, device=inputs[0][0].device)
    for arrays in inputs:
        add_weight_grads(grads, *arrays)
    out = grads if library == "NumPy" else grads.cpu().numpy()
    worst = errors(out, sum(plain(*arrays) for arrays in batches)).max()
    print(f"{library}: {EXPERTS} experts, {BATCHES} x {TOKENS} tokens: relative error {worst:.4f} of the worst expert")
    return 0 if worst < TOLERANCE and not out[IDLE_EXPERT].any() else 1


if __name__ == "__main__":
    sys.exit(main())
