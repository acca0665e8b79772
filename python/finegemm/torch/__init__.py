"""FineGEMM for torch: operators that compilers and profilers know, layers with gradients, models in FP8.

docs/torch.md shows how to train and to serve with it. `import finegemm` alone imports nothing of torch.
"""

from .autograd import QuantizedWeight, grouped_linear, linear, quantize_weight
from .experts import moe
from .four_bit import four_bit_gemm
from .functions import (
    dequantize,
    einsum,
    gemm,
    grouped_gemm,
    k_grouped_gemm,
    quantize_blocks,
    quantize_columns,
    quantize_rows,
    quantize_weights,
    reencode,
    scale_layout,
)
from .indexer import mqa_logits, paged_mqa_logits
from .layers import GroupedLinear, Linear, QuantizedGroupedLinear, QuantizedLinear
from .models import convert_to_serving, convert_to_training, load_checkpoint
from .prenorm import prenorm_gemm
from .selection import mqa_topk, paged_mqa_topk, topk

__all__ = [
    "GroupedLinear",
    "Linear",
    "QuantizedGroupedLinear",
    "QuantizedLinear",
    "QuantizedWeight",
    "convert_to_serving",
    "convert_to_training",
    "dequantize",
    "einsum",
    "four_bit_gemm",
    "gemm",
    "grouped_gemm",
    "grouped_linear",
    "k_grouped_gemm",
    "linear",
    "load_checkpoint",
    "moe",
    "mqa_logits",
    "mqa_topk",
    "paged_mqa_logits",
    "paged_mqa_topk",
    "prenorm_gemm",
    "quantize_blocks",
    "quantize_columns",
    "quantize_rows",
    "quantize_weight",
    "quantize_weights",
    "reencode",
    "scale_layout",
    "topk",
]
