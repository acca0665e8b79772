"""BF16 products of rows that indices pick. torch gathers them, then a product of groups runs: no Triton."""

from collections.abc import Sequence

from finegemm.errors import InvalidArgument
from finegemm.torch_module import torch
from finegemm.torch_operators import watched

from ..grouped import m_grouped_bf16_gemm_nn_contiguous, m_grouped_bf16_gemm_nt_contiguous
from ..knobs import get_mk_alignment_for_contiguous_layout
from ..operands import Tensor, check_bf16, tensors
from ..operators import k_grouped_ranges

_K_BLOCK = 128  # groups of K begin at its multiples


def a_fused_m_grouped_bf16_gemm_nt_contiguous_tl(a: Tensor, b: Tensor, d: Tensor, indices: Sequence[Tensor]) -> None:
    """d [M, N] = rows of a [R, K] times b [G, N, K] of their group. indices: the group of each row of d, -1 for
    padding, and which row of a it is, negative for zeros; int32 [M] each."""
    groups, rows = tensors("indices", indices, 2)
    m_grouped_bf16_gemm_nt_contiguous(_gathered("a", a, rows), b, d, groups)


def a_fused_m_grouped_bf16_gemm_nn_contiguous_tl(a: Tensor, b: Tensor, d: Tensor, indices: Sequence[Tensor]) -> None:
    """a_fused_m_grouped_bf16_gemm_nt_contiguous_tl with b [G, K, N]."""
    groups, rows = tensors("indices", indices, 2)
    m_grouped_bf16_gemm_nn_contiguous(_gathered("a", a, rows), b, d, groups)


def a_fused_k_grouped_bf16_gemm_tn_contiguous_tl(
    a: Tensor, b: Tensor, d: Tensor, indices: Sequence[Tensor], acc: bool
) -> None:
    """d [G, M, N] = rows of a [R, M] times b [K, N] over the k of each group, or with `acc` d + that.

    indices: which row of a each k is, int32 [K], and where the k of each group begin and end, int32 [G]; they ascend,
    and begin at multiples of 128.
    """
    rows, begins, ends = tensors("indices", indices, 3)
    _sum_up(_gathered("a", a, rows), b, d, begins, ends, acc)


def b_fused_k_grouped_bf16_gemm_tn_contiguous_tl(
    a: Tensor, b: Tensor, d: Tensor, indices: Sequence[Tensor], acc: bool
) -> None:
    """a_fused_k_grouped_bf16_gemm_tn_contiguous_tl of a [K, M] and rows of b [R, N]."""
    rows, begins, ends = tensors("indices", indices, 3)
    _sum_up(a, _gathered("b", b, rows), d, begins, ends, acc)


def _gathered(name: str, x: Tensor, rows: Tensor) -> Tensor:
    check_bf16(x, name)
    return x.index_select(0, rows.clamp(min=0)).masked_fill_((rows < 0)[:, None], 0)


def _sum_up(a: Tensor, b: Tensor, d: Tensor, begins: Tensor, ends: Tensor, acc: bool) -> None:
    alignment, k = get_mk_alignment_for_contiguous_layout(), a.shape[0]
    if alignment % _K_BLOCK or k % _K_BLOCK:
        raise InvalidArgument(
            f"indices: {k} k at an alignment of {alignment}, both must be multiples of {_K_BLOCK}; pad groups, and "
            "call set_mk_alignment_for_contiguous_layout"
        )
    place = torch.arange(k, device=begins.device)
    group = torch.searchsorted(begins.long(), place, right=True) - 1
    unused = ((group < 0) | (place >= ends.long()[group.clamp(min=0)]))[:, None]
    a, b = (x.masked_fill(unused, 0) for x in (a, b))
    offsets = torch.cat((begins, begins.new_full((1,), k)))
    if d.dtype == torch.float32:
        return watched(k_grouped_ranges)(a, b, d, offsets, acc)
    product = d.float() if acc else torch.empty(d.shape, dtype=torch.float32, device=d.device)
    watched(k_grouped_ranges)(a, b, product, offsets, acc)
    d.copy_(product)
    return None
