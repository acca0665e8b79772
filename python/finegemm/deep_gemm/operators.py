"""The products, which are operators of torch too. Settings of the process are read when one runs."""

from typing import Any

import finegemm
from finegemm.errors import InvalidArgument
from finegemm.torch_module import torch
from finegemm.torch_operators import define

from . import envs, knobs
from .operands import BLOCK, Tensor, check_source
from .utils.layout import get_mn_major_tma_aligned_tensor


def gemm(
    a: Tensor,
    sfa: Tensor | None,
    b: Tensor,
    sfb: Tensor | None,
    d: Tensor,
    c: Tensor | None,
    accumulate: bool,
    alpha: float | None,
) -> None:
    """d = c + alpha * a times b, or with `accumulate` d + alpha * a times b, rounded once.

    A call that is refused leaves d as it is.
    """
    if c is not None:
        check_source(d, c)
        if c.data_ptr() == d.data_ptr():
            c, accumulate = None, True
    adds = accumulate or c is not None
    if alpha is None and (d.dtype == torch.float32 or (d.dtype == torch.bfloat16 and not adds)):
        _gemm(a, sfa, b, sfb, d, accumulate)
        if c is not None:
            d.add_(c)
    else:
        _through_float32(a, sfa, b, sfb, d, d if accumulate else c, alpha)


def _through_float32(
    a: Tensor, sfa: Tensor | None, b: Tensor, sfb: Tensor | None, d: Tensor, c: Tensor | None, alpha: float | None
) -> None:
    """The product in float32, and the rest of it by torch: with any scales, any rows of c, and K = 0."""
    if d.dtype not in (torch.bfloat16, torch.float16, torch.float32):
        raise InvalidArgument(f"d: has dtype {d.dtype}, must be bfloat16, float16 or float32; convert the result")
    product = torch.empty(d.shape, dtype=torch.float32, device=d.device)
    _gemm(a, sfa, b, sfb, product, False)
    if alpha is not None:
        product.mul_(alpha)
    if c is not None:
        product.add_(c)
    d.copy_(product)


def _gemm(a: Tensor, sfa: Tensor | None, b: Tensor, sfb: Tensor | None, d: Tensor, accumulate: bool) -> None:
    options = _options(d)
    if accumulate:
        options["accumulate"] = True
    if accumulate and sfb is not None and sfb.shape[0] == -(-b.shape[0] // BLOCK):
        sfb = sfb.repeat_interleave(BLOCK, 0)[: b.shape[0]]  # only with scales for each row of B is d added to
    finegemm.gemm(a, sfa, b, sfb, d, **options)
    if envs.settings().prints_configs:
        envs.print_config(
            f"{_kind(a)}_gemm",
            *(d.shape[0], d.shape[1], a.shape[1]),
            **_elements(a, sfb is not None and sfb.shape[0] == b.shape[0]),
            out_dtype="float32" if d.dtype == torch.float32 else None,
            accumulate=accumulate,
            num_sms=options.get("num_sms", 0),
        )


def _options(d: Tensor) -> dict[str, Any]:
    """What the process says of a call that writes to `d`. Each option that is passed takes time."""
    options, context = knobs.of_call(d), envs.settings().context
    if context is not None:
        options["context"] = context
    return options


def _kind(a: Tensor) -> str:
    return "bf16" if a.dtype == torch.bfloat16 else "fp8"


def _elements(a: Tensor, row_b_scales: bool) -> dict[str, Any]:
    """The fields of a problem that say what its operands are."""
    return {"dtype": "bfloat16"} if a.dtype == torch.bfloat16 else {"row_b_scales": row_b_scales}


def grouped_gemm(
    a: Tensor,
    sfa: Tensor | None,
    b: Tensor,
    sfb: Tensor | None,
    d: Tensor,
    m_indices: Tensor | None,
    prefix_sums: Tensor | None,
    masked_m: Tensor | None,
    expected_m: int,
) -> None:
    options, alignment = _options(d), knobs.get_mk_alignment_for_contiguous_layout()
    if masked_m is not None:
        options["masked_m"] = masked_m
    elif prefix_sums is not None:
        options |= {"prefix_sums": prefix_sums, "alignment": alignment}
    else:
        options |= {"m_indices": m_indices, "alignment": alignment}
    if expected_m:
        options["expected_m"] = expected_m
    finegemm.grouped_gemm(a, sfa, b, sfb, d, **options)
    if envs.settings().prints_configs:
        envs.print_config(
            f"m_grouped_{_kind(a)}_gemm",
            *(a.shape[:-1].numel(), d.shape[-1], a.shape[-1]),
            groups=b.shape[0],
            **_elements(a, sfb is not None and sfb.shape[1] == b.shape[1]),
            expected_m=expected_m,
            alignment=alignment if m_indices is not None else 0,
            num_sms=options.get("num_sms", 0),
        )


def k_grouped_gemm(
    a: Tensor,
    sfa: Tensor | None,
    b: Tensor,
    sfb: Tensor | None,
    d: Tensor,
    sizes: list[int],
    c: Tensor | None,
    accumulate: bool,
) -> None:
    """d = c + the product of each group, or with `accumulate` d + the products; d float32 where something is added."""
    if c is not None:
        check_source(d, c)
        if c.data_ptr() == d.data_ptr():
            c, accumulate = None, True
        elif d.dtype != torch.float32:
            raise InvalidArgument(f"c: is given, but d has dtype {d.dtype}, must be float32; add the result to yours")
    options = _options(d)
    finegemm.k_grouped_gemm(a, _by_columns(sfa), b, _by_columns(sfb), d, sizes=sizes, accumulate=accumulate, **options)
    if c is not None:
        d.add_(c)
    if envs.settings().prints_configs:
        shape = {
            **_elements(a, False),
            "k_groups": len(sizes),
            "accumulate": accumulate,
            "num_sms": options.get("num_sms", 0),
        }
        envs.print_config(f"k_grouped_{_kind(a)}_gemm", d.shape[1], d.shape[2], sum(sizes), **shape)


def _by_columns(sf: Tensor | None) -> Tensor | None:
    """The scales with neighbouring rows side by side. Kernels for groups of K read any scales, but these so much faster
    that it pays to copy others."""
    can = sf is not None and sf.dtype == torch.float32 and sf.dim() == 2 and sf.stride(0) != 1
    return get_mn_major_tma_aligned_tensor(sf) if can else sf


def _nothing(*arguments: Any) -> None:
    """What a product returns, for tensors without data."""


_OPERANDS = "Tensor a, Tensor? sfa, Tensor b, Tensor? sfb, Tensor(a!) d"
_GROUPS = "Tensor? m_indices, Tensor? prefix_sums, Tensor? masked_m, SymInt expected_m"
define(gemm, f"({_OPERANDS}, Tensor? c, bool accumulate, float? alpha) -> ()", _nothing)
define(grouped_gemm, f"({_OPERANDS}, {_GROUPS}) -> ()", _nothing)
define(k_grouped_gemm, f"({_OPERANDS}, SymInt[] sizes, Tensor? c, bool accumulate) -> ()", _nothing)
