"""The products as operators of torch: what a compiled graph has in their place.

A call outside of one goes to the package itself, since torch's dispatcher takes longer than the rest of the call.
Settings of the process are read when the operator runs.
"""

from collections.abc import Callable
from typing import Any

import finegemm

from . import envs, knobs
from .operands import Tensor
from .torch_module import torch


def gemm(a: Tensor, sfa: Tensor, b: Tensor, sfb: Tensor, d: Tensor, accumulate: bool) -> None:
    settings = envs.settings()
    num_sms, pdl, _ = knobs.of_call(d)
    finegemm.gemm(a, sfa, b, sfb, d, num_sms=num_sms, pdl=pdl, accumulate=accumulate, context=settings.context)
    if settings.prints_configs:
        envs.print_config(
            "fp8_gemm",
            d.shape[0],
            d.shape[1],
            a.shape[1],
            row_b_scales=sfb.shape[0] == b.shape[0],
            out_dtype="float32" if d.dtype == torch.float32 else None,
            accumulate=accumulate,
            num_sms=num_sms,
        )


def grouped_gemm(
    a: Tensor,
    sfa: Tensor,
    b: Tensor,
    sfb: Tensor,
    d: Tensor,
    m_indices: Tensor | None,
    prefix_sums: Tensor | None,
    masked_m: Tensor | None,
    expected_m: int,
) -> None:
    settings = envs.settings()
    num_sms, pdl, alignment = knobs.of_call(d)
    finegemm.grouped_gemm(
        a,
        sfa,
        b,
        sfb,
        d,
        m_indices=m_indices,
        prefix_sums=prefix_sums,
        masked_m=masked_m,
        alignment=alignment,
        expected_m=expected_m,
        num_sms=num_sms,
        pdl=pdl,
        context=settings.context,
    )
    if settings.prints_configs:
        envs.print_config(
            "m_grouped_fp8_gemm",
            a.shape[:-1].numel(),
            d.shape[-1],
            a.shape[-1],
            groups=b.shape[0],
            row_b_scales=sfb.shape[1] == b.shape[1],
            expected_m=expected_m,
            alignment=alignment if m_indices is not None else 0,
            num_sms=num_sms,
        )


def k_grouped_gemm(
    a: Tensor, sfa: Tensor, b: Tensor, sfb: Tensor, d: Tensor, sizes: list[int], accumulate: bool
) -> None:
    settings = envs.settings()
    num_sms, pdl, _ = knobs.of_call(d)
    finegemm.k_grouped_gemm(
        a, sfa, b, sfb, d, sizes=sizes, accumulate=accumulate, num_sms=num_sms, pdl=pdl, context=settings.context
    )
    if settings.prints_configs:
        shape = {"k_groups": len(sizes), "accumulate": accumulate, "num_sms": num_sms}
        envs.print_config("k_grouped_fp8_gemm", d.shape[1], d.shape[2], sum(sizes), **shape)


_OPERANDS = "Tensor a, Tensor sfa, Tensor b, Tensor sfb, Tensor(a!) d"
_SCHEMAS: dict[Callable[..., None], str] = {
    gemm: f"gemm({_OPERANDS}, bool accumulate) -> ()",
    grouped_gemm: f"grouped_gemm({_OPERANDS}, Tensor? m_indices, Tensor? prefix_sums, Tensor? masked_m, "
    "SymInt expected_m) -> ()",
    k_grouped_gemm: f"k_grouped_gemm({_OPERANDS}, int[] sizes, bool accumulate) -> ()",
}


def _defined() -> Any:
    """The library of operators, which lives as long as this module."""
    library = torch.library.Library("finegemm", "FRAGMENT")
    for function, schema in _SCHEMAS.items():
        name = function.__name__
        library.define(schema)
        library.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"finegemm::{name}", lambda *arguments: None, lib=library)
    return library


_library = None if torch is None else _defined()


def run(function: Callable[..., None], *arguments: Any) -> None:
    """A product of this module, or its operator while torch.compile makes a graph."""
    if torch.compiler.is_compiling():
        function = getattr(torch.ops.finegemm, function.__name__)
    function(*arguments)
