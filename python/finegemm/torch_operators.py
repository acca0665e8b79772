"""Functions as operators of torch: what a compiled graph has in place of a call, and a profiler shows."""

from collections.abc import Callable
from typing import Any, TypeVar

from finegemm.torch_module import torch

Function = TypeVar("Function", bound=Callable[..., Any])

if torch is not None:
    from torch._C import _len_torch_dispatch_stack as modes
    from torch._C._autograd import _profiler_enabled as profiler_enabled
    from torch.compiler import is_dynamo_compiling

_library = None if torch is None else torch.library.Library("finegemm", "FRAGMENT")  # lives as long as this module


def define(
    function: Callable[..., Any],
    schema: str,
    fake: Callable[..., Any],
    backward: Callable[..., Any] | None = None,
    *,
    of_several_devices: bool = False,
) -> None:
    """`function` as an operator of its name; `schema`: what is in brackets, and behind them. `fake` stands for it where
    there is no data, and autograd calls `backward`; without one it does not see the operator.

    `of_several_devices`: not all tensors are on the device of the result, which `fake` knows then; to tell torch so
    takes milliseconds."""
    if _library is None:
        return
    name = function.__name__
    _library.define(name + schema)
    _library.impl(name, function, "CompositeExplicitAutograd")
    if of_several_devices:
        torch.library.register_fake(f"finegemm::{name}", fake, lib=_library)
    else:
        _library.impl(name, fake, "Meta")
    if backward is not None:
        torch.library.register_autograd(f"finegemm::{name}", backward, lib=_library)


def traced() -> bool:
    """Does torch trace this call, or take the place of its operators, as fake tensors do?"""
    return bool(is_dynamo_compiling() or modes())


def watched(function: Function) -> Function:
    """What to call for `function`: its operator where something of torch watches, else itself.

    Torch's dispatcher takes longer than the rest of a call.
    """
    if is_dynamo_compiling() or modes() or profiler_enabled():  # as `traced`, without a frame for it
        function = getattr(torch.ops.finegemm, function.__name__)
    return function
