"""The product before the norm of hyper-connections as an operator of torch."""

from typing import Any

import torch

import finegemm

from .functions import call, check_grad
from .operators import Tensor, define_new, define_out


def prenorm_gemm_new(a: Tensor, b: Tensor, num_splits: int | None, num_sms: int, pdl: bool) -> tuple[Tensor, Tensor]:
    return finegemm.prenorm_gemm(a, b, num_splits=num_splits, num_sms=num_sms, pdl=pdl)


def prenorm_gemm_out(a: Tensor, b: Tensor, products: Tensor, squares: Tensor, num_sms: int, pdl: bool) -> None:
    finegemm.prenorm_gemm(a, b, products, squares, num_sms=num_sms, pdl=pdl)


def _new(a: Tensor, b: Tensor, num_splits: int | None, *_: Any) -> tuple[Tensor, Tensor]:
    rows = (a.shape[0],) if num_splits is None else (num_splits, a.shape[0])
    return a.new_empty(*rows, b.shape[0], dtype=torch.float32), a.new_empty(rows, dtype=torch.float32)


define_new(
    prenorm_gemm_new,
    "(Tensor a, Tensor b, SymInt? num_splits, SymInt num_sms, bool pdl) -> (Tensor, Tensor)",
    _new,
)
define_out(prenorm_gemm_out, "(Tensor a, Tensor b, Tensor(a!) products, Tensor(b!) squares, SymInt num_sms, bool pdl)")


def prenorm_gemm(
    a: Tensor,
    b: Tensor,
    *,
    out: tuple[Tensor, Tensor] | None = None,
    num_splits: int | None = None,
    num_sms: int = 0,
    pdl: bool = False,
) -> tuple[Tensor, Tensor]:
    """finegemm.prenorm_gemm as an operator of torch: a [..., K] of torch.bfloat16, b [N, K] of torch.float32.

    Returns products [..., N] and the sum of squares of each row [...], of torch.float32, or `out`, a pair of such
    tensors; with `num_splits` both are slices, a dimension in front, whose sums the caller takes. Backward through a
    result raises finegemm.Unsupported.
    """
    matrix, slices = a.reshape(-1, a.shape[-1]), () if num_splits is None else (num_splits,)
    if out is None:
        products, squares = call(prenorm_gemm_new, matrix, b, num_splits, num_sms, pdl)
        rows = (*slices, *a.shape[:-1])
        return products.view(*rows, products.shape[-1]), squares.view(rows)
    products, squares = out
    check_grad(products, a, b, squares)
    views = (products.view(*slices, -1, products.shape[-1]), squares.view(*slices, -1))
    call(prenorm_gemm_out, matrix, b, *views, num_sms, pdl)
    return out
