"""Casts to codes with scales, as declarations of native functions."""

from typing import Any, Literal

from finegemm.calls import T, Tensor, native
from finegemm.context import Context


@native
def quantize_rows(
    x: T,
    q: T | None = None,
    scales: T | None = None,
    *,
    dtype: Literal["float8_e4m3fn", "float8_e5m2", "int8"] | None = None,
    whole_rows: bool = False,
    power_of_two_scales: bool = False,
    stream: Any = None,
    context: Context | None = None,
) -> tuple[T, T]:
    """Casts x [M, K] to e4m3 with a scale for each row and 128 columns, as activations have. Returns (q, scales).

    x: bfloat16 (or uint16, its bits), float16 or float32, K contiguous. q is float8_e4m3fn, unless it or `dtype` says
    float8_e5m2, as gradients may have, or int8. scales [M, ceil(K/128)] = largest magnitude / 448, of e5m2 / 57344,
    of int8 / 127, rounded up to a power of two if asked; -128 is not made. With `whole_rows`, or where scales [M, 1]
    are given, a row has one scale, as tokens and channels have. New arrays of x's library unless given. Autograd does
    not see the call: the results are detached, even where x requires grad.
    """


@native
def quantize_blocks(
    x: T,
    q: T | None = None,
    scales: T | None = None,
    *,
    dtype: Literal["float8_e4m3fn", "float8_e5m2", "int8"] | None = None,
    power_of_two_scales: bool = False,
    stream: Any = None,
    context: Context | None = None,
) -> tuple[T, T]:
    """Casts x [N, K] to e4m3 with a scale for each 128x128 block, as weights have. Returns (q, scales).

    scales: [ceil(N/128), ceil(K/128)]. Otherwise as quantize_rows.
    """


@native
def quantize_weights(
    x: T,
    q: T | None = None,
    scales: T | None = None,
    transposed: T | None = None,
    *,
    power_of_two_scales: bool = False,
    stream: Any = None,
    context: Context | None = None,
) -> tuple[T, T, T]:
    """quantize_blocks, with the codes transposed from the same pass, as training has it. Returns what is written.

    x [N, K], or [G, N, K] of groups; q as x, scales [ceil(N/128), ceil(K/128)] and transposed [K, N] of each matrix. N
    and K are multiples of 16. Y takes q and scales, dX takes transposed and the transposed view of scales. Otherwise as
    quantize_rows.
    """


@native
def quantize_columns(
    x: T,
    q: T | None = None,
    scales: T | None = None,
    *,
    offsets: Tensor | None = None,
    begins: T | None = None,
    rows: bool = False,
    row_q: T | None = None,
    row_scales: T | None = None,
    dtype: Literal["float8_e4m3fn", "float8_e5m2"] | None = None,
    power_of_two_scales: bool = False,
    stream: Any = None,
    context: Context | None = None,
) -> tuple[T, ...]:
    """Casts x [M, K] to transposed e4m3 with a scale for each column and 128 rows, as gradients of weights need.

    Returns (q, scales): q [K, C] has the M rows of x as columns and zeros behind, scales [K, ceil(C/128)] are any, new
    ones [K, 1] side by side. C is a multiple of 16 from M on, of a new q the least.

    With `offsets` [G + 1], int32 on the device of x, returns (q, scales, begins): the rows offsets[g] up to
    offsets[g + 1] of group g begin at column begins[g] of q, a multiple of 128; `begins` [G + 1], int32, are the
    offsets that k_grouped_gemm takes. Groups lie one behind the other, rows of no group are left out, and C is a
    multiple of 128, at least M + 127 * G rounded down to one. A GPU reads the numbers when the kernel runs, nothing
    waits for them; ones that break the rules lead to nothing outside of the arrays.

    With `rows`, or `row_q` and `row_scales` to write to, the results end with (row_q, row_scales): what quantize_rows
    makes of x, from the same pass; new scales of a block of columns of x lie side by side. Rows of no group are not
    written. Otherwise as quantize_rows.
    """


@native
def reencode(
    codes: T,
    words: Tensor,
    q: T | None = None,
    scales: T | None = None,
    *,
    blocks: bool = False,
    changed: Tensor | None = None,
    pdl: bool = False,
    stream: Any = None,
    context: Context | None = None,
) -> tuple[T, T]:
    """MXFP8 as FP8: codes with exponents for each 32 columns get a scale for each 128. Returns (q, scales).

    codes [M, K], or [G, M, K] of several matrices: float8_e4m3fn, K contiguous and a multiple of 16. words
    [M, ceil(K/128)] of each: int32, any strides, four exponents of a row in each, the first in the lowest byte, as
    finegemm.mxfp8.pack_scales makes them; e is 2^(e - 127), 0 for 0 and NaN for 255. q: as codes. scales: float32, for
    each row and 128 columns [M, ceil(K/128)], or with `blocks`, or where such are given, for each 128x128 block
    [ceil(M/128), ceil(K/128)]. New arrays of the library of codes unless given; new scales of rows are MN-major, those
    of blocks row-major.

    A scale is the smallest power of two, from 2^-126 on, with which no code is above 448; 1 where all is zero. A value
    keeps its bits unless it is below 2^-6 of its new scale, where e4m3 has fewer: then it is off by at most 2^-10 of
    that. NaN stays NaN. The number of groups of 128 columns of a row with a value that is not what it was is added to
    `changed`, int32 of one element, for which nothing waits. CPU and GPU give the same bits. pdl: as in gemm. Autograd
    does not see the call. InvalidArgument for what breaks a rule.
    """
