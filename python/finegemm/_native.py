"""The compiled module. Its functions: _native.pyi."""

from pathlib import Path

import tvm_ffi

_module = tvm_ffi.load_module(Path(__file__).with_name("_finegemm.so"))
context = _module.context
gemm = _module.gemm
quantize_rows = _module.quantize_rows
quantize_blocks = _module.quantize_blocks
explain = _module.explain
