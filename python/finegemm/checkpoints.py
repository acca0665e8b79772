"""Weights and scales of published FP8 checkpoints."""

import os
from typing import Any, NamedTuple

from finegemm import _native

# Without types of NumPy's own, as their bits, which every function takes.
_NUMPY = {"e4m3": "uint8", "bf16": "uint16", "f16": "float16", "f32": "float32"}

Matrix = tuple[str, int, int, bytearray]


class Weights(NamedTuple):
    """Weights as gemm takes them, and what was found."""

    values: Any  # NumPy [N, K]: e4m3 codes as uint8, else bfloat16 as uint16, float16 or float32
    scales: Any  # NumPy float32 of codes, [ceil(N/128), ceil(K/128)] or [N, ceil(K/128)]; None without any
    found: str  # in words: "w.weight_scale_inv, BF16 [56, 16] for 128x128 blocks"


def load_weights(name: str | os.PathLike[str]) -> Weights:
    """Reads "FILE.safetensors:TENSOR", or "FOLDER:TENSOR" of a checkpoint in shards with an index, or "FILE.npy".

    ".weight" may be left out of a name, which may end with a part of the matrix, "TENSOR[100:300]" or
    "TENSOR[100:300,128:256]"; columns begin at a multiple of 128 where there are scales. Beside e4m3 codes lie their
    scales, as weight_scale_inv, weight_scale or scale, all of which multiply: of float32, bfloat16, float16 or e8m0
    (also as uint8), one for the tensor, for each row, for each 128x128 block, or for each row and 128 columns. Needs
    NumPy; torch.from_numpy(values).view(torch.float8_e4m3fn) is torch's view.
    """
    import numpy

    def array(matrix: Matrix) -> Any:
        dtype, rows, cols, data = matrix
        return numpy.frombuffer(data, _NUMPY[dtype]).reshape(rows, cols)

    values, scales, found = _native.weights(os.fspath(name))
    return Weights(array(values), None if scales is None else array(scales), found)
