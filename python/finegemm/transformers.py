"""Fine-grained FP8 models of Hugging Face transformers: `install()` makes them multiply by this package."""

import os
from typing import Any

import finegemm
from finegemm.errors import InvalidArgument, Unsupported
from finegemm.torch_module import torch
from finegemm.torch_operators import define, watched

Tensor = Any

BLOCK = 128
E4M3_MAX = 448.0


def install() -> None:
    """Models of this process multiply by this package from now on, linear layers and experts in each of their modes."""
    try:
        from transformers.integrations import finegrained_fp8
    except ImportError as e:
        raise Unsupported("transformers: cannot be imported; pip install 'transformers>=5.17'") from e
    bundle = getattr(finegrained_fp8, "FineGrainedFP8", None)
    if bundle is None or not hasattr(finegrained_fp8, "_FINEGRAINED_FP8"):
        raise Unsupported(
            "transformers: has no place for kernels of fine-grained FP8; pip install 'transformers>=5.17'"
        )
    finegrained_fp8._FINEGRAINED_FP8 = bundle(
        matmul=matmul_2d, batched_matmul=matmul_batched, grouped_matmul=matmul_grouped
    )
    os.environ.setdefault("TRANSFORMERS_DISABLE_DEEPGEMM_LINEAR", "1")  # which would go first for linear layers


def matmul_2d(
    x: Tensor,
    weight: Tensor,
    scales: Tensor,
    block_size: Any = None,
    output_dtype: Any = None,
    activation_scale: Tensor | None = None,
) -> Tensor:
    """x [..., K] times weight [N, K] of e4m3 with scales for each 128x128 block, or one.

    `activation_scale`: x is quantised by it, and otherwise for each row and 128 columns.
    """
    _check_block_size(block_size, scales)
    rows = x.reshape(-1, x.shape[-1])
    out = watched(fp8_linear)(rows, weight, scales, output_dtype or x.dtype, activation_scale)
    return out.view(*x.shape[:-1], out.shape[-1])


def matmul_grouped(
    x: Tensor,
    weight: Tensor,
    scales: Tensor,
    *,
    offsets: Tensor,
    tokens_per_expert: Tensor | None = None,
    block_size: Any = None,
) -> Tensor:
    """Rows of x [S, K] times weight [E, N, K] of their expert, whose rows end at its offset.

    Rows behind the last end are of no expert, and stay as the memory was.
    """
    _check_block_size(block_size, scales)
    return watched(fp8_expert_linear)(x, weight, scales, offsets)


def matmul_batched(x: Tensor, weight: Tensor, scales: Tensor, *, expert_ids: Tensor, block_size: Any = None) -> Tensor:
    """Rows of x [S, K] times weight [E, N, K] of their expert, in any order.

    Rows of an expert that is not there stay as the memory was.
    """
    ids, order = torch.sort(expert_ids)
    experts = torch.arange(weight.shape[0], dtype=ids.dtype, device=ids.device)
    ends = torch.searchsorted(ids, experts, right=True, out_int32=True)
    sorted_rows = matmul_grouped(x[order], weight, scales, offsets=ends, block_size=block_size)
    return torch.empty_like(sorted_rows).index_copy_(0, order, sorted_rows)


def _check_block_size(block_size: Any, scales: Tensor) -> None:
    if block_size is not None and tuple(block_size) != (BLOCK, BLOCK) and not _is_single(scales):
        raise InvalidArgument(
            f"block_size: is {tuple(block_size)}, must be (128, 128), or the whole weight; quantise the model with "
            "FineGrainedFP8Config(weight_block_size=(128, 128))"
        )


def _is_single(scales: Tensor) -> bool:
    """Is there one scale for each weight, not one for each of its blocks?"""
    return scales.dim() < 2 or tuple(scales.shape[-2:]) == (1, 1)


def _block_scales(scales: Tensor, weight: Tensor) -> Tensor:
    """Scales of weights for each block, as float32; a single one is shared by all."""
    *experts, n, k = weight.shape
    scales = scales.float().resolve_neg()
    return scales.expand(*experts, -(-n // BLOCK), -(-k // BLOCK)) if _is_single(scales) else scales


def _quantised(x: Tensor, scale: Tensor | None) -> tuple[Tensor, Tensor]:
    if scale is None:
        return finegemm.quantize_rows(x.contiguous().resolve_neg())
    codes = (x.float() / scale).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)
    return codes, scale.float().resolve_neg().expand(x.shape[0], -(-x.shape[1] // BLOCK))


def fp8_linear(x: Tensor, weight: Tensor, scales: Tensor, dtype: Any, activation_scale: Tensor | None) -> Tensor:
    """x [M, K], quantised, times weight [N, K], rounded to dtype."""
    (a, sfa), sfb = _quantised(x, activation_scale), _block_scales(scales, weight)
    if dtype == torch.bfloat16:
        return finegemm.gemm(a, sfa, weight, sfb)
    rows_of_b = sfb.repeat_interleave(BLOCK, 0)[: weight.shape[0]]  # which float32 is written with
    return finegemm.gemm(a, sfa, weight, rows_of_b, out_dtype="float32").to(dtype)


def fp8_expert_linear(x: Tensor, weight: Tensor, scales: Tensor, ends: Tensor) -> Tensor:
    """x [S, K], quantised, times weight [E, N, K] of each row's expert, in bfloat16 and then x's dtype."""
    a, sfa = _quantised(x, None)
    sfb = _block_scales(scales, weight)
    return finegemm.grouped_gemm(a, sfa, weight, sfb, prefix_sums=ends, alignment=1).to(x.dtype)


define(
    fp8_linear,
    "(Tensor x, Tensor weight, Tensor scales, ScalarType dtype, Tensor? activation_scale) -> Tensor",
    lambda x, weight, scales, dtype, activation_scale: x.new_empty(x.shape[0], weight.shape[0], dtype=dtype),
)
define(
    fp8_expert_linear,
    "(Tensor x, Tensor weight, Tensor scales, Tensor ends) -> Tensor",
    lambda x, weight, scales, ends: x.new_empty(x.shape[0], weight.shape[1]),
)
