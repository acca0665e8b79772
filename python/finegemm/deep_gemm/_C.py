"""The names that callers look for in a compiled module of that name."""

from .dense import fp8_fp4_gemm_nn, fp8_fp4_gemm_nt, fp8_fp4_gemm_tn, fp8_fp4_gemm_tt
from .missing import (
    bf16_mega_moe,
    fp8_fp4_mega_moe,
    get_ring_limit_for_mega_moe,
    get_symm_buffer_size_for_mega_moe,
    get_token_alignment_for_mega_moe,
)

__all__ = [
    "bf16_mega_moe",
    "fp8_fp4_gemm_nn",
    "fp8_fp4_gemm_nt",
    "fp8_fp4_gemm_tn",
    "fp8_fp4_gemm_tt",
    "fp8_fp4_mega_moe",
    "get_ring_limit_for_mega_moe",
    "get_symm_buffer_size_for_mega_moe",
    "get_token_alignment_for_mega_moe",
    "init",
]


def init(root: str, cuda_home: str) -> None:
    """Nothing is to be done: kernels come with the library, and need no toolkit."""
