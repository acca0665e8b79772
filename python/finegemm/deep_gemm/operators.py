"""The products, which are operators of torch too. Settings of the process are read when one runs.

They go to the native functions, past those of finegemm.ops, for `turned`: letters of the operands, a or b, that come
with K before their rows, and so do their scales.
"""

from collections.abc import Sequence
from typing import Any

from finegemm import _native
from finegemm.context import default_handle
from finegemm.errors import FineGemmError, InvalidArgument
from finegemm.torch_module import torch
from finegemm.torch_operators import define

from . import envs, knobs
from .operands import Tensor, as_written, check_k_contiguous, check_source, group_sizes
from .utils.layout import get_mn_major_tma_aligned_tensor

_C_ALIGNMENT = 16  # bytes, of its rows, where a kernel reads it
_K_MULTIPLE = 8  # of bfloat16
_HEAD_MULTIPLE = 8  # of the widths of parts of heads where a kernel leaves the gap


def _refused(
    error: FineGemmError, a: Tensor, b: Tensor, turned: str, layout: str = "", written: str = ""
) -> FineGemmError:
    """What to raise for an error of a native function; `written`: what the caller calls its argument `layout`."""
    for letter in turned if _kind(a) == "fp8" else "":
        check_k_contiguous(letter, a if letter == "a" else b)
    others = {layout: written} if layout else {}
    if layout == "prefix_sums":
        others["expected_m"] = "expected_m_for_psum_layout"
    return as_written(error, **others)


# Each product calls its native function itself, and looks at what no kernel serves once that has refused it: calls that
# are served would pay for another frame, and for a look at their tensors.


def gemm(
    a: Tensor,
    sfa: Tensor | None,
    b: Tensor,
    sfb: Tensor | None,
    d: Tensor,
    c: Tensor | None,
    accumulate: bool,
    alpha: float | None,
    turned: str,
) -> None:
    """d = c + alpha * a times b, or with `accumulate` d + alpha * a times b, rounded once.

    A call that is refused leaves d as it is.
    """
    options, settings = knobs.of_call(d), envs.settings()
    if turned:
        options["turned"] = turned
    if accumulate and alpha is None and d.dtype is torch.float32 and (sfb is None or _has_row_scales(b, sfb, turned)):
        options["accumulate"] = True
    elif accumulate or c is not None:
        options["c"] = d if accumulate else c
    if alpha is not None:
        options["alpha"] = alpha
    handle = default_handle() if settings.context is None else settings.context.handle
    try:
        _native.gemm(handle, None, (a, sfa, b, sfb, d), options)
    except FineGemmError as e:
        if _is_without_kernels(a, b, sfb, d, options):
            return _through_float32(a, sfa, b, sfb, d, d if accumulate else c, alpha, turned)
        if sfa is None and (missing := _missing_k(a, b, turned)):
            x, y = (_with_more_k(of, letter in turned, missing) for letter, of in (("a", a), ("b", b)))
            return gemm(x, None, y, None, d, None if accumulate else c, accumulate, alpha, turned)
        raise _refused(e, a, b, turned) from None
    if settings.prints_configs:
        k = a.shape[0 if "a" in turned else 1]
        fields = _fields(a, b, _has_row_scales(b, sfb, turned), options)
        out_dtype = None if d.dtype == torch.bfloat16 else str(d.dtype).removeprefix("torch.")
        envs.print_config(f"{_kind(a)}_gemm", d.shape[0], d.shape[1], k, out_dtype=out_dtype, **fields)
    return None


def gemm_into_heads(
    a: Tensor, sfa: Tensor, b: Tensor, sfb: Tensor, d: Tensor, head_splits: tuple[int, int, int]
) -> None:
    """The product in the first and the last columns of each head of d, as many as `head_splits` says; those between,
    its second number, are not written."""
    left, gap, right = head_splits
    if d.dtype is not torch.bfloat16 or gap <= 0 or (left | gap | right) % _HEAD_MULTIPLE:
        return _through_copies(a, sfa, b, sfb, d, head_splits)
    options, settings = knobs.of_call(d), envs.settings()
    options["head_left"], options["head_gap"], options["head_right"] = left, gap, right
    handle = default_handle() if settings.context is None else settings.context.handle
    try:
        _native.gemm(handle, None, (a, sfa, b, sfb, d), options)
    except FineGemmError as e:
        if _has_row_scales(b, sfb, ""):
            return _through_copies(a, sfa, b, sfb, d, head_splits)
        _check_heads(b, d, *head_splits)
        raise _refused(e, a, b, "") from None
    if settings.prints_configs:
        fields = _fields(a, b, False, options) | {"head_gaps": True}
        envs.print_config(f"{_kind(a)}_gemm", d.shape[0], b.shape[0], a.shape[1], **fields)
    return None


def _through_copies(
    a: Tensor, sfa: Tensor, b: Tensor, sfb: Tensor, d: Tensor, head_splits: tuple[int, int, int]
) -> None:
    """Heads of widths, types and scales for which no kernel leaves gaps."""
    left, middle, right = head_splits
    _check_heads(b, d, left, middle, right)
    product = torch.empty((d.shape[0], b.shape[0]), dtype=d.dtype, device=d.device)
    gemm(a, sfa, b, sfb, product, None, False, None, "")
    to, of = (x.unflatten(1, (-1, cols)) for x, cols in ((d, left + middle + right), (product, left + right)))
    to[..., :left].copy_(of[..., :left])
    to[..., left + middle :].copy_(of[..., left:])


def _check_heads(b: Tensor, d: Tensor, left: int, middle: int, right: int) -> None:
    rows, heads = b.shape[0], b.shape[0] // max(1, left + right)
    if min(left, middle, right) < 0 or heads * (left + right) != rows:
        raise InvalidArgument(
            f"head_splits: is {(left, middle, right)}, must be three widths, not negative, of which the first and the "
            f"last together divide the {rows} rows of b; pass those of a head"
        )
    if d.shape[-1] != rows + heads * middle:
        raise InvalidArgument(
            f"d: has {d.shape[-1]} columns, must have {rows + heads * middle}, {left + middle + right} for each of "
            f"{heads} heads; pass memory of that shape"
        )


def _has_row_scales(b: Tensor, sfb: Tensor | None, turned: str) -> bool:
    rows = -1 if "b" in turned else -2
    return sfb is not None and bool(sfb.shape[rows] == b.shape[rows])


def _is_without_kernels(a: Tensor, b: Tensor, sfb: Tensor | None, d: Tensor, options: dict[str, Any]) -> bool:
    """Is it a product that may be right, but that no kernel writes with what is added to it, or in the type of d?"""
    turned, c = options.get("turned", ""), options.get("c")
    is_more = c is not None or "alpha" in options
    if a.dtype == torch.bfloat16 and d.dtype == torch.float16:
        return True
    if is_more and _has_row_scales(b, sfb, turned):
        return True
    if c is not None and (c.data_ptr() | c.stride(0) * c.element_size()) % _C_ALIGNMENT != 0:
        return True  # its rows are loaded by TMA
    return is_more and _k_of(a, "a" in turned) == 0


def _k_of(x: Tensor, k_first: bool) -> int:
    return int(x.shape[-2 if k_first else -1])


def _missing_k(a: Tensor, b: Tensor, turned: str) -> int:
    """How much K lacks of the multiple that kernels for bfloat16 take."""
    k = _k_of(a, "a" in turned)
    return -k % _K_MULTIPLE if a.dim() == b.dim() == 2 and k == _k_of(b, "b" in turned) else 0


def _with_more_k(x: Tensor, k_first: bool, more: int) -> Tensor:
    """The matrix and zeros behind its last k: of gradients of weights K is the tokens, any number."""
    return torch.nn.functional.pad(x, (0, 0, 0, more) if k_first else (0, more))


def _is_mn_major(x: Tensor, k_first: bool) -> bool:
    """Is M or N contiguous, of a matrix in bfloat16?"""
    k = -2 if k_first else -1
    return _kind(x) == "bf16" and x.shape[k] > 1 and x.stride(k) != 1


def _through_float32(
    a: Tensor,
    sfa: Tensor | None,
    b: Tensor,
    sfb: Tensor | None,
    d: Tensor,
    c: Tensor | None,
    alpha: float | None,
    turned: str,
) -> None:
    """The product in float32, and the rest of it by torch: with scales for rows of b, any rows of c, and K = 0."""
    if c is not None and c is not d:
        check_source(d, c)
    if d.dtype not in (torch.bfloat16, torch.float16, torch.float32):
        raise InvalidArgument(f"d: has dtype {d.dtype}, must be bfloat16, float16 or float32; convert the result")
    product = torch.empty(d.shape, dtype=torch.float32, device=d.device)
    gemm(a, sfa, b, sfb, product, None, False, None, turned)
    if alpha is not None:
        product.mul_(alpha)
    if c is not None:
        product.add_(c)
    d.copy_(product)


def _kind(a: Tensor) -> str:
    return "bf16" if a.dtype == torch.bfloat16 else "fp8"


def _fields(a: Tensor, b: Tensor, row_b_scales: bool, options: dict[str, Any]) -> dict[str, Any]:
    """Fields of a problem: what its operands are, and the options of a call that it has too."""
    turned = options.get("turned", "")
    fields: dict[str, Any] = {"row_b_scales": row_b_scales}
    if _kind(a) == "bf16":
        layouts = {f"{x}_mn_major": _is_mn_major(of, x in turned) for x, of in (("a", a), ("b", b))}
        fields = {"dtype": "bfloat16"} | {name: True for name, is_so in layouts.items() if is_so}
    return fields | {
        "accumulate": options.get("accumulate", False),
        "affine": options.get("c") is not None or options.get("alpha", 1.0) != 1.0,
        "num_sms": options.get("num_sms", 0),
    }


def grouped_gemm(
    a: Tensor,
    sfa: Tensor | None,
    b: Tensor,
    sfb: Tensor | None,
    d: Tensor,
    layout: Tensor,
    form: str,
    written: str,
    expected_m: int,
    turned: str,
) -> None:
    """`form`: m_indices, prefix_sums or masked_m, which `layout` is, and `written` what the caller calls it."""
    options, settings = knobs.of_call(d), envs.settings()
    options[form] = layout
    if form != "masked_m":
        options["alignment"] = knobs.get_mk_alignment_for_contiguous_layout()
    if expected_m:
        options["expected_m"] = expected_m
    if turned:
        options["turned"] = turned
    handle = default_handle() if settings.context is None else settings.context.handle
    try:
        _native.grouped_gemm(handle, None, (a, sfa, b, sfb, d), options)
    except FineGemmError as e:
        raise _refused(e, a, b, turned, form, written) from None
    if settings.prints_configs:
        envs.print_config(
            f"m_grouped_{_kind(a)}_gemm",
            *(a.shape[:-1].numel(), d.shape[-1], a.shape[-1]),
            groups=b.shape[0],
            expected_m=expected_m,
            alignment=options["alignment"] if form == "m_indices" else 0,
            **_fields(a, b, _has_row_scales(b, sfb, turned), options),
        )


def einsum(
    expr: str, a: Tensor, sfa: Tensor | None, b: Tensor, sfb: Tensor | None, d: Tensor, accumulate: bool
) -> None:
    """The product of an equation, or with `accumulate` d + the product. Nothing to sum up makes d zero."""
    options, settings = knobs.of_call(d), envs.settings()
    if sfa is not None or sfb is not None:
        options["sfa"], options["sfb"] = sfa, sfb
    if accumulate:
        options["accumulate"] = True
    handle = default_handle() if settings.context is None else settings.context.handle
    try:
        _native.einsum(handle, None, (expr, a, b, d), options)
    except FineGemmError as e:
        if d.numel() == 0 or (a.shape[-1] == 0 and not expr.endswith("->mn")):
            return _become(d, None)
        raise _refused(e, a, b, "", "equation", "expr") from None
    if settings.prints_configs and d.numel():
        summed = expr.endswith("->mn")
        m, k = (d.shape[0], a[:, 0].numel()) if summed else (a.shape[:-1].numel(), a.shape[-1])
        of = {"summed": a.shape[0]} if summed else {"groups": b.shape[0], "expected_m": a.shape[0]}
        turned = {"turned": "b"} if expr == "bhd,hdr->bhr" else {}
        fields = _fields(a, b, False, options | turned) | {"out_dtype": str(d.dtype).removeprefix("torch.")}
        envs.print_config(f"{_kind(a)}_einsum", m, d.shape[-1], k, **of, **fields)
    return None


def k_grouped_gemm(
    a: Tensor,
    sfa: Tensor | None,
    b: Tensor,
    sfb: Tensor | None,
    d: Tensor,
    sizes: Sequence[int],
    written: str,
    c: Tensor | None,
    accumulate: bool,
    turned: str,
) -> None:
    """d = c + the product of each group, or with `accumulate` d + the products; d float32 where something is added.

    `written`: what the caller calls the sizes.
    """
    if c is not None:
        check_source(d, c)
        if c.data_ptr() == d.data_ptr():
            c, accumulate = None, True
        elif d.dtype != torch.float32:
            raise InvalidArgument(f"c: is given, but d has dtype {d.dtype}, must be float32; add the result to yours")
    options, settings = knobs.of_call(d), envs.settings()
    options["sizes"] = sizes
    if accumulate:
        options["accumulate"] = True
    if turned:
        options["turned"] = turned
    handle = default_handle() if settings.context is None else settings.context.handle
    try:
        _native.k_grouped_gemm(handle, None, (a, _by_columns(sfa), b, _by_columns(sfb), d), options)
    except (FineGemmError, TypeError) as e:
        group_sizes(written, sizes, d.shape[0])
        if not any(sizes) and a.numel() == b.numel() == 0:
            return None if accumulate else _become(d, c)
        raise _refused(e, a, b, turned, "sizes", written) if isinstance(e, FineGemmError) else e from None
    if c is not None:
        d.add_(c)
    if settings.prints_configs:
        fields = {"k_groups": len(sizes), **_fields(a, b, False, options)}
        envs.print_config(f"k_grouped_{_kind(a)}_gemm", d.shape[1], d.shape[2], sum(sizes), **fields)
    return None


def k_grouped_ranges(a: Tensor, b: Tensor, d: Tensor, offsets: Tensor, accumulate: bool) -> None:
    """k_grouped_gemm of bfloat16 a [K, M] and b [K, N], where each group's k begin at offsets on the device."""
    options = knobs.of_call(d) | {"offsets": offsets, "accumulate": accumulate, "turned": "ab"}
    settings = envs.settings()
    handle = default_handle() if settings.context is None else settings.context.handle
    try:
        _native.k_grouped_gemm(handle, None, (a, None, b, None, d), options)
    except FineGemmError as e:
        raise _refused(e, a, b, "ab", "offsets", "indices") from None


def _become(d: Tensor, c: Tensor | None) -> None:
    """The result where there is nothing to sum up."""
    if c is None:
        d.zero_()
    else:
        d.copy_(c)


def _by_columns(sf: Tensor | None) -> Tensor | None:
    """The scales with neighbouring rows side by side. Kernels for groups of K read any scales, but these so much faster
    that it pays to copy others."""
    if sf is None or sf.stride()[0] == 1 or sf.dtype != torch.float32 or sf.dim() != 2:
        return sf
    return get_mn_major_tma_aligned_tensor(sf.resolve_neg())


def _nothing(*arguments: Any) -> None:
    """What a product returns, for tensors without data."""


_OPERANDS = "Tensor a, Tensor? sfa, Tensor b, Tensor? sfb, Tensor(a!) d"
define(gemm, f"({_OPERANDS}, Tensor? c, bool accumulate, float? alpha, str turned) -> ()", _nothing)
define(gemm_into_heads, f"({_OPERANDS.replace('?', '')}, SymInt[] head_splits) -> ()", _nothing)
define(
    grouped_gemm, f"({_OPERANDS}, Tensor layout, str form, str written, SymInt expected_m, str turned) -> ()", _nothing
)
define(einsum, f"(str expr, {_OPERANDS}, bool accumulate) -> ()", _nothing)
define(k_grouped_ranges, "(Tensor a, Tensor b, Tensor(a!) d, Tensor offsets, bool accumulate) -> ()", _nothing)
define(
    k_grouped_gemm,
    f"({_OPERANDS}, SymInt[] sizes, str written, Tensor? c, bool accumulate, str turned) -> ()",
    _nothing,
)
