"""Routing of tokens to experts, as declarations of native functions, and the layouts of dispatchers."""

from typing import Any, Literal, NamedTuple

from finegemm.calls import T, Tensor, native
from finegemm.context import Context
from finegemm.errors import InvalidArgument


@native
def route(
    ids: T,
    experts: int,
    inverse: T | None = None,
    numbers: T | None = None,
    permutation: T | None = None,
    *,
    form: Literal["offsets", "m_indices", "prefix_sums", "masked_m"] = "prefix_sums",
    first: int = 0,
    rows: int | None = None,
    alignment: int = 128,
    check_values: bool | None = None,
    pdl: bool = False,
    stream: Any = None,
    context: Context | None = None,
) -> tuple[T, T, T]:
    """Gives each choice of a token a row of its expert. Returns (inverse, numbers, permutation), all int32.

    ids [T, k]: int32 or int64, columns contiguous, k of 1 to 16. The experts here have the ids from `first` to before
    first + experts; other ids, -1 for one, are dropped. Rows of an expert lie together, in the order of tokens and of a
    token's choices, so that the result depends on the ids alone.

    `numbers` are those that grouped_gemm takes by the name of `form`: offsets [E + 1], m_indices [rows], prefix_sums
    [E] or masked_m [E]. Groups of m_indices and prefix_sums begin at multiples of `alignment`. inverse [T, k]: the row
    of each choice, -1 where it has none; of masked groups g * rows + its row of group g. permutation [rows], of masked
    groups [E, rows]: token * k + choice of each row, -1 for padding; behind the rows of a masked group nothing is
    written.

    `rows`: that there are, of masked groups for each. Without it as many as all choices can take, of masked groups T.
    What does not fit is dropped, and numbers end with the rows; `check_values` raises instead, where it may wait for
    the GPU. One launch, which nothing waits for: a CUDA graph may capture it at a capacity of rows.
    """


@native
def permute_quantize(
    x: T,
    inverse: Tensor,
    q: T | None = None,
    scales: T | None = None,
    *,
    x_scales: Tensor | None = None,
    rows: int | None = None,
    groups: int | None = None,
    power_of_two_scales: bool = False,
    check_values: bool | None = None,
    num_sms: int = 0,
    pdl: bool = False,
    stream: Any = None,
    context: Context | None = None,
) -> tuple[T, T]:
    """Puts each token's row where its experts have theirs, quantised on the way. Returns (q, scales).

    x [T, H]: bfloat16 (or uint16, its bits), which becomes what quantize_rows makes of it where q is float8_e4m3fn (or
    uint8, its bits); or of the type of q, which is copied: e4m3 with x_scales [T, ceil(H/128)], float32 of any strides;
    bfloat16 or float16, which have no scales: `scales` is None then. inverse [T, k]: what route returns. A token is
    read once, and not at all if it has no row.

    q [R, H], scales [R, ceil(H/128)], or [E, R, H] and [E, R, ceil(H/128)] of masked groups; without q new ones of
    e4m3, of `rows` rows and with `groups` of so many groups, scales with rows contiguous. Rows that no token has are
    neither read nor written, so that unused capacity costs nothing.
    """


@native
def combine(
    y: T,
    inverse: Tensor,
    weights: Tensor | None = None,
    out: T | None = None,
    *,
    check_values: bool | None = None,
    num_sms: int = 0,
    pdl: bool = False,
    stream: Any = None,
    context: Context | None = None,
) -> T:
    """out[t] = the sum over choices c of weights[t, c] * y[inverse[t, c]]. Returns `out` [T, H].

    y [R, H], or [E, R, H] of masked groups: bfloat16 (or uint16, its bits). weights [T, k]: float32; ones when None.
    Choices without a row are left out; a token without any becomes zero. Products and sums are FP32, each rounded, in
    the order of choices, so that the bits are the same from call to call; rows that no token has may hold NaN.
    """


class Routed(NamedTuple):
    """Rows of experts as dispatchers deliver them: what grouped_gemm and combine need of their form."""

    form: Literal["prefix_sums", "masked_m"]
    numbers: Any  # int32 [E]: where the rows of each expert end, or how many there are
    inverse: Any  # int32 [T, k], or None where the dispatcher adds up by itself
    rows: int  # of each expert where masked


def from_deepep_normal(
    recv_topk_idx: Any, experts: int, *, alignment: int = 128, rows: int | None = None, **options: Any
) -> Routed:
    """Of what DeepEP's normal dispatch hands over: a row for each token, whose choices are not sorted yet.

    recv_topk_idx [T, k]: int64 (or int32), ids of local experts from 0 on, -1 for those of other ranks. The received
    tokens, [T, H], of bfloat16 or as (e4m3 [T, H], scales [T, H/128]), go to permute_quantize with `inverse`, and
    to_deepep gives what DeepEP's combine takes. V2 without expansion delivers the same. finegemm.moe does all of it in
    one call: its ids are recv_topk_idx, its weights recv_topk_weights.
    """
    inverse, numbers, permutation = route(recv_topk_idx, experts, rows=rows, alignment=alignment, **options)
    return Routed("prefix_sums", numbers, inverse, int(permutation.shape[0]))


def from_deepep_low_latency(recv_x: Any, recv_count: Any) -> Routed:
    """Of what DeepEP's low-latency dispatch hands over: rows of experts, sorted already.

    recv_x [E, R, H] of local experts, or (e4m3 [E, R, H], scales [E, R, H/128]), whose scales have rows contiguous;
    recv_count [E]: int32, how many rows of each are used. They are operands of grouped_gemm(masked_m=recv_count) as
    they are; to_deepep gives what DeepEP's combine takes.
    """
    x = recv_x[0] if isinstance(recv_x, tuple) else recv_x
    return Routed("masked_m", recv_count, None, int(x.shape[1]))


def from_deepep_expanded(psum_num_recv_tokens_per_expert: Any, rows: int) -> Routed:
    """Of what DeepEP V2's dispatch hands over with do_expand: a row for each choice, sorted and aligned already.

    psum_num_recv_tokens_per_expert [E]: int32, where the rows of each local expert end; each begins at the next
    multiple of expert_alignment behind the one before. `rows`: of recv_x. They are operands of
    grouped_gemm(prefix_sums=..., alignment=expert_alignment); recv_topk_weights [rows] go to swiglu_quantize as its
    weights, or to the epilogue of the first product, and to_deepep gives what DeepEP's combine takes.
    """
    return Routed("prefix_sums", psum_num_recv_tokens_per_expert, None, rows)


def to_deepep(y: Any, routed: Routed, recv_topk_weights: Any = None, **options: Any) -> Any:
    """What DeepEP's combine takes of the rows that the second product has, y of bfloat16.

    After from_deepep_normal: [T, H], the sum of each token's rows here, weighted by recv_topk_weights [T, k] (ones
    without them), which DeepEP's combine adds to those of other ranks; `options` are those of finegemm.combine. After
    from_deepep_low_latency [E, R, H] and after from_deepep_expanded [rows, H]: y as it is, as DeepEP's combine adds up
    its rows. The former weighs them meanwhile, by topk_weights of its own; rows of the latter have been weighed.
    Raises InvalidArgument if y has other rows, or weights or options are given that nothing would be done with.
    """
    if routed.inverse is not None:
        return combine(y, routed.inverse, recv_topk_weights, **options)
    experts = [int(routed.numbers.shape[0])] if routed.form == "masked_m" else []
    if tuple(y.shape[:-1]) != (*experts, routed.rows):
        wanted = ", ".join(map(str, (*experts, routed.rows, "H")))
        raise InvalidArgument(
            f"y: has shape {list(y.shape)}, must be [{wanted}], as it was delivered; pass D of the second product"
        )
    for name in options if recv_topk_weights is None else ("recv_topk_weights", *options):
        raise InvalidArgument(f"{name}: is given, but DeepEP's combine adds up these rows; leave it out")
    return y
