"""Contexts: options, kernels and caches of their own; logs of calls."""

import atexit
import os
import sys
import warnings
from collections.abc import Callable
from functools import cache, partial
from types import TracebackType
from typing import Any, Literal, NamedTuple

from finegemm import _native
from finegemm.errors import InvalidArgument


class LoggedCall(NamedTuple):
    """A call that was made, as a log is told of it."""

    line: str  # of a product what run, bench and tune take: "gemm 64x2112x7168 e4m3:row128 e4m3:block128 bf16"
    kernel: str  # on a GPU by the name that explain gives it, on the CPU its numerics; "" for other operations
    origin: str  # of the kernel: "pack", "disk" or "compiled"; "" on the CPU
    device: str  # "cpu" or "cuda:0"
    host_us: float  # what the call took the host: on a GPU to launch it, on the CPU to compute it


Log = Callable[[LoggedCall], object] | str


@cache
def opened(wish: str) -> Any:
    """The log that a text asks for; contexts share it. Its summary is written when the program ends."""
    log = _native.open_log(wish)
    atexit.register(_native.finish_log, log)
    return log


def native_log(log: Log | None) -> Any:
    """As the native module takes it. Without one, the environment may ask for one."""
    if log is None:
        log = os.environ.get("FINEGEMM_LOG") or None
    if log is None or isinstance(log, str):
        return log and opened(log)
    if not callable(log):
        raise InvalidArgument(
            f"log: {type(log).__name__} cannot be called; pass 'calls', 'shapes', one of them with ':FILE', or a "
            "function of a LoggedCall"
        )
    return lambda *fields: log(LoggedCall(*fields))


class Context:
    """Owns kernels, caches and options; calls without one share a default context.

    An option that is not given has the value that the environment says (docs/jit.md). `python_prefix`, where NVRTC is
    looked for, is this interpreter's, sys.prefix; with None the environment says that, too. `log` is told of each call:
    "calls" or "shapes", as finegemm.log has them, or a function of a LoggedCall, which any thread may call. Contexts
    are safe to use from several threads. A copy, or what pickle makes of one, is a new context with the options that
    were given.
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
        nvtx_path: str | None = None,
        log: Log | None = None,
    ) -> None:
        self.options = {name: value for name, value in locals().items() if name != "self" and value is not None}
        self.handle = _native.context(self.options | {"log": native_log(log)})
        for sentence in _native.misspelt():
            warnings.warn(sentence, RuntimeWarning, stacklevel=2)

    def __reduce__(self) -> tuple[Any, ...]:
        # The prefix of another interpreter is its own.
        given = {name: value for name, value in self.options.items() if (name, value) != ("python_prefix", sys.prefix)}
        return partial(Context, **given), ()


default_options: dict[str, Any] = {}  # of the default context, beside the environment's


@cache
def default_handle() -> Any:
    """The context of calls that name none, as the native module takes it."""
    return Context(**default_options).handle


class log:
    """Logs each call that names no context, from here on, or in a block: `with finegemm.log("shapes:FILE"):`.

    `to`: "calls", a line for each call and a summary of shapes, or "shapes", the summary alone; both on standard error,
    or with ":FILE" at the end of a file. `finegemm run` takes a line, `finegemm bench --file` and `tune --file` a file
    of them. Or a function of a LoggedCall, which any thread may call. The summary comes when the block ends, or else
    the program. Contexts have a `log` of their own.
    """

    def __init__(self, to: Log = "calls") -> None:
        self.to = to
        self.before = dict(default_options)
        native_log(to)  # one that cannot be is refused here
        self._use(self.before | {"log": to})

    def _use(self, options: dict[str, Any]) -> None:
        kept.append(default_handle())
        default_handle.cache_clear()
        default_options.clear()
        default_options.update(options)

    def __enter__(self) -> "log":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._use(self.before)
        if isinstance(self.to, str):
            _native.finish_log(opened(self.to))


kept: list[Any] = []  # contexts whose kernels may still run


def handle_of(context: Any) -> Any:
    if isinstance(context, Context):
        return context.handle
    raise InvalidArgument(
        f"context: {type(context).__name__} is not a finegemm.Context; make one, or pass nothing for the default one"
    )
