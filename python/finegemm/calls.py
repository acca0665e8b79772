"""Functions of the native module as the package declares them."""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from finegemm import _native
from finegemm.arrays import ForJax
from finegemm.context import default_handle, handle_of


class Tensor(Protocol):
    """An array of any library that passes memory by DLPack: of torch, NumPy, JAX, CuPy."""

    @property
    def __dlpack__(self) -> Callable[..., Any]: ...


T = TypeVar("T", bound=Tensor)  # results are of the library of the first operand
PREFIXES = {"finegemm.ep": "ep_"}  # of names in the native module, where modules have names that meet
P = ParamSpec("P")
R = TypeVar("R")


def native(declared: Callable[P, R]) -> Callable[P, R]:
    """The native function of that name, with the signature and the text of `declared`, which has no body.

    It is handed what was given and nothing else, so that a call pays only for that: defaults are the library's own, and
    `declared` says what they are.
    """
    function = getattr(_native, PREFIXES.get(declared.__module__, "") + declared.__name__)
    names = frozenset(signature(declared).parameters)

    @wraps(declared)
    def call(*args: Any, context: Any = None, **keywords: Any) -> Any:
        result = function(default_handle() if context is None else handle_of(context), names, args, keywords)
        kind = type(result)
        if kind is ForJax:
            return result.delivered()
        if kind is tuple and ForJax in map(type, result):
            return tuple(part.delivered() if type(part) is ForJax else part for part in result)
        return result

    return cast(Callable[P, R], call)
