"""The product before the norm of hyper-connections."""

from typing import Any

from finegemm import _native
from finegemm.context import default_handle
from finegemm.errors import FineGemmError
from finegemm.torch_operators import define, watched

from . import envs, knobs
from .operands import Tensor, as_written, integer


def prenorm_gemm(a: Tensor, b: Tensor, d: Tensor, sqrsum: Tensor, num_splits: int | None) -> None:
    settings = envs.settings()
    handle = default_handle() if settings.context is None else settings.context.handle
    try:
        _native.prenorm_gemm(handle, None, (a, b, d, sqrsum), knobs.of_call(d) | {"num_splits": num_splits})
    except FineGemmError as e:
        raise as_written(e, sqrsum="sqr_sum") from None
    if settings.prints_configs:
        m, k = a.shape
        envs.print_prenorm_config("prenorm_gemm", m=m, n=b.shape[0], k=k, num_splits=num_splits)


def _nothing(*arguments: Any) -> None:
    """What it returns, for tensors without data."""


define(prenorm_gemm, "(Tensor a, Tensor b, Tensor(a!) d, Tensor(b!) sqrsum, SymInt? num_splits) -> ()", _nothing)


def tf32_hc_prenorm_gemm(a: Tensor, b: Tensor, d: Tensor, sqr_sum: Tensor, num_splits: int | None = None) -> None:
    """d [M, N] = a [M, K] * b [N, K] transposed, sqr_sum [M]: of the squares of each row of a.

    With `num_splits` d is [num_splits, M, N] and sqr_sum [num_splits, M], to be added up by the caller.
    """
    splits = None if num_splits is None else integer("num_splits", num_splits)
    watched(prenorm_gemm)(a, b, d, sqr_sum, splits)
