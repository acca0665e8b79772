"""FP8 matrix products with fine-grained scales: tensors of any DLPack producer go in without a copy."""

from finegemm._native import version as __version__
from finegemm.checkpoints import Weights, load_weights
from finegemm.context import Context, LoggedCall, log
from finegemm.errors import (
    CompileError,
    DriverError,
    FineGemmError,
    InternalError,
    InvalidArgument,
    IoError,
    OutOfMemory,
    PeerError,
    Unsupported,
)
from finegemm.experts import explain_moe, moe, moe_workspace_bytes
from finegemm.four_bit import (
    FourBitWeights,
    explain_four_bit,
    four_bit_gemm,
    pack_int4,
    pack_mxfp4,
    unpack_four_bit,
)
from finegemm.indexer import explain_mqa, mqa_logits, paged_mqa_logits, paged_mqa_schedule
from finegemm.ops import (
    einsum,
    explain,
    gemm,
    grouped_gemm,
    k_grouped_gemm,
    scale_layout,
)
from finegemm.prenorm import explain_prenorm, prenorm_gemm
from finegemm.quantize import quantize_blocks, quantize_columns, quantize_rows, quantize_weights, reencode
from finegemm.routing import combine, permute_quantize, route
from finegemm.selection import explain_topk, mqa_topk, paged_mqa_topk, topk
from finegemm.swiglu import swiglu_quantize
from finegemm.tools import bench, doctor, tune, tuning

__all__ = [
    "CompileError",
    "Context",
    "DriverError",
    "FineGemmError",
    "FourBitWeights",
    "InternalError",
    "InvalidArgument",
    "IoError",
    "LoggedCall",
    "OutOfMemory",
    "PeerError",
    "Unsupported",
    "Weights",
    "__version__",
    "bench",
    "combine",
    "doctor",
    "einsum",
    "explain",
    "explain_four_bit",
    "explain_moe",
    "explain_mqa",
    "explain_prenorm",
    "explain_topk",
    "four_bit_gemm",
    "gemm",
    "grouped_gemm",
    "k_grouped_gemm",
    "load_weights",
    "log",
    "moe",
    "moe_workspace_bytes",
    "mqa_logits",
    "mqa_topk",
    "pack_int4",
    "pack_mxfp4",
    "paged_mqa_logits",
    "paged_mqa_schedule",
    "paged_mqa_topk",
    "permute_quantize",
    "prenorm_gemm",
    "quantize_blocks",
    "quantize_columns",
    "quantize_rows",
    "quantize_weights",
    "reencode",
    "route",
    "scale_layout",
    "swiglu_quantize",
    "topk",
    "tune",
    "tuning",
    "unpack_four_bit",
]
