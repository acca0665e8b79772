"""The product before the norm of hyper-connections as an operator of torch."""

from typing import Any

import torch

import finegemm

from .functions import call
from .operators import Tensor, define_new


def prenorm_gemm_new(a: Tensor, b: Tensor, num_splits: int | None, num_sms: int, pdl: bool) -> tuple[Tensor, Tensor]:
    return finegemm.prenorm_gemm(a, b, num_splits=num_splits, num_sms=num_sms, pdl=pdl)


def _new(a: Tensor, b: Tensor, num_splits: int | None, *_: Any) -> tuple[Tensor, Tensor]:
    rows = (a.shape[0],) if num_splits is None else (num_splits, a.shape[0])
    return a.new_empty(*rows, b.shape[0], dtype=torch.float32), a.new_empty(rows, dtype=torch.float32)


define_new(
    prenorm_gemm_new,
    "(Tensor a, Tensor b, SymInt? num_splits, SymInt num_sms, bool pdl) -> (Tensor, Tensor)",
    _new,
)


def prenorm_gemm(
    a: Tensor, b: Tensor, *, num_splits: int | None = None, num_sms: int = 0, pdl: bool = False
) -> tuple[Tensor, Tensor]:
    """finegemm.prenorm_gemm as an operator of torch: a [..., K] of torch.bfloat16, b [N, K] of torch.float32.

    Returns products [..., N] and the sum of squares of each row [...], of torch.float32; with `num_splits` both are
    slices, a dimension in front, whose sums the caller takes. Backward through a result raises finegemm.Unsupported.
    """
    products, squares = call(prenorm_gemm_new, a.reshape(-1, a.shape[-1]), b, num_splits, num_sms, pdl)
    rows = (*products.shape[:-2], *a.shape[:-1])
    return products.view(*rows, products.shape[-1]), squares.view(rows)
