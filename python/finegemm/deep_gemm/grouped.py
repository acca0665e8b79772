"""Products of groups of rows, of groups of K, and of heads."""

from collections.abc import Sequence
from typing import Any

from finegemm.errors import InvalidArgument, Unsupported

from . import operators
from .operands import (
    Pair,
    Recipe,
    Tensor,
    block_rows,
    check_scales_of_b,
    integer,
    integers,
    one_of,
    pair,
    parts,
    refuse,
    starts_from,
    transposed,
)
from .operators import run
from .torch_module import torch


def m_grouped_fp8_fp4_gemm_nt_contiguous(
    a: Pair,
    b: Pair,
    d: Tensor,
    grouped_layout: Tensor | None = None,
    recipe: Recipe = None,
    recipe_a: Recipe = None,
    recipe_b: Recipe = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    expected_m_for_psum_layout: int | None = None,
    *,
    m_indices: Tensor | None = None,
    epilogue: Any = None,
) -> None:
    """d [M, N] = rows of a [M, K] times b [G, N, K] of their group; d bfloat16.

    `grouped_layout`: int32, the group of each row, -1 for padding; or with `use_psum_layout` the end of each group.
    Groups begin at multiples of what set_mk_alignment_for_contiguous_layout says. `ensure_zero_padding` changes
    nothing: rows of -1 become zero, those between two groups are not written.
    """
    layout = one_of(grouped_layout=grouped_layout, m_indices=m_indices)
    refuse(epilogue=epilogue)
    if expected_m_for_psum_layout is not None and not use_psum_layout:
        raise InvalidArgument("expected_m_for_psum_layout: is given without use_psum_layout; leave it out, or set both")
    _grouped(
        a,
        b,
        d,
        (recipe, recipe_a, recipe_b),
        m_indices=None if use_psum_layout else layout,
        prefix_sums=layout if use_psum_layout else None,
        expected_m=integer("expected_m_for_psum_layout", expected_m_for_psum_layout or 0),
    )


def m_grouped_fp8_fp4_gemm_nn_contiguous(
    a: Pair,
    b: Pair,
    d: Tensor,
    grouped_layout: Tensor | None = None,
    recipe: Recipe = None,
    recipe_a: Recipe = None,
    recipe_b: Recipe = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    *,
    m_indices: Tensor | None = None,
    epilogue: Any = None,
) -> None:
    """m_grouped_fp8_fp4_gemm_nt_contiguous with b [G, K, N], a view of K-major memory, and its scales alike."""
    m_grouped_fp8_fp4_gemm_nt_contiguous(
        a,
        transposed("b", b),
        d,
        grouped_layout,
        recipe,
        recipe_a,
        recipe_b,
        use_psum_layout=use_psum_layout,
        m_indices=m_indices,
        epilogue=epilogue,
    )


def m_grouped_fp8_fp4_gemm_nt_masked(
    a: Pair,
    b: Pair,
    d: Tensor,
    masked_m: Tensor,
    expected_m: int,
    recipe: Recipe = None,
    recipe_a: Recipe = None,
    recipe_b: Recipe = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    *,
    max_block_n: int | None = None,
    enable_overlap: bool = False,
    signal: Tensor | None = None,
    epilogue: Any = None,
) -> None:
    """d [G, M, N] = a [G, M, K] times b [G, N, K] in the first masked_m[g] rows of each; d bfloat16.

    `expected_m`: rows of a typical group, to choose the kernel by. Rows behind them are not written. `max_block_n`
    changes nothing.
    """
    refuse(enable_overlap=enable_overlap, signal=signal, epilogue=epilogue)
    if integer("expected_m", expected_m) < 1:
        raise InvalidArgument(f"expected_m: is {expected_m}, must be at least 1; pass the rows of a typical group")
    if 0 in (*d.shape, a[0].shape[-1]):
        raise InvalidArgument(
            f"d: has shape {list(d.shape)} and a {list(a[0].shape)}, must have no extent of 0; leave the call out, or "
            "set masked_m to zeros"
        )
    _grouped(a, b, d, (recipe, recipe_a, recipe_b), masked_m=masked_m.reshape(-1), expected_m=expected_m)


m_grouped_fp8_gemm_nt_contiguous = m_grouped_fp4_gemm_nt_contiguous = m_grouped_fp8_fp4_gemm_nt_contiguous
m_grouped_fp8_gemm_nn_contiguous = m_grouped_fp8_fp4_gemm_nn_contiguous
m_grouped_fp8_gemm_nt_masked = m_grouped_fp4_gemm_nt_masked = m_grouped_fp8_fp4_gemm_nt_masked
fp8_m_grouped_gemm_nt_masked = m_grouped_fp8_fp4_gemm_nt_masked


def _grouped(
    a: Pair,
    b: Pair,
    d: Tensor,
    recipes: tuple[Recipe, Recipe, Recipe],
    *,
    m_indices: Tensor | None = None,
    prefix_sums: Tensor | None = None,
    masked_m: Tensor | None = None,
    expected_m: int = 0,
) -> None:
    qa, sfa, qb, sfb = parts(a, b)
    check_scales_of_b(block_rows(*recipes), qb, sfb)
    run(operators.grouped_gemm, qa, sfa, qb, sfb, d, m_indices, prefix_sums, masked_m, expected_m)


def fp8_einsum(
    expr: str,
    a: Pair,
    b: Pair,
    d: Tensor,
    c: Tensor | None = None,
    recipe: Recipe = (1, 128, 128),
    *,
    epilogue: Any = None,
) -> None:
    """The product of each head: d [b, h, d] = a [b, h, r] times b [h, d, r] for "bhr,hdr->bhd"; d bfloat16."""
    if expr != "bhr,hdr->bhd":
        raise Unsupported(f"expr: is {expr!r}, must be 'bhr,hdr->bhd' on Hopper; multiply with torch.einsum otherwise")
    refuse(c=c, epilogue=epilogue)
    if block_rows(recipe, None, None) != 128:
        raise Unsupported(f"recipe: is {recipe}, must be (1, 128, 128) on Hopper; quantise to that")
    heads = tuple(x.transpose(0, 1) for x in pair("a", a))
    rows = torch.full((d.shape[1],), d.shape[0], dtype=torch.int32, device=d.device)
    _grouped(heads, b, d.transpose(0, 1), (recipe, None, None), masked_m=rows)


def k_grouped_fp8_gemm_nt_contiguous(
    a: Pair,
    b: Pair,
    d: Tensor,
    ks_cpu: Sequence[int] | None = None,
    grouped_layout: Tensor | None = None,
    c: Tensor | None = None,
    recipe: Recipe = (1, 1, 128),
    compiled_dims: str = "mn",
    use_psum_layout: bool = False,
    *,
    ks: Sequence[int] | None = None,
    ks_tensor: Tensor | None = None,
    epilogue: Any = None,
) -> None:
    """d [G, M, N] = c + a_g [M, k_g] times b_g [N, k_g] for each group; d float32.

    a and b hold the groups one behind the other, `ks_cpu` the k of each, multiples of 128 or 0. `grouped_layout`, the
    same on the device, is not read. Without `c` the product overwrites d.
    """
    refuse(use_psum_layout=use_psum_layout, epilogue=epilogue)
    sizes = one_of(ks_cpu=ks_cpu, ks=ks)
    if block_rows(recipe, None, None) != 1:
        raise Unsupported(f"recipe: is {recipe}, must be (1, 1, 128) on Hopper; quantise to that")
    qa, sfa, qb, sfb = parts(a, b)
    for name, x in (("a", qa), ("b", qb)):
        if not x.is_contiguous():
            raise InvalidArgument(
                f"{name}: has strides {list(x.stride())}, must be contiguous: all groups, one behind the other"
            )
    sizes = list(integers("ks_cpu", sizes, d.shape[0]))
    run(operators.k_grouped_gemm, qa.reshape(-1), sfa, qb.reshape(-1), sfb, d, sizes, starts_from(d, c))
