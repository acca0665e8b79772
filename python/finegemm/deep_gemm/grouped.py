"""Products of groups of rows, of groups of K, and of equations."""

from collections.abc import Sequence
from typing import Any

from finegemm.errors import InvalidArgument, Unsupported
from finegemm.torch_operators import watched

from . import operators
from .dense import bf16_gemm_tn
from .operands import (
    BLOCK,
    Pair,
    Recipe,
    Tensor,
    block_rows,
    check_bf16,
    check_scales_of_b,
    check_source,
    group_sizes,
    integer,
    one_of,
    parts,
    refuse,
)

_ROWS, _BLOCKS = (1, 1, BLOCK), (1, BLOCK, BLOCK)  # of K, and of B, that a scale serves


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
    _turned: str = "",
) -> None:
    """d [M, N] = rows of a [M, K] times b [G, N, K] of their group; d bfloat16, float16 or float32.

    `grouped_layout`: int32, the group of each row, -1 for padding; or with `use_psum_layout` the end of each group.
    Groups begin at multiples of what set_mk_alignment_for_contiguous_layout says. `ensure_zero_padding` changes
    nothing: rows of -1 become zero, those between two groups are not written.
    """
    qa, sfa, qb, sfb = parts(a, b)
    if recipe is not None or recipe_a is not None or recipe_b is not None:
        check_scales_of_b(block_rows(recipe, recipe_a, recipe_b), qb, sfb, _turned)
    if epilogue is not None:
        refuse(epilogue=epilogue)
    layout, written = _layout(grouped_layout, m_indices)
    form = "prefix_sums" if use_psum_layout else "m_indices"
    rows = 0 if expected_m_for_psum_layout is None else _rows_of_ends(expected_m_for_psum_layout, use_psum_layout)
    watched(operators.grouped_gemm)(qa, sfa, qb, sfb, d, layout, form, written, rows, _turned)


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
        b,
        d,
        grouped_layout,
        recipe,
        recipe_a,
        recipe_b,
        use_psum_layout=use_psum_layout,
        m_indices=m_indices,
        epilogue=epilogue,
        _turned="b",
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
    """d [G, M, N] = a [G, M, K] times b [G, N, K] in the first masked_m[g] rows of each.

    d: bfloat16, float16 or float32.
    `expected_m`: rows of a typical group, to choose the kernel by. Rows behind them are not written. `max_block_n`
    changes nothing.
    """
    qa, sfa, qb, sfb = parts(a, b)
    if recipe is not None or recipe_a is not None or recipe_b is not None:
        check_scales_of_b(block_rows(recipe, recipe_a, recipe_b), qb, sfb)
    if enable_overlap or signal is not None or epilogue is not None:
        refuse(enable_overlap=enable_overlap, signal=signal, epilogue=epilogue)
    rows = expected_m if type(expected_m) is int and expected_m > 0 else _rows(expected_m)
    masks = masked_m if masked_m.ndim == 1 else masked_m.reshape(-1)
    watched(operators.grouped_gemm)(qa, sfa, qb, sfb, d, masks, "masked_m", "masked_m", rows, "")


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
    _turned: str = "",
) -> None:
    """m_grouped_fp8_fp4_gemm_nt_contiguous of bfloat16 matrices; d bfloat16 or float32."""
    check_bf16(a)
    if epilogue is not None:
        refuse(epilogue=epilogue)
    layout, written = _layout(grouped_layout, m_indices)
    form = "prefix_sums" if use_psum_layout else "m_indices"
    rows = 0 if expected_m_for_psum_layout is None else _rows_of_ends(expected_m_for_psum_layout, use_psum_layout)
    watched(operators.grouped_gemm)(a, None, b, None, d, layout, form, written, rows, _turned)


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
    """m_grouped_bf16_gemm_nt_contiguous with b [G, K, N], contiguous or a view of K-major memory."""
    options = {"use_psum_layout": use_psum_layout, "m_indices": m_indices, "epilogue": epilogue}
    m_grouped_bf16_gemm_nt_contiguous(a, b, d, grouped_layout, **options, _turned="b")


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
    if enable_overlap or signal is not None or epilogue is not None:
        refuse(enable_overlap=enable_overlap, signal=signal, epilogue=epilogue)
    rows = expected_m if type(expected_m) is int and expected_m > 0 else _rows(expected_m)
    masks = masked_m if masked_m.ndim == 1 else masked_m.reshape(-1)
    watched(operators.grouped_gemm)(a, None, b, None, d, masks, "masked_m", "masked_m", rows, "")


bf16_m_grouped_gemm_nt_masked = m_grouped_bf16_gemm_nt_masked


def _layout(grouped_layout: Tensor | None, m_indices: Tensor | None) -> tuple[Tensor, str]:
    """The argument that says which rows are whose, and its name."""
    if m_indices is None and grouped_layout is not None:
        return grouped_layout, "grouped_layout"
    return one_of(("grouped_layout", "m_indices"), grouped_layout, m_indices), "m_indices"


def _rows_of_ends(expected_m: int, of_ends: bool) -> int:
    if not of_ends:
        raise InvalidArgument("expected_m_for_psum_layout: is given without use_psum_layout; leave it out, or set both")
    return integer("expected_m_for_psum_layout", expected_m)


def _rows(expected_m: int) -> int:
    rows = integer("expected_m", expected_m)
    if rows < 1:
        raise InvalidArgument(f"expected_m: is {expected_m}, must be at least 1; pass the rows of a typical group")
    return rows


def fp8_einsum(
    expr: str,
    a: Pair,
    b: Pair,
    d: Tensor,
    c: Tensor | None = None,
    recipe: Recipe = _BLOCKS,
    *,
    epilogue: Any = None,
) -> None:
    """The product of each head: d [b, h, d] = a [b, h, r] times b [h, d, r] for "bhr,hdr->bhd"; d bfloat16, float16 or
    float32."""
    if expr != "bhr,hdr->bhd":
        raise Unsupported(f"expr: is {expr!r}, must be 'bhr,hdr->bhd' of FP8; call einsum with bfloat16 otherwise")
    if c is not None or epilogue is not None:
        refuse(c=c, epilogue=epilogue)
    if recipe is not _BLOCKS and block_rows(recipe, None, None) != BLOCK:
        raise Unsupported(f"recipe: is {recipe}, must be (1, 128, 128) on Hopper; quantise to that")
    qa, sfa, qb, sfb = parts(a, b)
    if isinstance(d, (tuple, list)):
        raise Unsupported("d: is a pair, but FP8 results are for Blackwell GPUs (SM100); pass a matrix of bfloat16")
    watched(operators.einsum)(expr, qa, sfa, qb, sfb, d, False)


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
    """A product of bfloat16 tensors, d bfloat16 or float32: of each head, "bhr,hdr->bhd", "bhd,hdr->bhr" or, with `c`
    that is added, "bhd,bhr->hdr"; or the sum of all, "bmk,bnk->mn", which with `c`, d itself, is added to d.
    `use_cublaslt` changes nothing."""
    if expr not in _EQUATIONS and expr != _GRADIENTS:
        expressions = (*_EQUATIONS, _GRADIENTS)
        raise Unsupported(f"expr: is {expr!r}, must be one of {expressions}; multiply with torch.einsum otherwise")
    check_bf16(a)
    if expr == _GRADIENTS:
        refuse(epilogue=epilogue)
        return _gradients(a, b, d, c)
    summed = expr == _EQUATIONS[-1]
    if (c is not None and not summed) or epilogue is not None:
        refuse(c=c, epilogue=epilogue)
    if c is not None and c is not d:
        check_source(d, c)
        if c.data_ptr() != d.data_ptr():
            raise InvalidArgument("c: is not d, must be d itself, which is added to; pass it as c, or copy c to d")
    watched(operators.einsum)(expr, a, None, b, None, d, c is not None)
    return None


def _gradients(a: Tensor, b: Tensor, d: Tensor, c: Tensor | None) -> None:
    """d [h, d, r] = c + a [b, h, d] times b [b, h, r] over b: a product for each head."""
    if a.dim() != 3 or b.dim() != 3 or a.shape[:2] != b.shape[:2] or d.shape != (a.shape[1], a.shape[2], b.shape[2]):
        raise InvalidArgument(
            f"d: has shape {list(d.shape)}, with a {list(a.shape)} and b {list(b.shape)}; they must be [h, d, r], "
            "[b, h, d] and [b, h, r]; pass views of those shapes"
        )
    if c is not None and c.shape != d.shape:  # the rest the products look at
        check_source(d, c)
    for h in range(d.shape[0]):
        added = None if c is None else d[h] if c is d else c[h]
        bf16_gemm_tn(a[:, h], b[:, h], d[h], added)


_EQUATIONS = ("bhr,hdr->bhd", "bhd,hdr->bhr", "bmk,bnk->mn")
_GRADIENTS = "bhd,bhr->hdr"


def k_grouped_fp8_gemm_nt_contiguous(
    a: Pair,
    b: Pair,
    d: Tensor,
    ks_cpu: Sequence[int] | None = None,
    grouped_layout: Tensor | None = None,
    c: Tensor | None = None,
    recipe: Recipe = _ROWS,
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
    if recipe is not _ROWS and block_rows(recipe, None, None) != 1:
        raise Unsupported(f"recipe: is {recipe}, must be (1, 1, 128) on Hopper; quantise to that")
    qa, sfa, qb, sfb = parts(a, b)
    if use_psum_layout or epilogue is not None:
        refuse(use_psum_layout=use_psum_layout, epilogue=epilogue)
    sizes, written = _sizes(ks_cpu, ks, d)
    accumulate = c is d
    if qa.ndim != 1 or qb.ndim != 1:
        qa, qb = _flat("a", qa), _flat("b", qb)
    watched(operators.k_grouped_gemm)(qa, sfa, qb, sfb, d, sizes, written, None if accumulate else c, accumulate, "")


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
    """d [G, M, N] = c + a [K, M] times b [K, N] in the k of each group, both bfloat16, contiguous or views of K-major
    memory.

    The groups have their k one behind the other; the rest as in k_grouped_fp8_gemm_nt_contiguous. d float32, or
    without `c` bfloat16.
    """
    check_bf16(a)
    if use_psum_layout or epilogue is not None:
        refuse(use_psum_layout=use_psum_layout, epilogue=epilogue)
    sizes, written = _sizes(ks_cpu, ks, d)
    accumulate = c is d
    watched(operators.k_grouped_gemm)(a, None, b, None, d, sizes, written, None if accumulate else c, accumulate, "ab")


def _sizes(ks_cpu: Sequence[int] | None, ks: Sequence[int] | None, d: Tensor) -> tuple[Sequence[int], str]:
    """The k of each group, and the name of their argument. What a list holds is looked at once the product refuses it:
    that takes longer than to read it."""
    if type(ks_cpu) is list and ks is None:
        return ks_cpu, "ks_cpu"
    if ks_cpu is None and ks is None:
        raise InvalidArgument("ks_cpu: is missing; pass the k of each group, as a list")
    written = "ks_cpu" if ks is None else "ks"
    return group_sizes(written, one_of(("ks_cpu", "ks"), ks_cpu, ks), d.shape[0]), written


def _flat(name: str, x: Tensor) -> Tensor:
    """All groups one behind the other."""
    if not x.is_contiguous():
        raise InvalidArgument(
            f"{name}: has strides {list(x.stride())}, must be contiguous: all groups, one behind the other"
        )
    return x.reshape(-1)
