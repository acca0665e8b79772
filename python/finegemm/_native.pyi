"""The compiled module. Outputs that are None are allocated."""

from typing import Any

Handle = Any
Tensor = Any

version: str

def context(options: dict[str, str | int | bool], /) -> Handle: ...
def gemm(
    context: Handle,
    a: Tensor,
    sfa: Tensor,
    b: Tensor,
    sfb: Tensor,
    d: Tensor | None,
    numerics: str,
    config: str | None,
    check_values: bool | None,
    batch_invariant: bool | None,
    num_sms: int,
    pdl: bool,
    prefetch_weights: bool,
    accumulate: bool,
    out_dtype: str | None,
    stream: int | None,
    /,
) -> Tensor: ...
def grouped_gemm(
    context: Handle,
    a: Tensor,
    sfa: Tensor,
    b: Tensor,
    sfb: Tensor,
    d: Tensor | None,
    offsets: Tensor | None,
    m_indices: Tensor | None,
    prefix_sums: Tensor | None,
    masked_m: Tensor | None,
    alignment: int,
    expected_m: int,
    numerics: str,
    config: str | None,
    check_values: bool | None,
    num_sms: int,
    pdl: bool,
    stream: int | None,
    /,
) -> Tensor: ...
def k_grouped_gemm(
    context: Handle,
    a: Tensor,
    sfa: Tensor,
    b: Tensor,
    sfb: Tensor,
    d: Tensor | None,
    offsets: Tensor | list[int] | tuple[int, ...] | None,
    sizes: Tensor | list[int] | tuple[int, ...] | None,
    numerics: str,
    config: str | None,
    check_values: bool | None,
    num_sms: int,
    pdl: bool,
    accumulate: bool,
    stream: int | None,
    /,
) -> Tensor: ...
def quantize_rows(
    context: Handle,
    x: Tensor,
    q: Tensor | None,
    scales: Tensor | None,
    power_of_two_scales: bool,
    stream: int | None,
    /,
) -> tuple[Tensor, Tensor]: ...
def quantize_blocks(
    context: Handle,
    x: Tensor,
    q: Tensor | None,
    scales: Tensor | None,
    power_of_two_scales: bool,
    stream: int | None,
    /,
) -> tuple[Tensor, Tensor]: ...
def explain(
    m: int,
    n: int,
    k: int,
    groups: int | None,
    expected_m: int,
    alignment: int,
    k_groups: int | None,
    row_b_scales: bool,
    out_dtype: str | None,
    device: str,
    batch_invariant: bool,
    num_sms: int,
    accumulate: bool,
    plan_table: str,
    /,
) -> str: ...
