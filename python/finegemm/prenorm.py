"""The product before the norm of hyper-connections, as declarations of native functions."""

import json
from typing import Any

from finegemm import _native
from finegemm.calls import T, Tensor, native
from finegemm.context import Context


@native
def prenorm_gemm(
    a: T,
    b: Tensor,
    d: T | None = None,
    sqrsum: T | None = None,
    *,
    num_splits: int | None = None,
    num_sms: int = 0,
    pdl: bool = False,
    stream: Any = None,
    context: Context | None = None,
) -> tuple[T, T]:
    """d[m, n] = sum over k of a[m, k] * tf32(b[n, k]), sqrsum[m] = sum over k of a[m, k]**2. Returns `(d, sqrsum)`.

    a [M, K]: bfloat16 (or uint16, its bits), K contiguous, a multiple of 64. b [N, K]: float32, K contiguous; N of 8,
    16, 24 or 32. tf32(x) is x rounded to 11 significant bits. d [M, N], sqrsum [M]: float32, N and M contiguous; new
    arrays of a's library when None.

    With `num_splits`, or a d of three dimensions, d is [num_splits, M, N] and sqrsum [num_splits, M], and the results
    are their sums over the first dimension, for a kernel that adds them up itself: on a GPU K may be divided among
    slices. All are written; some may be zero. From 1 to 1024.

    With the same shapes, `num_splits` and `num_sms` the bits are the same from call to call. The rest as in gemm.
    docs/prenorm.md has the order of the sums and the bound of their error.
    """


def explain_prenorm(
    m: int, n: int, k: int, *, num_splits: int | None = None, num_sms: int = 0, device: str | None = None
) -> dict[str, Any]:
    """Which kernel a GPU takes for prenorm_gemm, how K is divided, and why. `device`: as in explain."""
    told: dict[str, Any] = json.loads(_native.explain_prenorm(locals()))
    return told
