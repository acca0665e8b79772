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


def define(function: Callable[..., Any], schema: str, fake: Callable[..., Any]) -> None:
    """`function` as an operator of its name; `schema`: what is in brackets, and behind them. `fake` stands for it where
    there is no data."""
    if _library is None:
        return
    name = function.__name__
    _library.define(name + schema)
    _library.impl(name, function, "CompositeExplicitAutograd")
    _library.impl(name, fake, "Meta")


def watched(function: Function) -> Function:
    """What to call for `function`: its operator where something of torch watches, else itself.

    Torch's dispatcher takes longer than the rest of a call.
    """
    # A profiler, or a mode that takes the place of operators, as fake tensors have: other compilers bring one.
    if is_dynamo_compiling() or profiler_enabled() or modes():
        function = getattr(torch.ops.finegemm, function.__name__)
    return function
