"""What the environment says. It is read when a call first needs it, so that it may be set after the import."""

import logging
import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import finegemm

persistent_envs: dict[str, str] = {}

_ACTED_ON = {"CACHE_DIR", "DEBUG"}  # of the DG_JIT_ and DJ_JIT_ ones
_printed: set[tuple[Any, ...]] = set()
_printing = threading.Lock()


class Settings(NamedTuple):
    context: finegemm.Context | None
    prints_configs: bool


def _jit(name: str) -> str:
    return os.environ.get(f"DG_JIT_{name}") or os.environ.get(f"DJ_JIT_{name}") or ""


def is_set(value: str) -> bool:
    """A switch, which may be a number or a word."""
    return value.strip().lower() not in ("", "0", "no", "false", "off")


@cache
def settings() -> Settings:
    idle = [name for name in os.environ if name[:7] in ("DG_JIT_", "DJ_JIT_") and name[7:] not in _ACTED_ON]
    if idle:
        logging.getLogger("finegemm.deep_gemm").info(
            "%s: without effect here, kernels come compiled with the library", ", ".join(sorted(idle))
        )
    cache_dir = _jit("CACHE_DIR").partition(":")[0]
    own = bool(cache_dir) and not os.environ.get("FINEGEMM_CACHE_DIR")
    return Settings(
        context=finegemm.Context(cache_dir=os.path.join(cache_dir, "finegemm")) if own else None,
        prints_configs=is_set(os.environ.get("DG_PRINT_CONFIGS", "")) or is_set(_jit("DEBUG")),
    )


def print_config(call: str, m: int, n: int, k: int, **shape: Any) -> None:
    """The kernel that a GPU takes for a product, once for each."""
    _print_once(call, {"m": m, "n": n, "k": k} | shape, lambda: finegemm.explain(m, n, k, **shape)["chosen"]["name"])


def print_mqa_config(call: str, **shape: Any) -> None:
    """Likewise for logits; `shape`: what finegemm.explain_mqa takes."""
    _print_once(call, shape, lambda: finegemm.explain_mqa(**shape)["kernel"])


def print_prenorm_config(call: str, **shape: Any) -> None:
    """Likewise for products before a norm; `shape`: what finegemm.explain_prenorm takes."""
    _print_once(call, shape, lambda: finegemm.explain_prenorm(**shape)["kernel"])


def _print_once(call: str, shape: dict[str, Any], chosen: Callable[[], str]) -> None:
    key = (call, *shape.items())
    with _printing:
        if key in _printed or 0 in list(shape.values())[:3]:
            return
        _printed.add(key)
    said = "".join(f" {name}={value}" for name, value in shape.items() if value)
    print(f"{call}{said}: {chosen()}", flush=True)
