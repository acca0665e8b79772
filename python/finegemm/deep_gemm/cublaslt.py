"""Products by cuBLASLt. It is opened when it is first asked for by name, and never chosen otherwise."""

import ctypes
import os
import weakref
from ctypes import byref, c_float, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache, lru_cache
from typing import Any, NamedTuple

from finegemm.arrays import check_sign
from finegemm.errors import DriverError, InvalidArgument, Unsupported
from finegemm.torch_module import torch
from finegemm.torch_operators import define, watched

from . import knobs
from .operands import Tensor, check_source

# Values of cublasLt.h, cublas_api.h and library_types.h.
_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14, "float8_e4m3fn": 28, "float8_e5m2": 29}  # cudaDataType
_COMPUTE_F32, _COMPUTE_TF32 = 68, 77
_TRANSPOSE_FIRST, _TRANSPOSE_SECOND, _SM_COUNT = 3, 4, 15  # attributes of a product
_WORKSPACE, _REDUCTIONS, _ALIGNMENTS = 1, 3, (5, 6, 7, 8)  # of a preference; the alignments of A, B, C and D
_IN_FLOAT32 = 2  # reductions of split K: none, or of sums
_NOT_SUPPORTED = 15

_WORKSPACE_BYTES = 32 << 20
_FILES = ("libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so")


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace_bytes", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


class Library:
    """cuBLASLt's functions by their names without "cublasLt"; a status that is not 0 is an error."""

    def __init__(self, functions: Any) -> None:
        self._functions = functions

    def status(self, name: str, *arguments: Any) -> int:
        return int(getattr(self._functions, f"cublasLt{name}")(*arguments))

    def call(self, name: str, *arguments: Any) -> None:
        if status := self.status(name, *arguments):
            raise DriverError(f"cuBLASLt: cublasLt{name} failed with status {status}")

    def create(self, name: str, *arguments: Any) -> c_void_p:
        made = c_void_p()
        self.call(f"{name}Create", byref(made), *arguments)
        return made

    def set(self, of: str, made: c_void_p, attribute: int, value: Any) -> None:
        self.call(f"{of}SetAttribute", made, attribute, byref(value), c_size_t(ctypes.sizeof(value)))


@cache
def _library() -> Library:
    """The one that torch has loaded, else the one that the loader finds."""
    tried = []
    for mode in (os.RTLD_NOLOAD | os.RTLD_NOW, os.RTLD_NOW):
        for file in _FILES:
            try:
                return Library(ctypes.CDLL(file, mode=mode))
            except OSError as e:
                tried.append(str(e))
    raise Unsupported(f"cuBLASLt: is not found; pip install nvidia-cublas, or call gemm. {tried[-1]}")


@cache
def _handle(device: Any) -> c_void_p:
    return _library().create("")


class _Matrix(NamedTuple):
    """A row-major matrix as cuBLASLt sees it, by columns."""

    type: int
    rows: int
    cols: int
    step: int
    alignment: int


class _Problem(NamedTuple):
    """D^T = first * second + C^T, in which columns come first: our B, our A, and then C and D."""

    matrices: tuple[_Matrix, _Matrix, _Matrix, _Matrix]
    transposed: tuple[bool, bool]
    num_sms: int


def _matrix(x: Tensor) -> _Matrix:
    alignment = min(256, x.data_ptr() & -x.data_ptr()) if x.data_ptr() else 256
    step = x.stride(0) if x.shape[0] > 1 else x.shape[1]
    return _Matrix(_TYPES[str(x.dtype).removeprefix("torch.")], x.shape[1], x.shape[0], step, alignment)


def _k_major(x: Tensor) -> bool:
    return bool(x.stride(1) == 1 or x.shape[1] == 1)


def _problem(a: Tensor, b: Tensor, c: Tensor, d: Tensor, num_sms: int) -> _Problem:
    first, second = (_matrix(x if _k_major(x) else x.t()) for x in (b, a))
    return _Problem((first, second, _matrix(c), _matrix(d)), (_k_major(b), not _k_major(a)), num_sms)


def _destroy(library: Library, made: list[tuple[str, c_void_p]]) -> None:
    for name, x in made:
        library.call(f"{name}Destroy", x)


class _Product:
    """Descriptors of a product, and the algorithm that cuBLASLt's heuristic puts first."""

    def __init__(self, library: Library, handle: c_void_p, problem: _Problem) -> None:
        self.cublaslt = library
        self.made: list[tuple[str, c_void_p]] = []
        weakref.finalize(self, _destroy, library, self.made)
        float32 = all(m.type == _TYPES["float32"] for m in problem.matrices)
        self.descriptor = self._create("MatmulDesc", _COMPUTE_TF32 if float32 else _COMPUTE_F32, _TYPES["float32"])
        for attribute, transposed in zip((_TRANSPOSE_FIRST, _TRANSPOSE_SECOND), problem.transposed, strict=True):
            library.set("MatmulDesc", self.descriptor, attribute, c_int(transposed))
        if problem.num_sms:
            library.set("MatmulDesc", self.descriptor, _SM_COUNT, c_int(problem.num_sms))
        self.layouts = [
            self._create("MatrixLayout", m.type, c_uint64(m.rows), c_uint64(m.cols), c_int64(m.step))
            for m in problem.matrices
        ]
        self.algorithm = self._best(handle, problem)

    def _create(self, name: str, *arguments: Any) -> c_void_p:
        made = self.cublaslt.create(name, *arguments)
        self.made.append((name, made))
        return made

    def _best(self, handle: c_void_p, problem: _Problem) -> Any:
        preference = self._create("MatmulPreference")
        self.cublaslt.set("MatmulPreference", preference, _WORKSPACE, c_size_t(_WORKSPACE_BYTES))
        self.cublaslt.set("MatmulPreference", preference, _REDUCTIONS, c_uint32(_IN_FLOAT32))
        for attribute, matrix in zip(_ALIGNMENTS, problem.matrices, strict=True):
            self.cublaslt.set("MatmulPreference", preference, attribute, c_uint32(matrix.alignment))
        best, found = _Heuristic(), c_int()
        status = self.cublaslt.status(
            "MatmulAlgoGetHeuristic", handle, self.descriptor, *self.layouts, preference, 1, byref(best), byref(found)
        )
        if status == _NOT_SUPPORTED or (status == 0 and found.value == 0):
            raise Unsupported(
                "cuBLASLt: has no algorithm for these types and layouts; on Hopper it multiplies FP8 of K-major "
                "memory alone, with extents that are multiples of 16: pass .mT.contiguous().mT, or call fp8_gemm_nt"
            )
        if status:
            raise DriverError(f"cuBLASLt: cublasLtMatmulAlgoGetHeuristic failed with status {status}")
        return best.algorithm


@lru_cache(maxsize=1024)
def _product(library: Library, handle: int, problem: _Problem) -> _Product:
    return _Product(library, c_void_p(handle), problem)


def multiply(
    library: Library, handle: c_void_p, stream: int, a: Tensor, b: Tensor, added: Tensor | None, d: Tensor, sms: int
) -> None:
    """d = a times b + what is added, of a [M, K], b [N, K] and d [M, N], by so many SMs at most; 0: all."""
    c, beta = (d, 0.0) if added is None else (added, 1.0)
    product = _product(library, handle.value or 0, _problem(a, b, c, d, sms))
    first, second, third, result = product.layouts
    workspace = torch.empty(_WORKSPACE_BYTES, dtype=torch.uint8, device=d.device)
    library.call(
        "Matmul",
        handle,
        product.descriptor,
        byref(c_float(1)),
        *(c_void_p(b.data_ptr()), first, c_void_p(a.data_ptr()), second),
        byref(c_float(beta)),
        *(c_void_p(c.data_ptr()), third, c_void_p(d.data_ptr()), result),
        byref(product.algorithm),
        *(c_void_p(workspace.data_ptr()), c_size_t(_WORKSPACE_BYTES), c_void_p(stream)),
    )


def check(a: Tensor, b: Tensor, d: Tensor) -> None:
    for name, x in (("a", a), ("b", b), ("d", d)):
        if x.dim() != 2:
            raise InvalidArgument(f"{name}: has {x.dim()} dimensions, must have 2; pass the matrices one by one")
        if str(x.dtype).removeprefix("torch.") not in _TYPES:
            raise InvalidArgument(f"{name}: has dtype {x.dtype}, must be one of {', '.join(_TYPES)}; convert it")
        if 1 not in x.stride() and x.numel() > 1:
            raise InvalidArgument(f"{name}: has strides {list(x.stride())}, one must be 1; make it contiguous")
        check_sign(name, x)
    if a.shape[1] != b.shape[1] or d.shape != (a.shape[0], b.shape[0]):
        raise InvalidArgument(
            f"d: has shape {list(d.shape)}, a {list(a.shape)} and b {list(b.shape)}, must be [M, N], [M, K] and "
            "[N, K]; look at which of nt, nn, tn and tt is meant"
        )
    if d.stride(1) != 1 and d.shape[1] > 1:
        raise InvalidArgument(f"d: has column stride {d.stride(1)}, must be 1 (rows contiguous); make it contiguous")


def cublaslt_gemm(a: Tensor, b: Tensor, d: Tensor, c: Tensor | None, accumulate: bool) -> None:
    check(a, b, d)
    if c is not None:
        check_source(d, c)
    added = d if accumulate else c
    if d.numel() == 0:
        return
    if a.shape[1] == 0:
        d.zero_() if added is None else d.copy_(added)
        return
    for name, x in (("a", a), ("b", b), ("d", d)):
        if not x.is_cuda or x.device != d.device:
            raise Unsupported(
                f"{name}: is on {x.device}, must be on one GPU with the others for cuBLASLt; copy it there"
            )
    num_sms = knobs.of_call(d).get("num_sms", 0)
    with torch.cuda.device(d.device):
        stream = torch.cuda.current_stream().cuda_stream
        multiply(_library(), _handle(d.device), stream, a, b, added, d, num_sms)


define(
    cublaslt_gemm,
    "(Tensor a, Tensor b, Tensor(a!) d, Tensor? c, bool accumulate) -> ()",
    lambda a, b, d, c, accumulate: None,
)


def cublaslt_gemm_nt(a: Tensor, b: Tensor, d: Tensor, c: Tensor | None = None) -> None:
    """d [M, N] = c + a [M, K] times b [N, K] by cuBLASLt, with K or the rows contiguous; FP8 without scales."""
    watched(cublaslt_gemm)(a, b, d, None if c is d else c, c is d)


def cublaslt_gemm_nn(a: Tensor, b: Tensor, d: Tensor, c: Tensor | None = None) -> None:
    """cublaslt_gemm_nt with b [K, N]."""
    cublaslt_gemm_nt(a, b.mT, d, c)


def cublaslt_gemm_tn(a: Tensor, b: Tensor, d: Tensor, c: Tensor | None = None) -> None:
    """cublaslt_gemm_nt with a [K, M] and b [K, N]."""
    cublaslt_gemm_nt(a.mT, b.mT, d, c)


def cublaslt_gemm_tt(a: Tensor, b: Tensor, d: Tensor, c: Tensor | None = None) -> None:
    """cublaslt_gemm_nt with a [K, M]."""
    cublaslt_gemm_nt(a.mT, b, d, c)


def batched_syrk(a: Tensor, d: Tensor) -> None:
    """d = a times its transpose, by torch; one matrix or a stack."""
    _into(d, a, a.mT)


def batched_symm(a: Tensor, b: Tensor, d: Tensor) -> None:
    """d = a times b, by torch; a symmetric, one matrix or a stack."""
    _into(d, a, b)


def _into(d: Tensor, a: Tensor, b: Tensor) -> None:
    wanted = (*a.shape[:-1], b.shape[-1])
    if d.shape != wanted or d.dtype != a.dtype:
        raise InvalidArgument(
            f"d: is {d.dtype} of shape {list(d.shape)}, must be {a.dtype} of shape {list(wanted)}; pass such memory"
        )
    torch.matmul(a, b, out=d)
