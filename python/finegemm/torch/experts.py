"""A layer of experts as an operator of torch."""

from typing import Any

import torch

import finegemm
from finegemm import FourBitWeights

from .four_bit import parts, whole
from .functions import call, check_grad
from .operators import Tensor, define_new, define_out

# Options of the operators, in the order in which they take them, with their types in a schema.
_OPTIONS = {
    "first": "int",
    "gate_limit": "float",
    "gate_alpha": "float",
    "up_offset": "float",
    "f32_between": "bool",
    "power_of_two_scales": "bool",
    "weights_first": "bool",
    "fused": "bool?",
    "rows": "SymInt",
    "expected_m": "SymInt",
    "num_sms": "SymInt",
    "pdl": "bool",
}
_OPERANDS = "Tensor x, Tensor ids, Tensor gate_up, Tensor gate_up_scales, Tensor down, Tensor down_scales"
_LISTED = "Tensor? gate_up_bias, Tensor? down_bias, " + ", ".join(f"{kind} {name}" for name, kind in _OPTIONS.items())


def moe_new(x: Tensor, *others: Any) -> Tensor:
    out = _new(x)
    moe_out(x, *others[:6], out, *others[6:])
    return out


def moe_out(x: Tensor, *others: Any) -> None:
    """others: ids, weights of experts, weights of choices, out, biases and the options."""
    operands, options = others[:7], dict(zip(_OPTIONS, others[9:], strict=True))
    finegemm.moe(x, *operands, gate_up_bias=others[7], down_bias=others[8], **options)


def four_bit_moe_new(x: Tensor, *others: Any) -> Tensor:
    out = _new(x)
    four_bit_moe_out(x, *others[:14], out, *others[14:])
    return out


def four_bit_moe_out(x: Tensor, *others: Any) -> None:
    """others: ids, the parts of both weights, weights of choices, out, biases and the options."""
    ids, gate_up, down, weights, out = others[0], whole(*others[1:7]), whole(*others[7:13]), others[13], others[14]
    options = dict(zip(_OPTIONS, others[17:], strict=True))
    biases = {"gate_up_bias": others[15], "down_bias": others[16]}
    finegemm.moe(x, ids, gate_up, None, down, None, weights, out, **biases, **options)


def _new(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape, dtype=torch.bfloat16)


define_new(moe_new, f"({_OPERANDS}, Tensor? weights, {_LISTED}) -> Tensor", _new)
define_out(moe_out, f"({_OPERANDS}, Tensor? weights, Tensor(a!) out, {_LISTED})")
_OF_FOUR_BITS = "Tensor x, Tensor ids, " + ", ".join(
    f"Tensor {x}, Tensor? {x}_fp8, Tensor? {x}_scales, str {x}_format, SymInt {x}_rows, SymInt {x}_cols"
    for x in ("gate_up", "down")
)
define_new(four_bit_moe_new, f"({_OF_FOUR_BITS}, Tensor? weights, {_LISTED}) -> Tensor", _new)
define_out(four_bit_moe_out, f"({_OF_FOUR_BITS}, Tensor? weights, Tensor(a!) out, {_LISTED})")


def moe(
    x: Tensor,
    ids: Tensor,
    gate_up: "Tensor | FourBitWeights[Any]",
    gate_up_scales: Tensor | None,
    down: "Tensor | FourBitWeights[Any]",
    down_scales: Tensor | None,
    weights: Tensor | None = None,
    *,
    out: Tensor | None = None,
    gate_up_bias: Tensor | None = None,
    down_bias: Tensor | None = None,
    first: int = 0,
    gate_limit: float = 0.0,
    gate_alpha: float = 1.0,
    up_offset: float = 0.0,
    f32_between: bool = False,
    power_of_two_scales: bool = False,
    weights_first: bool = False,
    fused: bool | None = None,
    rows: int = 0,
    expected_m: int = 0,
    num_sms: int = 0,
    pdl: bool = False,
) -> Tensor:
    """finegemm.moe as an operator of torch: x [..., H] of torch.bfloat16, ids and weights [..., k].

    Returns x's shape, of torch.bfloat16, or `out`. Backward through a result raises finegemm.Unsupported. The rest as
    in finegemm.moe.
    """
    tokens, choices = x.reshape(-1, x.shape[-1]), ids.reshape(-1, ids.shape[-1])
    of_choices = None if weights is None else weights.reshape(choices.shape)
    new, write = moe_new, moe_out
    operands: tuple[Any, ...] = (tokens, choices, gate_up, gate_up_scales, down, down_scales, of_choices)
    if isinstance(gate_up, FourBitWeights) and isinstance(down, FourBitWeights):
        new, write = four_bit_moe_new, four_bit_moe_out
        operands = (tokens, choices, *parts(gate_up), *parts(down), of_choices)
    activation = (gate_limit, gate_alpha, up_offset, f32_between, power_of_two_scales, weights_first)
    options = (gate_up_bias, down_bias, first, *activation, fused, rows, expected_m, num_sms, pdl)
    if out is None:
        return call(new, *operands, *options).view(x.shape)
    check_grad(out, *(t for t in (*operands, gate_up_bias, down_bias) if isinstance(t, torch.Tensor)))
    call(write, *operands, out.view(tokens.shape), *options)
    return out
