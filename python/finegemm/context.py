"""Contexts: options, kernels and caches of their own."""

import sys
import warnings
from functools import cache, partial
from typing import Any, Literal

from finegemm import _native
from finegemm.errors import InvalidArgument


class Context:
    """Owns kernels, caches and options; calls without one share a default context.

    An option that is not given has the value that the environment says (docs/jit.md). `python_prefix`, where NVRTC is
    looked for, is this interpreter's, sys.prefix; with None the environment says that, too. Contexts are safe to use
    from several threads. A copy, or what pickle makes of one, is a new context with the options that were given.
    """

    def __init__(
        self,
        *,
        cache_dir: str | None = None,
        cache_limit_bytes: int | None = None,
        driver_path: str | None = None,
        nvrtc_path: str | None = None,
        nvcc_path: str | None = None,
        cuda_home: str | None = None,
        python_prefix: str | None = sys.prefix,
        compiler: Literal["nvrtc", "nvcc"] | None = None,
        use_pack: bool | None = None,
        pack_path: str | None = None,
        dump_dir: str | None = None,
        cpu_threads: int | None = None,
        check_values: bool | None = None,
        batch_invariant: bool | None = None,
        plan_table: str | None = None,
        trusted_dir: str | None = None,
    ) -> None:
        self.options = {name: value for name, value in locals().items() if name != "self" and value is not None}
        self.handle = _native.context(self.options)
        for sentence in _native.misspelt():
            warnings.warn(sentence, RuntimeWarning, stacklevel=2)

    def __reduce__(self) -> tuple[Any, ...]:
        # The prefix of another interpreter is its own.
        given = {name: value for name, value in self.options.items() if (name, value) != ("python_prefix", sys.prefix)}
        return partial(Context, **given), ()


@cache
def default_handle() -> Any:
    """The context of calls that name none, as the native module takes it."""
    return Context().handle


def handle_of(context: Any) -> Any:
    if isinstance(context, Context):
        return context.handle
    raise InvalidArgument(
        f"context: {type(context).__name__} is not a finegemm.Context; make one, or pass nothing for the default one"
    )
