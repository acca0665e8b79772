#!/usr/bin/env python3
"""Checks that each file includes only what its layer may include. ARCHITECTURE.md explains the layers."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = {".h", ".cpp", ".cuh", ".inl"}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)

# The layer of a path by how it begins, first match first. An operation's folder has files of several layers.
LAYERS = [
    ("kernels/finegemm/core/", "core"),
    ("kernels/finegemm/gemm/", "gemm"),
    ("kernels/finegemm/quantize/", "quantize"),
    ("kernels/finegemm/scale_layout/", "scale_layout"),
    ("kernels/finegemm/mqa/", "mqa"),
    ("kernels/finegemm/prenorm/", "prenorm"),
    ("kernels/finegemm/routing/", "routing"),
    ("kernels/finegemm/topk/", "topk"),
    ("kernels/finegemm/four_bit/", "four_bit"),
    ("kernels/finegemm/layer/", "layer"),
    ("kernels/finegemm/device/", "device"),
    ("include/finegemm/", "public"),
    ("src/os/", "os"),
    ("src/plan/elements", "elements"),
    ("src/plan/", "plan"),
    ("src/cuda/", "cuda"),
    ("src/comm/", "comm"),
    ("src/jit/", "jit"),
    ("src/ops/[^/]+/source", "jit"),
    ("src/ops/[^/]+/cpu", "cpu"),
    ("src/ops/[^/]+/checks", "api"),
    ("src/ops/[^/]+/explain", "api"),
    ("src/ops/[^/]+/c_abi", "api"),
    ("src/ops/", "engine"),
    ("src/engine/cpu", "cpu"),
    ("src/engine/", "engine"),
    ("src/api/", "api"),
    ("src/workbench/", "api"),
    ("src/peers/", "peers"),
    ("cli/", "cli"),
    ("python/src/", "python"),
]

# Who may include whom, besides itself. "std" is any header that is not ours: the kernels' text has none of them.
# Configurations and arithmetic of kernels, for host and device.
VALUES = {"core", "gemm", "quantize", "scale_layout", "mqa", "prenorm", "routing", "topk", "four_bit", "layer"}
CPU_SAFE = {"cpu", "engine", "plan", "elements", "os", "public", "std"} | VALUES
ALLOWED = {
    "core": set(),
    "gemm": {"core"},
    "quantize": {"core"},
    "scale_layout": {"core"},
    "mqa": {"core"},
    "prenorm": {"core"},
    "routing": {"core"},
    "topk": {"core"},
    "four_bit": {"core"},
    "layer": {"core", "quantize", "routing"},
    "device": VALUES,
    "public": {"std"},
    "os": {"std"},
    "elements": {"public", "std"} | VALUES,
    "plan": {"elements", "os", "public", "std"} | VALUES,
    "cuda": {"os", "public", "std"} | VALUES,
    "comm": {"cuda", "os", "public", "std"} | VALUES,
    "jit": {"cuda", "elements", "os", "public", "std"} | VALUES,
    "cpu": CPU_SAFE,
    "engine": CPU_SAFE | {"comm", "cuda", "jit"},
    "api": {"comm", "engine", "cpu", "plan", "elements", "cuda", "jit", "os", "public", "std"} | VALUES,
    "peers": {"cuda", "public", "std"} | VALUES,
    "cli": {"api", "peers", "plan", "elements", "public", "std"},
    "python": {"api", "cli", "plan", "elements", "public", "std"},
}
# base.h takes the integer types of the host's compiler from here; NVRTC does not see it.
EXCEPTIONS = {("kernels/finegemm/core/base.h", "cstdint")}
# What an include may be relative to, besides its own folder.
INCLUDE_PATHS = ["kernels", "include", "src", ""]


def layer_of(path: str) -> str | None:
    return next((layer for beginning, layer in LAYERS if re.match(beginning, path)), None)


def resolve(root: pathlib.Path, source: pathlib.Path, used: str) -> str | None:
    """The included file, relative to the root; none for a header that is not ours."""
    for start in [source.parent, *(root / p for p in INCLUDE_PATHS)]:
        found = (start / used).resolve()
        if found.is_file() and found.is_relative_to(root):
            return str(found.relative_to(root))
    return None


def violations(root: pathlib.Path) -> list[str]:
    found = []
    for prefix in sorted({beginning.split("/")[0] for beginning, _ in LAYERS}):
        for source in sorted(p for p in (root / prefix).rglob("*") if p.suffix in SOURCES):
            path = str(source.relative_to(root))
            layer = layer_of(path)
            if layer is None:
                found.append(f"{path}: belongs to no layer")
                continue
            for used in INCLUDE.findall(source.read_text()):
                target = resolve(root, source, used)
                other = "std" if target is None else layer_of(target)
                if other != layer and other not in ALLOWED[layer] and (path, used) not in EXCEPTIONS:
                    found.append(f"{path}: layer '{layer}' must not include '{used}' of layer '{other}'")
    return found


def main() -> int:
    found = violations(ROOT)
    print("\n".join(found) if found else "every include is within its layer")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
