"""SwiGLU with quantisation, as the declaration of a native function."""

from typing import Any

from finegemm.calls import T, Tensor, native
from finegemm.context import Context


@native
def swiglu_quantize(
    x: T,
    q: T | None = None,
    scales: T | None = None,
    *,
    weights: Tensor | None = None,
    offsets: Tensor | None = None,
    m_indices: Tensor | None = None,
    prefix_sums: Tensor | None = None,
    masked_m: Tensor | None = None,
    alignment: int = 128,
    gate_limit: float = 0.0,
    gate_alpha: float = 1.0,
    up_offset: float = 0.0,
    interleaved: bool = False,
    to_bf16: bool = False,
    power_of_two_scales: bool = False,
    num_sms: int = 0,
    pdl: bool = False,
    stream: Any = None,
    context: Context | None = None,
) -> tuple[T, T]:
    """Casts gate * sigmoid(gate_alpha * gate) * (up + up_offset) * weights to e4m3, 1x128 scales. Returns (q, scales).

    x [M, 2 * I], or [G, M, 2 * I]: bfloat16 (or uint16, its bits) or float32, contiguous. The first I columns are
    gates, the others ups; `interleaved`: 8 gates, 8 ups in turn. I is a multiple of 16. q: float8_e4m3fn, [M, I] or
    [G, M, I]. scales: float32, [M, ceil(I/128)] or [G, M, ceil(I/128)], any strides, new ones MN-major; largest
    magnitude of 128 columns / 448, rounded up to a power of two if asked.

    With `gate_limit` above 0 gates are at most that, and ups at most that in magnitude. weights: float32 [M] or [G, M],
    a factor of each row. All is computed in float32, in an order that kernels/finegemm/quantize/activation.h has, CPU
    and GPU alike to the bit; `to_bf16` rounds values to bfloat16 before they are quantised, as a chain does that
    stores them.

    One of offsets, m_indices, prefix_sums and masked_m, as of grouped_gemm, says which rows belong to a group; others
    are neither read nor written. masked_m [G] goes with x of three dimensions. A GPU reads the numbers when the kernel
    runs; numbers that break the rules lead to nothing outside of the arrays. num_sms and pdl: as in gemm. Autograd
    does not see the call. InvalidArgument for what breaks a rule.
    """
