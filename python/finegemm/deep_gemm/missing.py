"""Names that are called and not served: each exists, and says what is missing and what to call meanwhile."""

from collections.abc import Callable
from typing import Any, NoReturn

from finegemm.errors import Unsupported

_BLACKWELL = "is for Blackwell GPUs (SM100); on Hopper "
_MEGA = _BLACKWELL + (
    "call finegemm.ep.moe over several GPUs or finegemm.moe on one, with weights in FP8; or "
    "m_grouped_fp8_gemm_nt_contiguous, or _masked, for each of the two products"
)

_NAMES = {
    _BLACKWELL + "call k_grouped_fp8_gemm_nt_contiguous": (
        "k_grouped_fp8_gemm_tn_contiguous k_grouped_fp4_gemm_nt_contiguous"
    ),
    _BLACKWELL + "call fp8_gemm_nt": "cublaslt_nvfp4_gemm_nt",
    _BLACKWELL + "call fp8_mqa_logits or fp8_paged_mqa_logits": (
        "get_mqa_logits_metadata get_sparse_mqa_logits_metadata get_paged_sparse_mqa_logits_metadata "
        "fp8_fp4_sparse_mqa_logits fp8_fp4_paged_sparse_mqa_logits"
    ),
    _MEGA: (
        "get_symm_buffer_for_mega_moe transform_weights_for_mega_moe fp8_fp4_mega_moe get_block_m_for_mega_moe "
        "get_token_alignment_for_mega_moe get_ring_limit_for_mega_moe get_symm_buffer_size_for_mega_moe"
    ),
    _BLACKWELL + "call m_grouped_bf16_gemm_nt_contiguous, or _masked, for each of the two products": "bf16_mega_moe",
    _BLACKWELL + "call torch.mm and torch.topk": "bf16_mega_gate get_bf16_mega_gate_config",
    _BLACKWELL + "call torch's operations one by one": "mega_mhc",
}
REASONS = {name: reason for reason, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Callable[..., NoReturn]:
    """The function of that name, which raises."""
    if name not in REASONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def missing(*args: Any, **kwargs: Any) -> NoReturn:
        raise Unsupported(f"{name}: {REASONS[name]}")

    missing.__name__ = missing.__qualname__ = name
    missing.__doc__ = f"Raises Unsupported: {REASONS[name]}."
    globals()[name] = missing
    return missing


class SymmBuffer:
    """Raises Unsupported: mixtures of experts in one kernel are for Blackwell GPUs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise Unsupported(f"SymmBuffer: {_MEGA}")
