"""A layer of experts, as declarations of native functions."""

import json
from typing import Any, Literal

from finegemm import _native
from finegemm.calls import T, Tensor, native
from finegemm.context import Context
from finegemm.four_bit import FourBitWeights


@native
def moe(
    x: T,
    ids: Tensor,
    gate_up: Tensor | FourBitWeights[Any],
    gate_up_scales: Tensor | None,
    down: Tensor | FourBitWeights[Any],
    down_scales: Tensor | None,
    weights: Tensor | None = None,
    out: T | None = None,
    *,
    x_scales: Tensor | None = None,
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
    workspace: Tensor | None = None,
    numerics: Literal["fast", "exact", "hopper"] = "fast",
    num_sms: int = 0,
    pdl: bool = False,
    check_values: bool | None = None,
    stream: Any = None,
    context: Context | None = None,
) -> T:
    """out[t] = the sum over choices c of weights[t, c] * down[e] @ SwiGLU(gate_up[e] @ x[t]), e = ids[t, c].

    With biases weights[t, c] * (down[e] @ SwiGLU(gate_up[e] @ x[t] + gate_up_bias[e]) + down_bias[e]).

    x [T, H]: bfloat16 (or uint16, its bits), or e4m3 with x_scales [T, ceil(H/128)]. ids [T, k]: int32 or int64, k of 1
    to 16; experts here have those from `first` to before first + E, others are left out. weights [T, k]: float32; ones
    when None. gate_up [E, 2 * I, H]: e4m3, the rows of gates above those of ups, down [E, H, I]; their scales are those
    of 128x128 blocks, as quantize_weights makes them. Or both are FourBitWeights, and their scales None. H and I are
    multiples of 16. Returns `out` [T, H]: bfloat16, a new one of x's library when None.

    It is route, permute_quantize, grouped_gemm, swiglu_quantize unless that is `fused`, grouped_gemm and combine, one
    behind the other, and has their bits; a token's depend on that token alone. gate_limit, gate_alpha and up_offset: as
    of swiglu_quantize. `fused`: the activation is part of the first product's launch, for which I is a multiple of 128,
    or has its own; None: whichever is expected to be faster, with the same bits. `f32_between`, which is fused, rounds
    nothing to bfloat16 between the products. `weights_first`: weights multiply the activation, before it is rounded and
    quantised, and not rows of the second product.

    gate_up_bias [E, 2 * I] and down_bias [E, H]: float32 or bfloat16, both or neither. The former is added in float32
    before the clamps; the activation has a launch of its own then.

    Weights of 4 bits, whose activation has a launch of its own, give the bits of their FP8; with that beside them
    (with_fp8) each product takes what is expected to be faster.

    rows: that there is memory for, 0: T * k, which is always enough; choices without a row are dropped. expected_m: of
    an expert, to choose kernels by. workspace: uint8 [n], n of moe_workspace_bytes; when None the library takes memory,
    in the order of the stream. Nothing waits for the GPU: a CUDA graph may capture the call, and rows that no choice
    has take no time. pdl: of the first launch; those behind it overlap in any case. check_values looks for more choices
    than rows, and at scales of weights. Autograd does not see the call. InvalidArgument for what breaks a rule.
    """


def explain_moe(
    tokens: int,
    choices: int,
    hidden: int,
    intermediate: int,
    experts: int,
    *,
    rows: int = 0,
    expected_m: int = 0,
    num_sms: int = 0,
    f32_between: bool = False,
    fused: bool | None = None,
    four_bit: str | None = None,
    four_bit_alone: bool = False,
    biased: bool = False,
    device: str | None = None,
) -> dict[str, Any]:
    """Of which launches a GPU makes moe, what each takes, and why. `device`: as in explain.

    four_bit: the format of weights of 4 bits, four_bit_alone: they have no FP8 beside them. biased: there are biases.

    Returns a dict with `launches`, each with its call, `kernel`, predicted `us` and `bytes`, and of products the `line`
    that explains them; `us`, their sum; `fused`, `why`, and `workspace_bytes`.
    """
    told: dict[str, Any] = json.loads(_native.explain_moe(locals()))
    return told


def moe_workspace_bytes(
    tokens: int,
    choices: int,
    hidden: int,
    intermediate: int,
    experts: int,
    *,
    rows: int = 0,
    expected_m: int = 0,
    num_sms: int = 0,
    f32_between: bool = False,
    fused: bool | None = None,
) -> int:
    """Memory that moe takes for such a call, in bytes, whichever way it computes it."""
    return _native.moe_workspace_bytes(locals())
