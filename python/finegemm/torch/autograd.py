"""Layers with gradients: products of codes forward, for the data and for the weights.

Forward and for the data, rows of activations and of gradients have a scale for each 128 columns, weights one for each
128x128 block; for the weights, both operands have one for each column and 128 rows.
"""

from typing import Any, NamedTuple

import torch

from finegemm.errors import Unsupported

from .functions import (
    Integers,
    gemm,
    grouped_gemm,
    k_grouped_gemm,
    quantize_blocks,
    quantize_columns,
    quantize_rows,
    quantize_weights,
)
from .operators import Tensor


def _transpose(codes: Tensor) -> Tensor:
    return codes.view(torch.uint8).mT.contiguous().view(torch.float8_e4m3fn)  # bytes, which every device copies


class QuantizedWeight(NamedTuple):
    """Weights as the products of a layer take them."""

    codes: Tensor  # e4m3 [N, K], of groups [G, N, K]
    scales: Tensor  # float32 [ceil(N/128), ceil(K/128)] of each, or [N, ceil(K/128)]
    transposed: Tensor | None = None  # the codes as [K, N], for gradients of data; None: transposed in each backward

    def with_transposed(self) -> "QuantizedWeight":
        """These, with the codes transposed if they were not."""
        return self if self.transposed is not None else self._replace(transposed=_transpose(self.codes))


def quantize_weight(weight: Tensor, *, power_of_two_scales: bool = False, transposed: bool = True) -> QuantizedWeight:
    """weight [N, K] or [G, N, K] of bfloat16, float16 or float32 as `linear` and `grouped_linear` take it.

    `transposed`: with the codes that gradients of data need, once more the memory. N and K are multiples of 16.
    """
    with torch.no_grad():
        quantize = quantize_weights if transposed else quantize_blocks
        return QuantizedWeight(*quantize(weight.detach(), power_of_two_scales=power_of_two_scales))


def _has_row_scales(codes: Tensor, scales: Tensor) -> bool:
    return bool(scales.shape[-2] == codes.shape[-2] != 1)


def _product(
    a: tuple[Tensor, Tensor], codes: Tensor, scales: Tensor, bias: Tensor | None, dtype: Any, groups: Any
) -> Tensor:
    """a times the weights, of its group for each row. groups: None, or offsets and whether they take in all rows."""
    if groups is not None:
        offsets, all_rows = groups
        new = a[0].new_empty if all_rows else a[0].new_zeros
        out = new(a[0].shape[0], codes.shape[1], dtype=dtype)
        return grouped_gemm(*a, codes, scales, offsets=offsets, out=out)
    if not _has_row_scales(codes, scales):
        return gemm(*a, codes, scales, bias=None if bias is None else bias.float(), out_dtype=dtype)
    product = gemm(*a, codes, scales, out_dtype=torch.float32)  # with scales of rows d is the product alone
    return (product if bias is None else product + bias.float()).to(dtype)


Columns = tuple[Tensor, ...]  # codes and scales, and of groups where they begin


def _rows_and_columns(
    x: Tensor, offsets: Tensor | None, power_of_two_scales: bool, wants_rows: bool, wants_columns: bool
) -> tuple[Any, Columns]:
    """Codes and scales of rows and of columns, or None for those that are not wanted, from one pass over x."""
    if not wants_columns:
        return (quantize_rows(x, power_of_two_scales=power_of_two_scales) if wants_rows else None), (None, None)
    results = quantize_columns(x, offsets, rows=wants_rows, power_of_two_scales=power_of_two_scales)
    return (results[-2:], results[:-2]) if wants_rows else (None, results)


class _Linear(torch.autograd.Function):
    """Inputs are rows; what does not require grad has no gradient, and nothing is kept for it."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        quantized: QuantizedWeight,
        main_grad: Tensor | None,
        groups: tuple[Tensor, bool] | None,
        power_of_two_scales: bool,
    ) -> Tensor:
        codes, scales, transposed = quantized
        ctx.power_of_two_scales, ctx.x_dtype = power_of_two_scales, x.dtype
        ctx.weight_dtype = None if weight is None else weight.dtype
        ctx.bias_dtype = None if bias is None else bias.dtype
        needs_x, needs_weight = ctx.needs_input_grad[:2]
        offsets, ctx.all_rows = (None, True) if groups is None else groups
        # Codes of columns take half the memory that x would.
        rows, columns = _rows_and_columns(x, offsets, power_of_two_scales, True, needs_weight)
        kept = (None, None) if not needs_x else (codes if transposed is None else transposed, scales)
        ctx.is_transposed = transposed is not None
        ctx.save_for_backward(*kept, *columns[:2], main_grad, offsets)
        return _product(rows, codes, scales, bias, x.dtype, groups)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        codes, scales, *columns, main_grad, offsets = ctx.saved_tensors
        groups = None if offsets is None else (offsets, ctx.all_rows)
        dx = dw = db = None
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        rows, columns_of_dy = _rows_and_columns(dy, offsets, ctx.power_of_two_scales, needs_x, needs_weight)
        if needs_x:
            if not ctx.is_transposed:
                if _has_row_scales(codes, scales):
                    raise Unsupported(
                        "linear: weights with a scale for each row have no gradient of data, whose sums are over these "
                        "rows; dequantize them and quantise blocks"
                    )
                codes = _transpose(codes)
            dx = _product(rows, codes, scales.mT, None, ctx.x_dtype, groups)
        if needs_weight:
            dw = _weight_grad(columns_of_dy, columns, main_grad, groups is not None, ctx.weight_dtype)
        if needs_bias:
            db = dy.sum(0, dtype=torch.float32).to(ctx.bias_dtype)
        return dx, dw, db, None, None, None, None


def _weight_grad(
    columns_of_dy: Columns, columns_of_x: Columns, main_grad: Tensor | None, grouped: bool, dtype: Any
) -> Tensor | None:
    """The gradient in `dtype`, or None: it was added to main_grad."""
    codes, scales, *begins = columns_of_dy
    operands, adds = (codes, scales, *columns_of_x), main_grad is not None
    made = torch.bfloat16 if dtype == torch.bfloat16 else torch.float32
    if grouped:
        groups = begins[0].shape[0] - 1
        out = main_grad if adds else codes.new_empty(groups, codes.shape[0], columns_of_x[0].shape[0], dtype=made)
        dw = k_grouped_gemm(*operands, offsets=begins[0], out=out, accumulate=adds)
    elif adds:
        dw = gemm(*operands, out=main_grad, accumulate=True)
    else:
        dw = gemm(*operands, out_dtype=made)
    return None if adds else dw.to(dtype)


def _layer(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    quantized: QuantizedWeight,
    groups: Any,
    power_of_two_scales: bool,
) -> Tensor:
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    main_grad = getattr(weight, "main_grad", None)
    rows = x.reshape(-1, x.shape[-1])
    y = _Linear.apply(rows, weight, bias, quantized, main_grad, groups, power_of_two_scales)
    return y.view(*x.shape[:-1], y.shape[-1])


def linear(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None = None,
    *,
    power_of_two_scales: bool = False,
    quantized: QuantizedWeight | None = None,
) -> Tensor:
    """torch.nn.functional.linear in FP8, with gradients. Returns [..., N] of x's dtype.

    x [..., K], weight [N, K] and bias [N]: bfloat16, float16 or float32; N and K are multiples of 16. `quantized`: what
    quantize_weight made of this weight, which is else done in each call. Without a weight the gradient is of x alone.

    Where weight.main_grad is a float32 [N, K], its gradient is added to that, and weight.grad stays None. Gradients of
    gradients raise finegemm.Unsupported.
    """
    if quantized is None:
        quantized = quantize_weight(weight, power_of_two_scales=power_of_two_scales, transposed=x.requires_grad)
    return _layer(x, weight, bias, quantized, None, power_of_two_scales)


def grouped_linear(
    x: Tensor,
    weight: Tensor | None,
    offsets: Integers,
    *,
    all_rows: bool = False,
    power_of_two_scales: bool = False,
    quantized: QuantizedWeight | None = None,
) -> Tensor:
    """`linear` for groups of rows with weights of their own, as mixtures of experts have. Returns [M, N] of x's dtype.

    x [M, K], weight [G, N, K]; group g has the rows offsets[g] up to offsets[g + 1], of any number. offsets [G + 1]:
    integers on x's device, which nothing waits for, or a list. Rows of no group become zero, and so does their
    gradient; `all_rows` says that there are none, which saves a pass over both. A group without rows has a gradient of
    zeros. The rest as in `linear`; main_grad is [G, N, K].
    """
    if quantized is None:
        quantized = quantize_weight(weight, power_of_two_scales=power_of_two_scales, transposed=x.requires_grad)
    if not isinstance(offsets, torch.Tensor):
        offsets = torch.tensor(offsets, device=x.device)
    return _layer(x, weight, None, quantized, (offsets.to(torch.int32), all_rows), power_of_two_scales)
