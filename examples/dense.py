#!/usr/bin/env python3
"""A linear layer in FP8: quantise activations and weights, multiply, compare.

Needs: pip install ".[numpy]" in this repository
"""

import ml_dtypes
import numpy as np

import finegemm

TOKENS, OUT_FEATURES, IN_FEATURES = 64, 512, 1024

random = np.random.default_rng(0)
activations = random.standard_normal((TOKENS, IN_FEATURES)).astype(ml_dtypes.bfloat16)
weights = random.standard_normal((OUT_FEATURES, IN_FEATURES)).astype(ml_dtypes.bfloat16)

# Once per layer: one scale for each block of 128 x 128 weights.
weights_fp8, weight_scales = finegemm.quantize_blocks(weights)

# Each step: one scale for each token and 128 features. torch tensors go in the same way and stay on their GPU.
activations_fp8, activation_scales = finegemm.quantize_rows(activations)
result = finegemm.gemm(activations_fp8, activation_scales, weights_fp8, weight_scales)

exact = activations.astype(np.float32) @ weights.astype(np.float32).T
error = np.linalg.norm(result.astype(np.float32) - exact) / np.linalg.norm(exact)
print(f"{TOKENS} x {OUT_FEATURES} x {IN_FEATURES}: relative error {error:.4f} against float32")

kernel = finegemm.explain(TOKENS, OUT_FEATURES, IN_FEATURES, device="h200")["chosen"]
print(f"on an H200: kernel {kernel['name']}, about {kernel['us']} us")
assert error < 0.06, "two roundings to e4m3"
