"""Products with weights of 4 bits as operators of torch."""

from typing import Any

import torch

import finegemm
from finegemm import FourBitWeights
from finegemm.errors import InvalidArgument

from .functions import Integers, Numerics, call, check_grad, int32
from .operators import Tensor, define_new, define_out

_WEIGHTS = "Tensor data, Tensor? fp8, Tensor? fp8_scales, str format, SymInt rows, SymInt cols"
_OPTIONS = "SymInt alignment, SymInt expected_m, str numerics, SymInt num_sms, bool pdl"
_GROUPS = "Tensor? layout, str form"


def parts(b: FourBitWeights[Any]) -> tuple[Any, ...]:
    """As operators take them."""
    return b.data, b.fp8, b.fp8_scales, b.format, b.rows, b.cols


def whole(data: Tensor, fp8: Tensor | None, scales: Tensor | None, format: str, rows: int, cols: int) -> Any:
    return FourBitWeights(data, format, rows, cols, fp8, scales)


def four_bit_gemm_new(a: Tensor, sfa: Tensor, *others: Any) -> Tensor:
    out = _new(a, sfa, *others)
    four_bit_gemm_out(a, sfa, *others[:6], out, *others[6:])
    return out


def four_bit_gemm_out(a: Tensor, sfa: Tensor, *others: Any) -> None:
    """others: weights, out, the rows of groups and the options. `form`: the name of the argument that `layout` is."""
    weights, out, layout, form, options = others[:6], others[6], others[7], others[8], others[9:]
    names = ("alignment", "expected_m", "numerics", "num_sms", "pdl")
    keywords = dict(zip(names, options, strict=True)) | ({} if layout is None else {form: layout})
    finegemm.four_bit_gemm(a, sfa, whole(*weights), out, **keywords)


def _new(a: Tensor, sfa: Tensor, *others: Any) -> Tensor:
    return a.new_empty(*a.shape[:-1], others[4], dtype=torch.bfloat16)


define_new(four_bit_gemm_new, f"(Tensor a, Tensor sfa, {_WEIGHTS}, {_GROUPS}, {_OPTIONS}) -> Tensor", _new)
define_out(four_bit_gemm_out, f"(Tensor a, Tensor sfa, {_WEIGHTS}, Tensor(a!) out, {_GROUPS}, {_OPTIONS})")


def four_bit_gemm(
    a: Tensor,
    sfa: Tensor,
    b: FourBitWeights[Any],
    *,
    out: Tensor | None = None,
    offsets: Integers | None = None,
    m_indices: Integers | None = None,
    prefix_sums: Integers | None = None,
    masked_m: Integers | None = None,
    alignment: int = 128,
    expected_m: int = 0,
    numerics: Numerics = "fast",
    num_sms: int = 0,
    pdl: bool = False,
) -> Tensor:
    """finegemm.four_bit_gemm as an operator of torch. Returns a's shape, with N for K, of torch.bfloat16, or `out`.

    What says which rows are whose may be integers of any type, or a list. Rows of no group are not written, so a new
    result holds there whatever its memory held. Backward through a result raises finegemm.Unsupported. The rest as in
    finegemm.four_bit_gemm.
    """
    layouts = {"offsets": offsets, "m_indices": m_indices, "prefix_sums": prefix_sums, "masked_m": masked_m}
    given = [name for name, x in layouts.items() if x is not None]
    if len(given) > 1:
        raise InvalidArgument(f"{' and '.join(given)}: are given, rows belong to groups by one of them; pass one")
    layout = None if not given else int32(layouts[given[0]], a.device)
    groups = (layout, given[0] if given else "whole")
    options = (alignment, expected_m, numerics, num_sms, pdl)
    if out is None:
        return call(four_bit_gemm_new, a, sfa, *parts(b), *groups, *options)
    check_grad(out, a, sfa)
    call(four_bit_gemm_out, a, sfa, *parts(b), out, *groups, *options)
    return out
