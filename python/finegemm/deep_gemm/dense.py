"""Products of two matrices."""

from collections.abc import Sequence
from typing import Any

from finegemm.torch_operators import watched

from . import operators
from .operands import (
    Pair,
    Recipe,
    Tensor,
    block_rows,
    check_bf16,
    check_scales_of_b,
    integers,
    parts,
    refuse,
    with_k_first,
)


def fp8_fp4_gemm_nt(
    a: Pair,
    b: Pair,
    d: Tensor,
    c: Tensor | None = None,
    recipe: Recipe = None,
    recipe_a: Recipe = None,
    recipe_b: Recipe = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    alpha: float | None = None,
    *,
    epilogue: Any = None,
    _turned: str = "",
) -> None:
    """d [M, N] = c + alpha * a [M, K] times b [N, K], both with their scales; d bfloat16, float16 or float32.

    `compiled_dims` and `disable_ue8m0_cast` change nothing: shapes are arguments of the kernels, scales are float32.
    """
    qa, sfa, qb, sfb = parts(a, b)
    if recipe is not None or recipe_a is not None or recipe_b is not None:
        check_scales_of_b(block_rows(recipe, recipe_a, recipe_b), qb, sfb, _turned)
    if epilogue is not None:
        refuse(epilogue=epilogue)
    accumulate = c is d
    watched(operators.gemm)(qa, sfa, qb, sfb, d, None if accumulate else c, accumulate, alpha, _turned)


fp8_fp4_gemm_nn = with_k_first(fp8_fp4_gemm_nt, "fp8_fp4_gemm_nn", "b", "nk")
fp8_fp4_gemm_tn = with_k_first(fp8_fp4_gemm_nt, "fp8_fp4_gemm_tn", "ab", "mn")
fp8_fp4_gemm_tt = with_k_first(fp8_fp4_gemm_nt, "fp8_fp4_gemm_tt", "a", "mn")

fp8_gemm_nt = fp4_gemm_nt = fp8_fp4_gemm_nt
fp8_gemm_nn, fp8_gemm_tn, fp8_gemm_tt = fp8_fp4_gemm_nn, fp8_fp4_gemm_tn, fp8_fp4_gemm_tt


def bf16_gemm_nt(
    a: Tensor,
    b: Tensor,
    d: Tensor,
    c: Tensor | None = None,
    compiled_dims: str = "nk",
    alpha: float | None = None,
    *,
    epilogue: Any = None,
    _turned: str = "",
) -> None:
    """d [M, N] = c + alpha * a [M, K] times b [N, K], both bfloat16; d bfloat16, float16 or float32."""
    if epilogue is not None:
        refuse(epilogue=epilogue)
    check_bf16(a)
    accumulate = c is d
    watched(operators.gemm)(a, None, b, None, d, None if accumulate else c, accumulate, alpha, _turned)


bf16_gemm_nn = with_k_first(bf16_gemm_nt, "bf16_gemm_nn", "b", "nk")
bf16_gemm_tn = with_k_first(bf16_gemm_nt, "bf16_gemm_tn", "ab", "mn")
bf16_gemm_tt = with_k_first(bf16_gemm_nt, "bf16_gemm_tt", "a", "mn")


def fp8_gemm_nt_skip_head_mid(
    a: Pair,
    b: Pair,
    d: Tensor,
    head_splits: Sequence[int],
    recipe: Recipe = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    *,
    epilogue: Any = None,
) -> None:
    """fp8_fp4_gemm_nt into the first and the last columns of each head of d; those between are not written."""
    left, middle, right = integers("head_splits", head_splits, 3)
    if epilogue is not None:
        refuse(epilogue=epilogue)
    qa, sfa, qb, sfb = parts(a, b)
    if recipe is not None:
        check_scales_of_b(block_rows(recipe, None, None), qb, sfb, "")
    watched(operators.gemm_into_heads)(qa, sfa, qb, sfb, d, (left, middle, right))
