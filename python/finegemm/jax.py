"""FineGEMM in programs of JAX: the products and casts as functions that `jax.jit` compiles, on CPUs and Hopper GPUs.

Arguments, rules and results are those of the functions of `finegemm` with these names; results are new arrays of JAX.
Work is queued on XLA's own stream, and nothing waits for it. What is wrong with values that shapes do not tell raises
when the program runs. Functions have no gradients.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

import finegemm
from finegemm import _native
from finegemm.errors import InvalidArgument

__all__ = [
    "einsum",
    "gemm",
    "grouped_gemm",
    "k_grouped_gemm",
    "prenorm_gemm",
    "quantize_blocks",
    "quantize_columns",
    "quantize_rows",
    "quantize_weights",
    "reencode",
]

Array = Any  # a jax.Array, or what stands for one in a program that is traced
_BLOCK = 128  # of rows or columns that share a scale; groups of K begin at multiples of it
_K_MULTIPLE = 16  # K of a product of codes


def _run(buffers: tuple[Any, ...], options: dict[str, Any], stream: int | None) -> str | None:
    """Calls the function that an instruction of a compiled program stands for. Returns what went wrong, as XLA has no
    exceptions."""
    function, names, absent = (options.pop(name) for name in ("function", "names", "absent"))
    arrays = dict.fromkeys(absent.split()) | dict(zip(names.split(), buffers, strict=True))
    try:
        getattr(finegemm, function)(**arrays, **options, stream=stream)
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return None


for _platform, _handler in _native.ffi_handlers(_run).items():
    jax.ffi.register_ffi_target("finegemm", _handler, platform=_platform)


def _called(
    function: str, operands: dict[str, Array | None], results: dict[str, jax.ShapeDtypeStruct], options: dict[str, Any]
) -> list[Array]:
    """An instruction that calls `function` with these operands, and results to write to."""
    given = {name: x for name, x in operands.items() if x is not None}
    call = jax.ffi.ffi_call("finegemm", list(results.values()), vmap_method="sequential")
    attributes = {name: value for name, value in options.items() if value is not None}
    names, absent = " ".join([*given, *results]), " ".join(name for name in operands if name not in given)
    return list(call(*given.values(), function=function, names=names, absent=absent, **attributes))


def _of(dtype: Any, *shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def _check_dimensions(function: str, **operands: tuple[Array, tuple[int, ...]]) -> None:
    for name, (x, wanted) in operands.items():
        if x.ndim not in wanted:
            must = " or ".join(map(str, wanted))
            raise InvalidArgument(f"{name}: has {x.ndim} dimensions, {function} takes {must}; reshape it")


def _result_type(a: Array, out_dtype: Any) -> Any:
    if out_dtype is not None:
        return jnp.dtype(out_dtype)
    return a.dtype if a.dtype in (jnp.bfloat16, jnp.float16) else jnp.dtype(jnp.bfloat16)


def gemm(
    a: Array,
    sfa: Array | None,
    b: Array,
    sfb: Array | None,
    *,
    out_dtype: Any = None,
    bias: Array | None = None,
    alpha: float | None = None,
    numerics: str = "fast",
    batch_invariant: bool | None = None,
    num_sms: int = 0,
) -> Array:
    """finegemm.gemm: a [M, K], b [N, K], with scales, bias [N]. Returns [M, N] of `out_dtype`, of codes bfloat16."""
    _check_dimensions("gemm", a=(a, (2,)), b=(b, (2,)))
    options = {"alpha": alpha, "numerics": numerics, "batch_invariant": batch_invariant, "num_sms": num_sms}
    d = _of(_result_type(a, out_dtype), a.shape[0], b.shape[0])
    return _called("gemm", {"a": a, "sfa": sfa, "b": b, "sfb": sfb, "bias": bias}, {"d": d}, options)[0]


def grouped_gemm(
    a: Array,
    sfa: Array | None,
    b: Array,
    sfb: Array | None,
    *,
    offsets: Array | None = None,
    m_indices: Array | None = None,
    prefix_sums: Array | None = None,
    masked_m: Array | None = None,
    alignment: int | None = None,
    expected_m: int = 0,
    out_dtype: Any = None,
    numerics: str = "fast",
    num_sms: int = 0,
) -> Array:
    """finegemm.grouped_gemm: a [M, K], of masked_m [G, M, K], b [G, N, K]. Returns [M, N], or [G, M, N].

    One of the four arrays, of int32, says which rows a group has. Rows of no group are of no defined value.
    """
    _check_dimensions("grouped_gemm", a=(a, (2, 3)), b=(b, (3,)))
    groups = {"offsets": offsets, "m_indices": m_indices, "prefix_sums": prefix_sums, "masked_m": masked_m}
    options = {"alignment": alignment, "expected_m": expected_m, "numerics": numerics, "num_sms": num_sms}
    d = _of(_result_type(a, out_dtype), *a.shape[:-1], b.shape[1])
    return _called("grouped_gemm", {"a": a, "sfa": sfa, "b": b, "sfb": sfb} | groups, {"d": d}, options)[0]


def k_grouped_gemm(
    a: Array,
    sfa: Array | None,
    b: Array,
    sfb: Array | None,
    *,
    offsets: Array,
    out_dtype: Any = jnp.float32,
    numerics: str = "fast",
    num_sms: int = 0,
) -> Array:
    """finegemm.k_grouped_gemm: a [M, K], b [N, K], offsets [G + 1] of int32. Returns [G, M, N] of `out_dtype`."""
    _check_dimensions("k_grouped_gemm", a=(a, (2,)), b=(b, (2,)))
    d = _of(jnp.dtype(out_dtype), offsets.shape[0] - 1, a.shape[0], b.shape[0])
    operands = {"a": a, "sfa": sfa, "b": b, "sfb": sfb, "offsets": offsets}
    return _called("k_grouped_gemm", operands, {"d": d}, {"numerics": numerics, "num_sms": num_sms})[0]


def einsum(
    equation: str,
    a: Array,
    b: Array,
    *,
    sfa: Array | None = None,
    sfb: Array | None = None,
    out_dtype: Any = None,
    numerics: str = "fast",
    num_sms: int = 0,
) -> Array:
    """finegemm.einsum: "bhr,hdr->bhd", "bhd,hdr->bhr" or "bmk,bnk->mn". Returns the result of `out_dtype`."""
    operands, result = equation.partition("->")[::2]
    extents: dict[str, int] = {}
    for letters, x in zip(operands.split(","), (a, b), strict=False):  # what is no equation finegemm refuses
        extents.update(zip(letters, x.shape, strict=False))
    d = _of(_result_type(a, out_dtype), *(extents.get(letter, 0) for letter in result))
    options = {"equation": equation, "numerics": numerics, "num_sms": num_sms}
    return _called("einsum", {"a": a, "b": b, "sfa": sfa, "sfb": sfb}, {"d": d}, options)[0]


def prenorm_gemm(a: Array, b: Array, *, num_splits: int | None = None, num_sms: int = 0) -> tuple[Array, ...]:
    """finegemm.prenorm_gemm: a [M, K] of bfloat16, b [N, K] of float32.

    Returns products [M, N] and the sum of squares of each row [M], of float32, or `num_splits` slices of both.
    """
    _check_dimensions("prenorm_gemm", a=(a, (2,)), b=(b, (2,)))
    slices = () if num_splits is None else (num_splits,)
    results = {
        "d": _of(jnp.float32, *slices, a.shape[0], b.shape[0]),
        "sqrsum": _of(jnp.float32, *slices, a.shape[0]),
    }
    return tuple(_called("prenorm_gemm", {"a": a, "b": b}, results, {"num_sms": num_sms}))


def _blocks(extent: int) -> int:
    return -(-extent // _BLOCK)


def _cast(function: str, x: Array, scales: Sequence[int], dtype: Any, power_of_two_scales: bool) -> tuple[Array, ...]:
    results = {"q": _of(dtype, *x.shape), "scales": _of(jnp.float32, *scales)}
    return tuple(_called(function, {"x": x}, results, {"power_of_two_scales": power_of_two_scales}))


def quantize_rows(
    x: Array, *, dtype: Any = jnp.float8_e4m3fn, whole_rows: bool = False, power_of_two_scales: bool = False
) -> tuple[Array, ...]:
    """finegemm.quantize_rows: x [M, K] to codes [M, K] and scales [M, ceil(K/128)], or [M, 1] of whole rows."""
    _check_dimensions("quantize_rows", x=(x, (2,)))
    scales = x.shape[0], 1 if whole_rows else _blocks(x.shape[1])
    return _cast("quantize_rows", x, scales, dtype, power_of_two_scales)


def quantize_blocks(
    x: Array, *, dtype: Any = jnp.float8_e4m3fn, power_of_two_scales: bool = False
) -> tuple[Array, ...]:
    """finegemm.quantize_blocks: x [N, K] to codes [N, K] and scales [ceil(N/128), ceil(K/128)]."""
    _check_dimensions("quantize_blocks", x=(x, (2,)))
    return _cast("quantize_blocks", x, [_blocks(extent) for extent in x.shape], dtype, power_of_two_scales)


def quantize_weights(x: Array, *, power_of_two_scales: bool = False) -> tuple[Array, ...]:
    """finegemm.quantize_weights: x [N, K] or [G, N, K] to codes, scales of blocks and the codes transposed."""
    _check_dimensions("quantize_weights", x=(x, (2, 3)))
    *groups, n, k = x.shape
    results = {
        "q": _of(jnp.float8_e4m3fn, *x.shape),
        "scales": _of(jnp.float32, *groups, _blocks(n), _blocks(k)),
        "transposed": _of(jnp.float8_e4m3fn, *groups, k, n),
    }
    return tuple(_called("quantize_weights", {"x": x}, results, {"power_of_two_scales": power_of_two_scales}))


def quantize_columns(
    x: Array,
    *,
    offsets: Array | None = None,
    rows: bool = False,
    dtype: Any = jnp.float8_e4m3fn,
    power_of_two_scales: bool = False,
) -> tuple[Array, ...]:
    """finegemm.quantize_columns: x [M, K] to codes [K, C] and scales [K, ceil(C/128)].

    C is M rounded up to 16. With `offsets` [G + 1] of int32 it is what is enough for any groups, and the third result,
    [G + 1], says where each begins. With `rows` the last two results are those of quantize_rows.
    """
    _check_dimensions("quantize_columns", x=(x, (2,)))
    m, k = x.shape
    if offsets is None:
        c = -(-m // _K_MULTIPLE) * _K_MULTIPLE
    else:
        c = (m + (offsets.shape[0] - 1) * (_BLOCK - 1)) // _BLOCK * _BLOCK
    results = {"q": _of(dtype, k, c), "scales": _of(jnp.float32, k, _blocks(c))}
    if offsets is not None:
        results["begins"] = _of(jnp.int32, *offsets.shape)
    if rows:
        results |= {"row_q": _of(dtype, m, k), "row_scales": _of(jnp.float32, m, _blocks(k))}
    operands = {"x": x, "offsets": offsets}
    return tuple(_called("quantize_columns", operands, results, {"power_of_two_scales": power_of_two_scales}))


def reencode(codes: Array, words: Array, *, blocks: bool = False) -> tuple[Array, ...]:
    """finegemm.reencode: codes [M, K] or [G, M, K], words [M, ceil(K/128)] of each. Returns codes and new scales.

    Scales of rows [M, ceil(K/128)] of each matrix, or with `blocks` [ceil(M/128), ceil(K/128)].
    """
    _check_dimensions("reencode", codes=(codes, (2, 3)), words=(words, (2, 3)))
    *matrices, rows, k = codes.shape
    scales = _of(jnp.float32, *matrices, _blocks(rows) if blocks else rows, _blocks(k))  # their shape says which
    results = {"q": _of(codes.dtype, *codes.shape), "scales": scales}
    return tuple(_called("reencode", {"codes": codes, "words": words}, results, {}))
