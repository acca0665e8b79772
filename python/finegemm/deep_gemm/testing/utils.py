"""Which tests run, and in which environment."""

import functools
import os
from collections.abc import Callable
from typing import Any

from finegemm.torch_module import torch

Function = Callable[..., Any]


def get_arch_major() -> int:
    return int(torch.cuda.get_device_capability()[0])


def test_filter(condition: Callable[[], Any]) -> Callable[[Function], Function]:
    """Runs the decorated function only where the condition holds when it is called."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def filtered(*args: Any, **kwargs: Any) -> Any:
            if condition():
                return function(*args, **kwargs)
            print(f"{function.__name__}:\n > Filtered by {condition}\n")
            return None

        return filtered

    return decorate


test_filter.__test__ = False  # type: ignore[attr-defined]  # or pytest would collect it by its name


def ignore_env(name: str, condition: Callable[[], Any]) -> Callable[[Function], Function]:
    """Calls the decorated function without the variable where the condition holds."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def without(*args: Any, **kwargs: Any) -> Any:
            saved = os.environ.pop(name, None) if condition() else None
            try:
                return function(*args, **kwargs)
            finally:
                if saved is not None:
                    os.environ[name] = saved

        return without

    return decorate
