"""BF16 products of the names that Triton kernels have."""

from ..grouped import m_grouped_bf16_gemm_nn_contiguous as m_grouped_bf16_gemm_nn_contiguous_tl
from ..grouped import m_grouped_bf16_gemm_nt_contiguous as m_grouped_bf16_gemm_nt_contiguous_tl
from .gathered import (
    a_fused_k_grouped_bf16_gemm_tn_contiguous_tl,
    a_fused_m_grouped_bf16_gemm_nn_contiguous_tl,
    a_fused_m_grouped_bf16_gemm_nt_contiguous_tl,
    b_fused_k_grouped_bf16_gemm_tn_contiguous_tl,
)

__all__ = [
    "a_fused_k_grouped_bf16_gemm_tn_contiguous_tl",
    "a_fused_m_grouped_bf16_gemm_nn_contiguous_tl",
    "a_fused_m_grouped_bf16_gemm_nt_contiguous_tl",
    "b_fused_k_grouped_bf16_gemm_tn_contiguous_tl",
    "m_grouped_bf16_gemm_nn_contiguous_tl",
    "m_grouped_bf16_gemm_nt_contiguous_tl",
]
