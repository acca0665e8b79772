"""Products of groups of rows, of groups of K, and of heads."""

from collections.abc import Sequence
from typing import Any

from finegemm.errors import InvalidArgument, Unsupported
from finegemm.torch_module import torch
from finegemm.torch_operators import run

from . import operators
from .operands import (
    Pair,
    Recipe,
    Tensor,
    block_rows,
    check_bf16,
    check_scales_of_b,
    integer,
    integers,
    k_last,
    one_of,
    pair,
    pair_with_k_last,
    parts,
    refuse,
    source,
)


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
    operands = _operands(a, b, recipe, recipe_a, recipe_b)
    if epilogue is not None:
        refuse(epilogue=epilogue)
    layout = one_of(("grouped_layout", "m_indices"), grouped_layout, m_indices)
    _contiguous(*operands, d, layout, use_psum_layout, expected_m_for_psum_layout)


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
        pair_with_k_last("b", b),
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
    _masked(*_operands(a, b, recipe, recipe_a, recipe_b), d, masked_m, expected_m)


m_grouped_fp8_gemm_nt_contiguous = m_grouped_fp4_gemm_nt_contiguous = m_grouped_fp8_fp4_gemm_nt_contiguous
m_grouped_fp8_gemm_nn_contiguous = m_grouped_fp8_fp4_gemm_nn_contiguous
m_grouped_fp8_gemm_nt_masked = m_grouped_fp4_gemm_nt_masked = m_grouped_fp8_fp4_gemm_nt_masked
fp8_m_grouped_gemm_nt_masked = m_grouped_fp8_fp4_gemm_nt_masked


def m_grouped_bf16_gemm_nt_contiguous(
    a: Tensor,
    b: Tensor,
    d: Tensor,
    grouped_layout: Tensor | None = None,
    compiled_dims: str = "nk",
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    expected_m_for_psum_layout: int | None = None,
    *,
    m_indices: Tensor | None = None,
    epilogue: Any = None,
) -> None:
    """m_grouped_fp8_fp4_gemm_nt_contiguous of bfloat16 matrices; d bfloat16 or float32."""
    check_bf16(a)
    if epilogue is not None:
        refuse(epilogue=epilogue)
    layout = one_of(("grouped_layout", "m_indices"), grouped_layout, m_indices)
    _contiguous(a, None, b, None, d, layout, use_psum_layout, expected_m_for_psum_layout)


def m_grouped_bf16_gemm_nn_contiguous(
    a: Tensor,
    b: Tensor,
    d: Tensor,
    grouped_layout: Tensor | None = None,
    compiled_dims: str = "nk",
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    *,
    m_indices: Tensor | None = None,
    epilogue: Any = None,
) -> None:
    """m_grouped_bf16_gemm_nt_contiguous with b [G, K, N], a view of K-major memory."""
    options = {"use_psum_layout": use_psum_layout, "m_indices": m_indices, "epilogue": epilogue}
    m_grouped_bf16_gemm_nt_contiguous(a, k_last("b", b), d, grouped_layout, **options)


def m_grouped_bf16_gemm_nt_masked(
    a: Tensor,
    b: Tensor,
    d: Tensor,
    masked_m: Tensor,
    expected_m: int,
    compiled_dims: str = "nk",
    *,
    max_block_n: int | None = None,
    enable_overlap: bool = False,
    signal: Tensor | None = None,
    epilogue: Any = None,
) -> None:
    """m_grouped_fp8_fp4_gemm_nt_masked of bfloat16 matrices; d bfloat16 or float32."""
    check_bf16(a)
    refuse(enable_overlap=enable_overlap, signal=signal, epilogue=epilogue)
    _masked(a, None, b, None, d, masked_m, expected_m)


bf16_m_grouped_gemm_nt_masked = m_grouped_bf16_gemm_nt_masked


def _operands(
    a: Pair, b: Pair, recipe: Recipe, recipe_a: Recipe, recipe_b: Recipe
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The matrices of two pairs, whose scales are those of the recipe."""
    qa, sfa, qb, sfb = parts(a, b)
    check_scales_of_b(block_rows(recipe, recipe_a, recipe_b), qb, sfb)
    return qa, sfa, qb, sfb


def _contiguous(
    a: Tensor,
    sfa: Tensor | None,
    b: Tensor,
    sfb: Tensor | None,
    d: Tensor,
    layout: Tensor,
    of_ends: bool,
    expected_m: int | None,
) -> None:
    """Groups one behind the other: `layout` has their ends, or else the group of each row."""
    if expected_m is not None and not of_ends:
        raise InvalidArgument("expected_m_for_psum_layout: is given without use_psum_layout; leave it out, or set both")
    indices, ends = (None, layout) if of_ends else (layout, None)
    rows = integer("expected_m_for_psum_layout", expected_m or 0)
    run(operators.grouped_gemm, a, sfa, b, sfb, d, indices, ends, None, rows)


def _masked(
    a: Tensor, sfa: Tensor | None, b: Tensor, sfb: Tensor | None, d: Tensor, masked_m: Tensor, expected_m: int
) -> None:
    """Groups that have a matrix each, of which the first rows are used."""
    if integer("expected_m", expected_m) < 1:
        raise InvalidArgument(f"expected_m: is {expected_m}, must be at least 1; pass the rows of a typical group")
    if 0 in (*d.shape, a.shape[-1]):
        raise InvalidArgument(
            f"d: has shape {list(d.shape)} and a {list(a.shape)}, must have no extent of 0; leave the call out, or "
            "set masked_m to zeros"
        )
    run(operators.grouped_gemm, a, sfa, b, sfb, d, None, None, masked_m.reshape(-1), expected_m)


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
    _check_expression(expr)
    refuse(c=c, epilogue=epilogue)
    if block_rows(recipe, None, None) != 128:
        raise Unsupported(f"recipe: is {recipe}, must be (1, 128, 128) on Hopper; quantise to that")
    heads = tuple(x.transpose(0, 1) for x in pair("a", a))
    _each_head(*_operands(heads, b, recipe, None, None), d)


def einsum(
    expr: str,
    a: Tensor,
    b: Tensor,
    d: Tensor,
    c: Tensor | None = None,
    use_cublaslt: bool = False,
    *,
    epilogue: Any = None,
) -> None:
    """fp8_einsum of bfloat16 matrices; d bfloat16 or float32. `use_cublaslt` changes nothing."""
    _check_expression(expr)
    check_bf16(a)
    refuse(c=c, epilogue=epilogue)
    _each_head(a.transpose(0, 1), None, b, None, d)


def _check_expression(expr: str) -> None:
    if expr != "bhr,hdr->bhd":
        raise Unsupported(f"expr: is {expr!r}, must be 'bhr,hdr->bhd'; multiply with torch.einsum otherwise")


def _each_head(a: Tensor, sfa: Tensor | None, b: Tensor, sfb: Tensor | None, d: Tensor) -> None:
    """d [b, h, d] of a [h, b, r] and b [h, d, r]: all rows of a matrix for each head."""
    rows = torch.full((d.shape[1],), d.shape[0], dtype=torch.int32, device=d.device)
    run(operators.grouped_gemm, a, sfa, b, sfb, d.transpose(0, 1), None, None, rows, 0)


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
    sizes = one_of(("ks_cpu", "ks"), ks_cpu, ks)
    if block_rows(recipe, None, None) != 1:
        raise Unsupported(f"recipe: is {recipe}, must be (1, 1, 128) on Hopper; quantise to that")
    qa, sfa, qb, sfb = parts(a, b)
    for name, x in (("a", qa), ("b", qb)):
        if not x.is_contiguous():
            raise InvalidArgument(
                f"{name}: has strides {list(x.stride())}, must be contiguous: all groups, one behind the other"
            )
    sizes = list(integers("ks_cpu", sizes, d.shape[0]))
    run(operators.k_grouped_gemm, qa.reshape(-1), sfa, qb.reshape(-1), sfb, d, sizes, *source(d, c))


def k_grouped_bf16_gemm_tn_contiguous(
    a: Tensor,
    b: Tensor,
    d: Tensor,
    ks_cpu: Sequence[int] | None = None,
    grouped_layout: Tensor | None = None,
    c: Tensor | None = None,
    compiled_dims: str = "mn",
    use_psum_layout: bool = False,
    *,
    ks: Sequence[int] | None = None,
    ks_tensor: Tensor | None = None,
    epilogue: Any = None,
) -> None:
    """d [G, M, N] = c + a [K, M] times b [K, N] in the k of each group, both bfloat16 and views of K-major memory.

    The groups have their k one behind the other; the rest as in k_grouped_fp8_gemm_nt_contiguous. d float32, or
    without `c` bfloat16.
    """
    check_bf16(a)
    refuse(use_psum_layout=use_psum_layout, epilogue=epilogue)
    sizes = list(integers("ks_cpu", one_of(("ks_cpu", "ks"), ks_cpu, ks), d.shape[0]))
    run(operators.k_grouped_gemm, k_last("a", a), None, k_last("b", b), None, d, sizes, *source(d, c))
