"""The operations. Checks are the native library's: what it refuses, it explains."""

import json
from typing import Any, Literal

from finegemm import _native
from finegemm.arrays import stream_number
from finegemm.context import Context, default_context


def gemm(
    a: Any,
    sfa: Any,
    b: Any,
    sfb: Any,
    d: Any = None,
    *,
    numerics: Literal["fast", "exact", "hopper"] = "fast",
    config: str | None = None,
    check_values: bool | None = None,
    batch_invariant: bool | None = None,
    num_sms: int = 0,
    pdl: bool = False,
    stream: Any = None,
    context: Context | None = None,
) -> Any:
    """d[m, n] = sum over k of (a[m, k] * sfa[m, k // 128]) * (b[n, k] * sfb[n // 128, k // 128]). Returns `d`.

    a [M, K], b [N, K]: float8_e4m3fn (or uint8, its bits), K contiguous. sfa [M, ceil(K/128)] and
    sfb [ceil(N/128), ceil(K/128)]: float32, any strides. d [M, N]: bfloat16 (or uint16, its bits), N contiguous;
    a new array of a's library when None.

    On a GPU the work is queued on the current stream of the tensors' library, or on `stream`. `numerics` is of the CPU,
    `config` (a kernel by name, see explain) of the GPU. `check_values` looks for bad scales first. With
    `batch_invariant` the bits of a row of d do not depend on the other rows or on their number. `num_sms`: how many SMs
    of the GPU may be used at most; 0: all. `pdl`: programmatic dependent launch, the kernel is set up while the one
    before it in the stream ends.
    """
    return _native.gemm(
        (context or default_context()).handle,
        a,
        sfa,
        b,
        sfb,
        d,
        numerics,
        config,
        check_values,
        batch_invariant,
        num_sms,
        pdl,
        None if stream is None else stream_number(stream),
    )


def _quantize(
    native: Any, x: Any, q: Any, scales: Any, power_of_two_scales: bool, stream: Any, context: Context | None
) -> tuple[Any, Any]:
    return native(
        (context or default_context()).handle,
        x,
        q,
        scales,
        power_of_two_scales,
        None if stream is None else stream_number(stream),
    )


def quantize_rows(
    x: Any,
    q: Any = None,
    scales: Any = None,
    *,
    power_of_two_scales: bool = False,
    stream: Any = None,
    context: Context | None = None,
) -> tuple[Any, Any]:
    """Casts x [M, K] to e4m3 with a scale for each row and 128 columns, as activations have. Returns (q, scales).

    x: bfloat16 (or uint16, its bits), float16 or float32, K contiguous. scales [M, ceil(K/128)] = largest
    magnitude / 448, rounded up to a power of two if asked. New arrays of x's library unless given.
    """
    return _quantize(_native.quantize_rows, x, q, scales, power_of_two_scales, stream, context)


def quantize_blocks(
    x: Any,
    q: Any = None,
    scales: Any = None,
    *,
    power_of_two_scales: bool = False,
    stream: Any = None,
    context: Context | None = None,
) -> tuple[Any, Any]:
    """Casts x [N, K] to e4m3 with a scale for each 128x128 block, as weights have. Returns (q, scales).

    scales: [ceil(N/128), ceil(K/128)]. Otherwise as quantize_rows.
    """
    return _quantize(_native.quantize_blocks, x, q, scales, power_of_two_scales, stream, context)


def explain(
    m: int,
    n: int,
    k: int,
    device: str | None = None,
    *,
    batch_invariant: bool = False,
    plan_table: str | None = None,
) -> dict[str, Any]:
    """Which kernel a GPU takes for a shape, and why not another one.

    `device`: a known GPU by name ("h200", "h100", ...); None: the one of this machine, else the h200.
    `batch_invariant`: as in gemm. `plan_table`: a file of `finegemm tune`; without one that of FINEGEMM_PLAN_TABLE,
    if `device` is None.
    """
    plan: dict[str, Any] = json.loads(_native.explain(m, n, k, device or "", batch_invariant, plan_table or ""))
    return plan
