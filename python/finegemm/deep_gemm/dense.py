"""Products of two matrices."""

from collections.abc import Sequence
from typing import Any

from finegemm.errors import InvalidArgument

from . import operators
from .operands import (
    BLOCK,
    Pair,
    Recipe,
    Tensor,
    block_rows,
    check_scales_of_b,
    check_source,
    integers,
    parts,
    refuse,
    starts_from,
    transposed,
)
from .operators import run
from .torch_module import torch


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
) -> None:
    """d [M, N] = c + alpha * a [M, K] times b [N, K], both with their scales; d bfloat16, float16 or float32.

    `compiled_dims` and `disable_ue8m0_cast` change nothing: shapes are arguments of the kernels, scales are float32.
    """
    qa, sfa, qb, sfb = parts(a, b)
    check_scales_of_b(block_rows(recipe, recipe_a, recipe_b), qb, sfb)
    if epilogue is not None:
        refuse(epilogue=epilogue)
    n, f32 = qb.shape[0], d.dtype == torch.float32
    direct = alpha is None and (f32 or (c is None and d.dtype == torch.bfloat16))
    # Float32, through which the others go, is written with scales for each row of B alone.
    if (f32 or not direct) and sfb.shape[0] == -(-n // BLOCK):
        sfb = sfb.repeat_interleave(BLOCK, 0)[:n]
    if direct:
        run(operators.gemm, qa, sfa, qb, sfb, d, starts_from(d, c))
    else:
        _through_float32(qa, sfa, qb, sfb, d, c, alpha)


def fp8_fp4_gemm_nn(
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
) -> None:
    """fp8_fp4_gemm_nt with b [K, N], a view of K-major memory, and its scales alike."""
    fp8_fp4_gemm_nt(a, transposed("b", b), d, c, recipe, recipe_a, recipe_b, alpha=alpha, epilogue=epilogue)


def fp8_fp4_gemm_tn(
    a: Pair,
    b: Pair,
    d: Tensor,
    c: Tensor | None = None,
    recipe: Recipe = None,
    recipe_a: Recipe = None,
    recipe_b: Recipe = None,
    compiled_dims: str = "mn",
    disable_ue8m0_cast: bool = False,
    alpha: float | None = None,
    *,
    epilogue: Any = None,
) -> None:
    """fp8_fp4_gemm_nt with a [K, M] and b [K, N], views of K-major memory, and their scales alike."""
    fp8_fp4_gemm_nt(
        transposed("a", a), transposed("b", b), d, c, recipe, recipe_a, recipe_b, alpha=alpha, epilogue=epilogue
    )


def fp8_fp4_gemm_tt(
    a: Pair,
    b: Pair,
    d: Tensor,
    c: Tensor | None = None,
    recipe: Recipe = None,
    recipe_a: Recipe = None,
    recipe_b: Recipe = None,
    compiled_dims: str = "mn",
    disable_ue8m0_cast: bool = False,
    alpha: float | None = None,
    *,
    epilogue: Any = None,
) -> None:
    """fp8_fp4_gemm_nt with a [K, M], a view of K-major memory, and its scales alike."""
    fp8_fp4_gemm_nt(transposed("a", a), b, d, c, recipe, recipe_a, recipe_b, alpha=alpha, epilogue=epilogue)


fp8_gemm_nt = fp4_gemm_nt = fp8_fp4_gemm_nt
fp8_gemm_nn, fp8_gemm_tn, fp8_gemm_tt = fp8_fp4_gemm_nn, fp8_fp4_gemm_tn, fp8_fp4_gemm_tt


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
    rows, heads = b[0].shape[0], b[0].shape[0] // max(1, left + right)
    if min(left, middle, right) < 0 or heads * (left + right) != rows:
        raise InvalidArgument(
            f"head_splits: is {(left, middle, right)}, must be three widths, not negative, of which the first and the "
            f"last together divide the {rows} rows of b; pass those of a head"
        )
    if d.shape[-1] != rows + heads * middle:
        raise InvalidArgument(
            f"d: has {d.shape[-1]} columns, must have {rows + heads * middle}, {left + middle + right} for each of "
            f"{heads} heads; pass memory of that shape"
        )
    product = torch.empty((d.shape[0], rows), dtype=d.dtype, device=d.device)
    fp8_fp4_gemm_nt(a, b, product, None, recipe, epilogue=epilogue)
    heads_of_d, heads_of_product = (x.unflatten(1, (heads, x.shape[1] // heads)) for x in (d, product))
    heads_of_d[..., :left].copy_(heads_of_product[..., :left])
    heads_of_d[..., left + middle :].copy_(heads_of_product[..., left:])


def _through_float32(
    a: Tensor, sfa: Tensor, b: Tensor, sfb: Tensor, d: Tensor, c: Tensor | None, alpha: float | None
) -> None:
    """What no kernel writes by itself: the product in float32, and the rest of it by torch, rounded once."""
    if d.dtype not in (torch.bfloat16, torch.float16, torch.float32):
        raise InvalidArgument(f"d: has dtype {d.dtype}, must be bfloat16, float16 or float32; convert the result")
    if c is not None:
        check_source(d, c)
    adds = c is not None and alpha is None
    product = torch.empty(d.shape, dtype=torch.float32, device=d.device)
    if adds:
        product.copy_(c)
    run(operators.gemm, a, sfa, b, sfb, product, adds)
    if alpha is not None:
        product.mul_(alpha)
        if c is not None:
            product.add_(c)
    d.copy_(product)
