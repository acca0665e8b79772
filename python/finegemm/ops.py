"""The operations, as declarations of native functions. Checks are the library's: what it refuses, it explains."""

import json
from collections.abc import Sequence
from typing import Any, Literal

from finegemm import _native
from finegemm.calls import T, Tensor, native
from finegemm.context import Context


@native
def gemm(
    a: T,
    sfa: Tensor | None,
    b: Tensor,
    sfb: Tensor | None,
    d: T | None = None,
    *,
    numerics: Literal["fast", "exact", "hopper"] = "fast",
    config: str | None = None,
    check_values: bool | None = None,
    batch_invariant: bool | None = None,
    num_sms: int = 0,
    pdl: bool = False,
    prefetch_weights: bool = False,
    accumulate: bool = False,
    # What becomes of the product; tools/gen_fields.py writes them.
    alpha: float = 1.0,
    beta: float | None = None,
    c: Tensor | None = None,
    bias: Tensor | None = None,
    head_left: int = 0,
    head_gap: int = 0,
    head_right: int = 0,
    sfd: Tensor | None = None,
    row_weights: Tensor | None = None,
    gate_limit: float | None = None,
    gate_alpha: float | None = None,
    up_offset: float = 0.0,
    bf16_between: bool = False,
    power_of_two_sfd: bool = False,
    out_dtype: Literal["bfloat16", "float16", "float32"] | None = None,
    stream: Any = None,
    context: Context | None = None,
) -> T:
    """d[m, n] = sum over k of (a[m, k] * sfa[m, k // 128]) * (b[n, k] * sfb[n // 128, k // 128]). Returns `d`.

    a [M, K], b [N, K]: float8_e4m3fn (or uint8, its bits), one of them also float8_e5m2, or both int8, K contiguous.
    sfa [M, ceil(K/128)] and sfb [ceil(N/128), ceil(K/128)]: float32, any strides; of MX int32 (finegemm.mxfp8). Scales
    of shape [M, 1] or [N, 1] are for each row, [1, 1] for the matrix; with sfb [N, ceil(K/128)] each row of b has its
    own, as gradients of weights need, and d is the product alone, which `accumulate` adds to a d of float32. d [M, N]:
    bfloat16 (or uint16, its bits), float16 or float32, N contiguous; a new array of a's library when None, bfloat16 if
    `out_dtype` says nothing else. a and b may be bfloat16 or float16 without scales: sfa and sfb are None then, K is a
    multiple of 8, d is of their type or float32, and either may have M or N contiguous.
    d is alpha times that, plus beta * c and bias, if they are given: computed in float32 and rounded once. c [M, N] has
    the dtype of d and may be d itself; beta is 1 without a value, and with 0 c is not read. bias [N]: float32. Or d
    [M, N + heads * head_gap] is in heads: each has `head_left` columns of the product, `head_gap` that are not written,
    and `head_right` of the product.

    Or with `sfd` [M, N/256], float32, which is written, d is the SwiGLU of the product, quantised: [M, N/2]
    float8_e4m3fn, of gates g, the first half of N, and ups u g * sigmoid(gate_alpha * g) * (u + up_offset) *
    row_weights[m]; `gate_limit` clamps g from above and u on both sides. `bf16_between`: both are rounded to bfloat16.

    Autograd does not see the call: the result is detached, and a d that requires grad is refused unless grad mode is
    off. On a GPU the work is queued on the arrays' current stream, or on `stream`. `numerics` is of the CPU, `config`
    (a kernel by name, see explain) of the GPU. `check_values` looks for bad scales first. With `batch_invariant` the
    bits of a row do not depend on other rows. `num_sms`: most SMs to use; 0: all. `pdl`: the kernel is set up while the
    one before it in the stream ends; with `prefetch_weights` it loads the first of b before that, too: only where no
    kernel that may still be running in this stream writes to b; with `pdl` more than the last one may be.
    """


@native
def grouped_gemm(
    a: T,
    sfa: Tensor | None,
    b: Tensor,
    sfb: Tensor | None,
    d: T | None = None,
    *,
    offsets: Tensor | None = None,
    m_indices: Tensor | None = None,
    prefix_sums: Tensor | None = None,
    masked_m: Tensor | None = None,
    heads: bool = False,
    alignment: int = 128,
    expected_m: int = 0,
    # What becomes of the product; tools/gen_fields.py writes them.
    alpha: float = 1.0,
    beta: float | None = None,
    c: Tensor | None = None,
    bias: Tensor | None = None,
    sfd: Tensor | None = None,
    row_weights: Tensor | None = None,
    gate_limit: float | None = None,
    gate_alpha: float | None = None,
    up_offset: float = 0.0,
    bf16_between: bool = False,
    power_of_two_sfd: bool = False,
    rows_of_a: Tensor | None = None,
    rows_of_d: Tensor | None = None,
    factors_of_rows: Tensor | None = None,
    numerics: Literal["fast", "exact", "hopper"] = "fast",
    config: str | None = None,
    check_values: bool | None = None,
    num_sms: int = 0,
    pdl: bool = False,
    stream: Any = None,
    context: Context | None = None,
) -> T:
    """gemm for groups of rows, each with weights of its own, as mixtures of experts have. Returns `d`.

    b [G, N, K] and sfb [G, ceil(N/128), ceil(K/128)], or [G, N, ceil(K/128)] with scales for each row, have the
    groups' weights. a [M, K], sfa [M, ceil(K/128)] and d [M, N] have the rows of all groups. One of four arrays of
    int32, on the device of d, says which rows are whose:

    `offsets` [G + 1]: group g has the rows offsets[g] up to offsets[g + 1].
    `m_indices` [M]: the group of each row, -1 for padding, which becomes zero in d. Groups begin at multiples of
    `alignment`, 64 or more, and have their padding behind their rows.
    `prefix_sums` [G]: group g ends at row prefix_sums[g] and begins at the next multiple of `alignment` after the one
    before it.
    `masked_m` [G]: a, sfa and d have a further first dimension of G; the first masked_m[g] rows of each are used.
    Or without an array `heads`: a [M, G, K], sfa and d have the groups in their second dimension, and all M rows each.
    Rows that belong to no group are not written (those of m_indices are). A GPU reads the numbers when the kernel runs;
    ones that break the rules lead to no row outside of the arrays, and `check_values` names them. `expected_m`: rows of
    a group to choose the kernel by, where M / G, of m_indices and prefix_sums less half of `alignment`, says little. c
    has the shape of d, all groups share the bias, sfd and row_weights have the rows of d. With `rows_of_a`, int32 [M],
    rows of the product are of these rows of a, with `rows_of_d` stored as these of d (-1: zeros, nowhere). b of
    bfloat16 or float16 may have N contiguous, a M with `masked_m` or `heads`. The rest as in gemm; results are always
    batch-invariant.
    """


@native
def k_grouped_gemm(
    a: T,
    sfa: Tensor | None,
    b: Tensor,
    sfb: Tensor | None,
    d: T | None = None,
    *,
    offsets: Tensor | Sequence[int] | None = None,
    sizes: Tensor | Sequence[int] | None = None,
    accumulate: bool = False,
    numerics: Literal["fast", "exact", "hopper"] = "fast",
    config: str | None = None,
    check_values: bool | None = None,
    num_sms: int = 0,
    pdl: bool = False,
    stream: Any = None,
    context: Context | None = None,
) -> T:
    """gemm for groups that have each a part of K and a d of its own, as gradients of experts' weights. Returns `d`.

    a [M, K], b [N, K], sfa [M, K/128] and sfb [N, K/128] have the k of all groups side by side. One of two says which k
    is whose, in multiples of 128: `offsets` [G + 1], group g has the k from offsets[g] up to offsets[g + 1]; or `sizes`
    [G], group g has sizes[g], and all together K. d [G, M, N]: float32, bfloat16 or float16 (nothing is added to the
    last two); a new array of float32, of a's library, when None. Of bfloat16 or float16 both a and b may have M and N
    contiguous, as the transposes of [K, M] and [K, N].

    With one dimension a and b have the groups one behind the other: a [M * K] is first [M, k_0], then [M, k_1] and so
    on, row-major, and b [N * K] the same with N. The scales stay as they are, and tell M, N and K; without scales K is
    where the last group ends. Offsets and sizes are on the CPU then.

    `offsets` is an array of int32 on the device of d, or on the CPU, or a list of ints; `sizes` are on the CPU, or a
    list. A GPU reads its own offsets when the kernel runs, nothing waits for them; ones that break the rules lead to
    nothing outside of the arrays, and `check_values` names them. Those on the CPU are checked here, and a CUDA graph
    keeps them. With `accumulate` the products are added to d; a group without k then leaves its d as it is, and else
    makes it zero. The rest as in gemm; results are always batch-invariant.
    """


@native
def einsum(
    equation: Literal["bhr,hdr->bhd", "bhd,hdr->bhr", "bmk,bnk->mn"],
    a: T,
    b: Tensor,
    d: T | None = None,
    *,
    sfa: Tensor | None = None,
    sfb: Tensor | None = None,
    accumulate: bool = False,
    alpha: float = 1.0,
    beta: float | None = None,
    c: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: Literal["bfloat16", "float16", "float32"] | None = None,
    numerics: Literal["fast", "exact", "hopper"] = "fast",
    config: str | None = None,
    check_values: bool | None = None,
    batch_invariant: bool | None = None,
    num_sms: int = 0,
    pdl: bool = False,
    stream: Any = None,
    context: Context | None = None,
) -> T:
    """The product of an equation of three dimensions, of three that there are. Returns `d`.

    "bhr,hdr->bhd": d[b, h, :] = b[h] a[b, h, :], a product for each head; a [B, H, R], b [H, D, R].
    "bhd,hdr->bhr": d[b, h, :] = b[h].T a[b, h, :], likewise; a [B, H, D], b [H, D, R].
    "bmk,bnk->mn": d = the sum over b of a[b] b[b].T; a [B, M, K], b [B, N, K].

    a and b: bfloat16 or float16; any strides, the last one 1, so that weights may be slices of wider tensors. For the
    first equation also float8_e4m3fn, with sfa [B, H, ceil(R/128)] and sfb [H, ceil(D/128), ceil(R/128)], float32 of
    any strides, as quantize_rows and quantize_blocks make them of each head. d: of the type of a or float32 (of
    float8_e4m3fn: bfloat16, float16 or float32); a new array of a's library, of `out_dtype`, when None.

    H is at most 4096, B any number; the last extent of d a multiple of 8, as the one that is summed over (16 of
    float8_e4m3fn). The first two never split what they sum over: one sum in ascending order for each element. The third
    cuts B and K, as one range, into pieces and adds their sums in order, the same bits each time; only it takes
    `accumulate`: d, of float32, is added to. alpha, beta, c, of the shape of d, and bias, for each of d's last extent,
    are for the first two. The rest as in gemm. InvalidArgument for any other equation.
    """


@native
def scale_layout(
    sf: T,
    out: T | None = None,
    *,
    packed: bool = False,
    rows: int | None = None,
    power_of_two_scales: bool = False,
    prefix_sums: Tensor | None = None,
    k_sizes: Tensor | None = None,
    k_prefix_sums: Tensor | None = None,
    alignment: int = 128,
    scale_k: int = 128,
    stream: Any = None,
    context: Context | None = None,
) -> T:
    """Scales in another layout: other strides, packed exponents (UE8M0), or back. Returns `out`.

    sf [R, K] or [G, R, K]: float32, or int32 that packs four exponents, the first column's in the lowest byte; any
    strides. `out`: either format, any strides; a new array of sf's library when None, of int32 if `packed`, with
    rows contiguous and columns at multiples of 16 bytes, as TMA asks for. `rows`: of a new `out`, where sf has a row
    for each 128 of them, which is repeated.

    Packing keeps the exponents alone, which of powers of two is all; missing columns of the last word are 0.
    `power_of_two_scales` rounds scales up first, from 2^-126 for 0 to 2^127 for infinity and NaN.

    One of three arrays of int32 on the device of `out` may say which scales have groups. `prefix_sums` [G]: group g
    ends at row prefix_sums[g] and begins at the next multiple of `alignment` after the one before; rows of no group
    become 0. `k_sizes` [G]: group g has k_sizes[g] k, for each `scale_k` of which sf has a column, and is packed into
    words of its own; `k_prefix_sums` [G]: likewise, by where groups end. A new `out` then has as many columns as there
    may be, those behind the last group 0. Numbers that break the rules lead to nothing outside of the arrays.
    """


def explain(
    m: int,
    n: int,
    k: int,
    device: str | None = None,
    *,
    plan_table: str | None = None,
    # Fields of a product; tools/gen_fields.py writes them.
    dtype: Literal["float8_e4m3fn", "bfloat16", "float16", "float8_e5m2", "int8"] | None = None,
    dtype_of_b: Literal["float8_e4m3fn", "bfloat16", "float16", "float8_e5m2", "int8"] | None = None,
    row_b_scales: bool = False,
    a_mx: bool = False,
    b_mx: bool = False,
    out_dtype: Literal["bfloat16", "float16", "float32"] | None = None,
    groups: int | None = None,
    expected_m: int = 0,
    alignment: int = 0,
    k_groups: int | None = None,
    summed: int | None = None,
    accumulate: bool = False,
    affine: bool = False,
    head_gaps: bool = False,
    gated: bool = False,
    indexed: bool = False,
    num_sms: int = 0,
    batch_invariant: bool = False,
    a_mn_major: bool = False,
    b_mn_major: bool = False,
) -> dict[str, Any]:
    """Which kernel a GPU takes for a shape, and why not another one.

    `device`: a known GPU by name ("h200", "h100", ...); None: the one of this machine, else the h200. `plan_table`: a
    file of `finegemm tune`; without one that of FINEGEMM_PLAN_TABLE, if `device` is None.

    Fields of the product, which `groups` makes one of grouped_gemm and `k_groups` one of k_grouped_gemm:

    `dtype`: Of A and B; without it e4m3, which has scales, as e5m2 and i8 have.
    `dtype_of_b`: Of B, where one of A and B is e4m3 and the other e5m2.
    `row_b_scales`: Scales for each row of B, not for 128x128 blocks, as gradients of weights need.
    `a_mx`: Scales of A are exponents, for each row and 32 of K (MX); b_mx, too.
    `b_mx`: Scales of B are exponents, for each row and 32 of K (MX).
    `out_dtype`: Of D; without it f32 for groups of K, else as A and B, for e4m3 bf16.
    `groups`: Groups of rows, which have M together and a B each.
    `expected_m`: Rows of a group to choose by; M over the groups without it.
    `alignment`: Of the rows at which groups begin, as indices and prefix sums have it.
    `k_groups`: Groups of K, which have K together and a D each.
    `summed`: Matrices of A and of B, whose products are added up; K is that of all together.
    `accumulate`: D, of f32, is added to, not overwritten.
    `affine`: D is alpha A B + beta C + bias, with any of the three.
    `head_gaps`: D is in heads, each with a gap that is not written.
    `gated`: D is the SwiGLU of the halves of N, in e4m3 with scales.
    `indexed`: Rows of A and of D are found by numbers, or have factors.
    `num_sms`: SMs that may be used at most; 0: all.
    `batch_invariant`: The bits of a row of D may not depend on M.
    `a_mn_major`: A is stored as [K, M], not [M, K]; of bf16 or f16.
    `b_mn_major`: B is stored as [K, N], not [N, K]; of bf16 or f16.
    """
    plan: dict[str, Any] = json.loads(_native.explain(locals()))
    return plan
