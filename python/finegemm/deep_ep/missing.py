"""Names of DeepEP that are not served: methods exist and raise, what programs look for is not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from finegemm.errors import Unsupported

C = TypeVar("C", bound=type)

_SHRINK = "ranks cannot be masked; make another group of those that are left"
METHODS = {
    "get_local_buffer_tensor": "calls take their memory from torch; use the tensors that they return",
    "low_latency_update_mask_buffer": _SHRINK,
    "low_latency_query_mask_buffer": _SHRINK,
    "low_latency_clean_mask_buffer": _SHRINK,
}
_OTHER = "is of another interface of DeepEP's; Buffer has dispatch, combine and the calls for few tokens"
NAMES = dict.fromkeys(
    ("ElasticBuffer", "EPHandle", "EPBuffer", "EngramBuffer", "PPBuffer", "BucketBuffer", "HybridEPBuffer"), _OTHER
)


def _raising(name: str, reason: str) -> Callable[..., NoReturn]:
    def missing(*args: Any, **kwargs: Any) -> NoReturn:
        raise Unsupported(f"{name}: {reason}")

    missing.__name__ = name
    missing.__doc__ = f"Raises Unsupported: {reason}."
    return missing


def methods_missing(cls: C) -> C:
    """The class, with a method for each of METHODS."""
    for name, reason in METHODS.items():
        setattr(cls, name, _raising(name, reason))
    return cls
