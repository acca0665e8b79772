"""Layouts of scales. FineGEMM's kernels read any strides; these are for callers that prepare scales themselves."""

from collections.abc import Sequence

import finegemm
from finegemm.errors import FineGemmError, InvalidArgument, Unsupported
from finegemm.torch_module import torch
from finegemm.torch_operators import define, watched

from .. import envs
from ..knobs import (
    get_k_alignment_for_contiguous_layout,
    get_m_alignment_for_contiguous_layout,
    get_mk_alignment_for_contiguous_layout,
    get_theoretical_mk_alignment_for_contiguous_layout,
    set_mk_alignment_for_contiguous_layout,
)
from ..operands import BLOCK, Tensor, as_written, group_sizes, integers
from .math import align, ceil_div

__all__ = [
    "get_k_alignment_for_contiguous_layout",
    "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor",
    "get_m_alignment_for_contiguous_layout",
    "get_mk_alignment_for_contiguous_layout",
    "get_mn_major_tma_aligned_packed_ue8m0_tensor",
    "get_mn_major_tma_aligned_tensor",
    "get_theoretical_mk_alignment_for_contiguous_layout",
    "get_tma_aligned_size",
    "set_mk_alignment_for_contiguous_layout",
]

_TMA_BYTES = 16  # what strides of tensor maps are multiples of


def scale_layout(
    sf: Tensor,
    out: Tensor,
    prefix_sums: Tensor | None,
    k_sizes: Tensor | None,
    k_prefix_sums: Tensor | None,
    alignment: int,
    scale_k: int,
) -> None:
    names = {"prefix_sums": "psum_layout", "k_sizes": "grouped_layout", "k_prefix_sums": "grouped_layout"}
    if prefix_sums is None:
        names |= {"alignment": "k_alignment", "scale_k": "gran_k"}
    try:
        finegemm.scale_layout(
            sf,
            out,
            prefix_sums=prefix_sums,
            k_sizes=k_sizes,
            k_prefix_sums=k_prefix_sums,
            alignment=alignment,
            scale_k=scale_k,
            context=envs.settings().context,
        )
    except FineGemmError as e:
        raise as_written(e, **names) from None


define(
    scale_layout,
    "(Tensor sf, Tensor(a!) out, Tensor? prefix_sums, Tensor? k_sizes, Tensor? k_prefix_sums, SymInt alignment, "
    "SymInt scale_k) -> ()",
    lambda *arguments: None,
)


def get_tma_aligned_size(x: int, element_size: int, /) -> int:
    """x elements and as many more as fill 16 bytes."""
    if element_size < 1 or _TMA_BYTES % element_size != 0:
        raise InvalidArgument(f"element_size: is {element_size}, must divide {_TMA_BYTES}; pass that of the dtype")
    return align(x, _TMA_BYTES // element_size)


def _check_scales(sf: Tensor, dims: tuple[int, ...] = (2, 3)) -> None:
    if sf.dtype != torch.float32 or sf.dim() not in dims:
        wanted = " or ".join(map(str, dims))
        raise InvalidArgument(
            f"sf: is {sf.dtype} of {sf.dim()} dimensions, must be float32 of {wanted}; convert or reshape it"
        )


def _empty_mn_major(shape: Sequence[int], dtype: object, device: object) -> Tensor:
    """Rows contiguous, columns at strides of a multiple of 16 bytes."""
    *groups, mn, k = shape
    stride = align(mn, _TMA_BYTES // 4)
    return torch.empty_strided(shape, (*(stride * k for _ in groups), 1, stride), dtype=dtype, device=device)


def get_mn_major_tma_aligned_tensor(sf: Tensor, /) -> Tensor:
    """Scales [mn, k] or [g, mn, k] with rows contiguous; those that are so already are returned themselves."""
    _check_scales(sf)
    *groups, mn, k = sf.shape
    stride = align(mn, _TMA_BYTES // 4)
    if sf.stride() == (*(stride * k for _ in groups), 1, stride):
        return sf
    out = _empty_mn_major(sf.shape, sf.dtype, sf.device)
    watched(scale_layout)(sf, out, None, None, None, BLOCK, BLOCK)
    return out


def get_mn_major_tma_aligned_packed_ue8m0_tensor(sf: Tensor, psum_layout: Tensor | None = None) -> Tensor:
    """The exponents of power-of-two scales [mn, k] or [g, mn, k], four of a row in one int32, rows contiguous.

    With `psum_layout`, the ends of groups of rows, rows of no group become 0, whatever they hold.
    """
    _check_scales(sf)
    if psum_layout is not None and (sf.dim() != 2 or not sf.is_contiguous()):
        raise InvalidArgument(
            f"sf: has shape {list(sf.shape)} and strides {list(sf.stride())}, must be contiguous and have two "
            "dimensions with psum_layout; make it contiguous"
        )
    *groups, mn, k = sf.shape
    out = _empty_mn_major((*groups, mn, ceil_div(k, 4)), torch.int32, sf.device)
    watched(scale_layout)(sf, out, psum_layout, None, None, get_mk_alignment_for_contiguous_layout(), BLOCK)
    return out


def get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(
    sf: Tensor,
    grouped_layout: Tensor,
    ks_cpu: Sequence[int] | None,
    gran_k: int,
    k_alignment: int = BLOCK,
    use_psum_layout: bool = False,
) -> Tensor:
    """The exponents of scales [k, mn] of groups of K, four of a column in one int32; each group begins a row.

    `grouped_layout`: the k of each group, or with `use_psum_layout` where it ends. Without `ks_cpu`, the k of each on
    the host, the result has as many rows as there may be.
    """
    groups = grouped_layout.numel()
    _check_k_groups(sf, groups, ks_cpu, gran_k, k_alignment, use_psum_layout)
    rows = sum(ceil_div(k, 4 * gran_k) for k in ks_cpu) if ks_cpu else (sf.shape[0] + 3 * groups) // 4
    out = torch.empty((rows, sf.shape[1]), dtype=torch.int32, device=sf.device)
    sizes, ends = (None, grouped_layout) if use_psum_layout else (grouped_layout, None)
    watched(scale_layout)(sf.t(), out.t(), None, sizes, ends, k_alignment, gran_k)
    return out


def _check_k_groups(
    sf: Tensor, groups: int, ks_cpu: Sequence[int] | None, gran_k: int, k_alignment: int, use_psum_layout: bool
) -> None:
    _check_scales(sf, (2,))
    mn = sf.shape[1]
    if not sf.is_contiguous() or mn % 4 != 0:
        raise InvalidArgument(
            f"sf: has shape {list(sf.shape)} and strides {list(sf.stride())}, must be contiguous with a multiple of 4 "
            "columns; pad it"
        )
    if gran_k not in (32, BLOCK) or k_alignment % 32 != 0:
        raise InvalidArgument(
            f"gran_k: is {gran_k} with k_alignment {k_alignment}, must be 32 or 128 with a multiple of 32; pass those"
        )
    if not 1 <= groups <= 128:
        raise InvalidArgument(f"grouped_layout: has {groups} numbers, must have from 1 to 128, one for each group")
    if not ks_cpu:
        if not use_psum_layout:
            raise InvalidArgument("ks_cpu: is missing, must have the k of each group; pass it, or use_psum_layout")
        return
    ks = group_sizes("ks_cpu", ks_cpu, groups)
    if not use_psum_layout and sum(ceil_div(k, gran_k) for k in ks) != sf.shape[0]:
        raise InvalidArgument(
            f"sf: has {sf.shape[0]} rows, must have {sum(ceil_div(k, gran_k) for k in ks)} by ks_cpu, one for each "
            f"{gran_k} k of a group; pass the scales of all groups"
        )


def transform_sf_into_required_layout(
    sf: Tensor,
    mn: int,
    k: int,
    recipe: Sequence[int],
    num_groups: int | None = None,
    is_sfa: bool | None = None,
    disable_ue8m0_cast: bool = False,
    psum_layout: Tensor | None = None,
) -> Tensor:
    """Scales of [mn, k] as products take them: of rows with rows contiguous, of 128x128 blocks as they are.

    `recipe`: (rows, K) that a scale serves; or that of a product, of three numbers, and `is_sfa` says of which operand.
    """
    gran_mn, gran_k = _granularity(recipe, is_sfa)
    if sf.dtype != torch.float32 or gran_k != BLOCK or gran_mn not in (1, BLOCK):
        raise Unsupported(
            f"sf: is {sf.dtype} with a scale for each {(gran_mn, gran_k)} of rows and K, must be float32 for each "
            "(1, 128) or (128, 128) on Hopper; quantise to that"
        )
    groups = [] if num_groups is None else [num_groups]
    wanted = [*groups, ceil_div(mn, gran_mn), ceil_div(k, gran_k)]
    if list(sf.shape) != wanted:
        raise InvalidArgument(f"sf: has shape {list(sf.shape)}, must be {wanted}; pass the scales of the whole matrix")
    return get_mn_major_tma_aligned_tensor(sf) if gran_mn == 1 else sf


def _granularity(recipe: Sequence[int], is_sfa: bool | None) -> tuple[int, int]:
    count = 2 if is_sfa is None else 3
    if hasattr(recipe, "__len__") and len(recipe) == 5 - count:
        raise InvalidArgument(
            f"is_sfa: is {is_sfa} with a recipe of {len(recipe)} numbers; pass it with three, and leave it out with two"
        )
    *of_mn, gran_k = integers("recipe", recipe, count)
    return of_mn[0 if is_sfa is None or is_sfa else 1], gran_k
