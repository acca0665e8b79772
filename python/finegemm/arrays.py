"""What differs between producers of arrays. Nothing is imported that the caller has not imported."""

import sys
from functools import cache
from typing import Any

from finegemm.errors import InvalidArgument, Unsupported

# Formats that not every DLPack version and producer can name, NumPy for one: they travel as their bits.
_BITS = {"float8_e4m3fn": "uint8", "bfloat16": "uint16"}

DLPACK_VERSION = (1, 3)  # as python/src/dlpack.h declares it


def _producer(x: Any) -> str:
    return type(x).__module__.partition(".")[0]


def exported(name: str, x: Any, writable: bool) -> Any:
    """A DLPack capsule of the array `x`, without a copy. For types that have not DLPack's C exchange API, which the
    native module reads itself: torch's have it from 2.10 on."""
    numpy = sys.modules.get("numpy")
    if type(x) is ForJax:
        x = x.memory
    producer, view = "numpy", x
    if numpy is not None and isinstance(x, numpy.ndarray):
        view = _numpy_exported(name, x, writable)
    else:
        producer = _producer(x)
        if writable and producer.startswith("jax"):
            raise InvalidArgument(f"{name}: JAX arrays are immutable; pass an array of another library to write into")
        if producer == "torch":
            check_sign(name, x)
            if writable:
                check_grad(name, x)
            view = _torch_exported(name, x)
    try:
        return _capsule(producer, view)
    except (AttributeError, BufferError, TypeError, ValueError, RuntimeError) as e:
        raise InvalidArgument(
            f"{name}: {type(x).__name__}{f' of {x.dtype}' if hasattr(x, 'dtype') else ''} cannot be passed by DLPack; "
            "pass a tensor of torch, NumPy or another library with __dlpack__, of a dtype that DLPack knows"
        ) from e


def _capsule(producer: str, x: Any) -> Any:
    if producer == "torch":  # its __dlpack__ would synchronise streams; the work is queued on the current one
        return sys.modules["torch"].utils.dlpack.to_dlpack(x)
    try:
        return x.__dlpack__(max_version=DLPACK_VERSION)
    except TypeError:  # its library knows nothing of versions
        return x.__dlpack__()


def check_sign(name: str, x: Any) -> None:
    """Refuses views of torch that negate what lies in memory, of which DLPack does not tell."""
    if x.is_neg():
        refuse_sign(name)


def refuse_sign(name: str) -> None:
    raise InvalidArgument(f"{name}: is a view that negates what lies in memory; pass {name}.resolve_neg()")


def check_grad(name: str, x: Any) -> None:
    """Refuses an output whose gradient would be of what it was before."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor) and x.requires_grad and torch.is_grad_enabled():
        raise InvalidArgument(
            f"{name}: requires grad, but autograd does not see what is written to it; pass {name}.detach(), or call "
            "under torch.no_grad()"
        )


def _torch_exported(name: str, x: Any) -> Any:
    if x.is_meta:  # fake ones come without an address, which the native module sees
        raise InvalidArgument(f"{name}: is a meta tensor, which has no memory; pass a tensor that has")
    if str(x.dtype) == "torch.float8_e4m3fn":
        return x.view(sys.modules["torch"].uint8)
    _check_eight_bits(name, x)
    return x


@cache
def _numpy_travels_as(dtype: Any) -> Any:
    """NumPy makes a dtype's name in Python, 4 us of it: once for each. None: it is refused."""
    if dtype.name in _BITS:
        return sys.modules["numpy"].dtype(_BITS[dtype.name])
    return None if "float8" in dtype.name else dtype


def _check_eight_bits(name: str, x: Any) -> None:
    if str(x.dtype) == "torch.float8_e5m2":
        return
    if "float8" in str(x.dtype):
        if name in ("sfa", "sfb", "scales", "row_scales"):
            raise InvalidArgument(f"{name}: has dtype {x.dtype}, must be float32; convert it")
        raise InvalidArgument(
            f"{name}: has dtype {x.dtype}, but of 8-bit floats only float8_e4m3fn and, of torch and JAX, float8_e5m2 "
            "are taken; convert it"
        )


def _numpy_exported(name: str, x: Any, writable: bool) -> Any:
    dtype = _numpy_travels_as(x.dtype)
    if dtype is None:
        _check_eight_bits(name, x)
    elif dtype is not x.dtype:
        x = x.view(dtype)
    if x.flags.writeable:
        return x
    if writable:
        raise InvalidArgument(f"{name}: the array is read-only; pass one that can be written")
    return sys.modules["numpy"].asarray(_Alias(x))


class _Alias:
    """The memory of a read-only array: unversioned DLPack has no word for that, and inputs are only read."""

    def __init__(self, x: Any) -> None:
        self.owner = x
        self.__array_interface__ = {**x.__array_interface__, "data": (x.__array_interface__["data"][0], False)}


class ForJax:
    """Memory of NumPy's, which becomes a JAX array on `device` when the result is in it: those cannot be written to."""

    def __init__(self, memory: Any, device: Any) -> None:
        self.memory, self.device = memory, device

    def delivered(self) -> Any:
        return sys.modules["jax"].device_put(self.memory, self.device)


def empty_like(x: Any, format: str, name: str, *shape: int) -> Any:
    """A new row-major array of x's library on x's device."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return x.new_empty(*shape, dtype=getattr(torch, format))  # integers are read faster than a tuple
    producer = _producer(x)
    if producer == "numpy":
        return sys.modules["numpy"].empty(shape, _numpy_dtype(format, name))
    if producer.startswith("jax"):
        device, *others = x.devices()
        if device.platform == "cpu" and not others:
            return ForJax(sys.modules["numpy"].empty(shape, _numpy_dtype(format, name)), device)
        raise InvalidArgument(f"{name}: JAX arrays on a GPU are not allocated here; call this function of finegemm.jax")
    raise InvalidArgument(f"{name}: arrays of {producer} are not allocated here; pass {name}= to write into")


def empty_mn_major(x: Any, format: str, name: str, *shape: int) -> Any:
    """A new array of x's library on x's device, its rows contiguous and its columns at multiples of 16 bytes."""
    *matrices, rows, cols = shape
    pitch = -(-rows // 4) * 4
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        strides = (*(pitch * cols for _ in matrices), 1, pitch)
        return x.new_empty_strided(shape, strides, dtype=getattr(torch, format))
    memory = empty_like(x, format, name, *matrices, cols, pitch)
    if type(memory) is ForJax:
        return ForJax(memory.memory[..., :rows].swapaxes(-1, -2), memory.device)
    return memory[..., :rows].swapaxes(-1, -2)


def _numpy_dtype(format: str, name: str) -> Any:
    if format == "float8_e5m2":
        raise Unsupported(f"{name}: NumPy cannot pass {format} on; pass x as an array of torch or JAX")
    if format not in _BITS:
        return format
    try:
        import ml_dtypes
    except ImportError as e:
        raise Unsupported(
            f"{name}: NumPy has no {format} of its own; pip install ml_dtypes, or pass {name}= yourself "
            "(uint8 is taken as the bits of e4m3, uint16 as the bits of bfloat16)"
        ) from e
    return getattr(ml_dtypes, format)


def current_stream(x: Any) -> int:
    """The CUDA stream on which x's library works now. For types that have not DLPack's C exchange API."""
    if _producer(x) == "torch":
        return int(sys.modules["torch"].cuda.current_stream(x.device).cuda_stream)
    return 0  # the default stream, which __dlpack__ has made wait for the library's own


def stream_number(stream: Any) -> int:
    """A CUDA stream as a number."""
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    raise InvalidArgument(
        f"stream: {type(stream).__name__} is not a stream; pass an int (the cudaStream_t) or an object with "
        "__cuda_stream__, or nothing for the current stream"
    )
