from collections.abc import Mapping
from typing import Any

Handle = Any
Tensor = Any

def context(options: Mapping[str, str | int | bool]) -> Handle: ...
def gemm(
    context: Handle,
    a: Tensor,
    sfa: Tensor,
    b: Tensor,
    sfb: Tensor,
    d: Tensor,
    numerics: str,
    config: str | None,
    check_values: bool | None,
    batch_invariant: bool | None,
    num_sms: int,
    pdl: bool,
    stream: int | None,
) -> None: ...
def quantize_rows(
    context: Handle, x: Tensor, q: Tensor, scales: Tensor, power_of_two_scales: bool, stream: int | None
) -> None: ...
def quantize_blocks(
    context: Handle, x: Tensor, q: Tensor, scales: Tensor, power_of_two_scales: bool, stream: int | None
) -> None: ...
def explain(m: int, n: int, k: int, device: str, batch_invariant: bool, plan_table: str) -> str: ...
