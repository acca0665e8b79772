#!/usr/bin/env python3
"""What decides what runs on a GPU, as a digest for each operation, and whether gpu-validated.json was made with it.

Usage: gpu_digest.py                   prints the digests
       gpu_digest.py --check           says loudly which records are stale; with --strict that is an error
       gpu_digest.py --sources BUILD   fails if GPU targets of this build folder are made of a file without a digest

A digest has the machine code of the operation's kernels (tests/golden/kernel_text.json, which the tests compare with
what a compiler makes of kernels/) and the code of the host's files, without comments and layout.
"""

import hashlib
import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

from check_limits import COMMENT_OR_STRING

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD = ROOT / "gpu-validated.json"
KERNELS = ROOT / "tests/golden/kernel_text.json"
SKIPPED = 77

# Files of the host that serve one operation; those of SHARED serve all.
OPERATIONS = {
    "gemm": [
        "kernels/finegemm/gemm/*",
        "src/plan/*",
        "src/plan/candidates/*",
        "src/ops/gemm/*",
        "src/ops/gemm/finish/*",
        "src/ops/reencoded_gemm/*",
    ],
    "quantize": [
        "src/ops/quantize/*",
        "kernels/finegemm/quantize/quantize.h",
        "kernels/finegemm/quantize/columns.h",
        "kernels/finegemm/quantize/reencode.h",
    ],
    "swiglu": [
        "src/ops/swiglu/*",
        "src/ops/expert_bias.h",
        "kernels/finegemm/quantize/activation.h",
        "kernels/finegemm/quantize/swiglu.h",
    ],
    "scale_layout": ["src/ops/scale_layout/*", "kernels/finegemm/scale_layout/*"],
    "mqa": ["src/ops/mqa/*", "kernels/finegemm/mqa/*"],
    "prenorm": ["src/ops/prenorm/*", "kernels/finegemm/prenorm/*"],
    "four_bit": ["src/ops/four_bit/*", "kernels/finegemm/four_bit/*"],
    "moe": ["src/ops/moe/*"],
    "ep": ["src/ops/ep/*", "src/comm/*", "kernels/finegemm/routing/slots.h", "kernels/finegemm/routing/peers.h"],
    "routing": ["src/ops/routing/*", "src/ops/expert_bias.h", "kernels/finegemm/routing/routing.h"],
    "topk": ["src/ops/topk/*", "kernels/finegemm/topk/*"],
}
# What kernels are named after that is no operation of its own.
PARTS = {"reencode": "quantize"}
SHARED = [
    "kernels/finegemm/core/*",
    "src/cuda/*",
    "src/jit/*",
    "src/engine/*",
    "src/ops/operation.h",
    "src/ops/operation_launch.h",
    "include/finegemm/*",
]
# Part of the same targets, but nothing of it reaches a GPU.
LEFT_OUT = {
    "src/engine/cpu*": "the CPU backend",
    "src/ops/*/cpu*": "the CPU backend",
    "src/ops/*/checks.*": "checks of arguments: tested against the mock driver",
    "src/ops/*/explain.*": "what is told of launches",
    "src/engine/thread_pool.*": "threads of the CPU backend",
    "src/os/*": "which files are believed",
    "include/finegemm/c_*.h": "the C ABI, which calls the C++ API",
    "tools/no_pack.cpp": "of builds without a pack, whose kernels a compiler makes",
}
# Every other target of the library decides what runs on a GPU.
TARGETS_LEFT_OUT = {
    "finegemm_api": "checks of arguments, the C ABI and adapters: tested against the mock driver",
    "finegemm_os": "which files are believed",
    "finegemm_peers": "what the command line tool compares with",
    "finegemm_make_pack": "a program that builds run",
}


def operation_of(kernel: str) -> str:
    name = kernel.removeprefix("FineGEMM_").removeprefix("paged_")
    named = (operation for operation in OPERATIONS if name.startswith(f"{operation}_"))
    return next(named, PARTS.get(name.partition("_")[0], "gemm"))


def matches(path: str, patterns: list[str]) -> bool:
    return any(pathlib.PurePosixPath(path).match(pattern) for pattern in patterns)


def owner(path: str) -> str | None:
    """The operation that a file of the host serves, "all", or None if it decides nothing that runs on a GPU."""
    if matches(path, list(LEFT_OUT)):
        return None
    for operation, patterns in OPERATIONS.items():
        if matches(path, patterns):
            return operation
    return "all" if matches(path, SHARED) else None


def code(text: str) -> str:
    """C++ without its comments and layout; blanks within strings stay."""
    tokens: list[str] = []
    end = 0
    for match in COMMENT_OR_STRING.finditer(text):
        tokens += text[end : match.start()].split()
        tokens += [] if match.group().startswith("/") else [match.group()]
        end = match.end()
    return " ".join(tokens + text[end:].split())


def contents(operation: str, root: pathlib.Path) -> Iterator[tuple[str, str]]:
    recorded: dict[str, dict[str, str]] = json.loads((root / KERNELS.relative_to(ROOT)).read_text())
    for compiler, kernels in recorded.items():
        yield from ((f"{compiler} {name}", text) for name, text in kernels.items() if operation_of(name) == operation)
    patterns = SHARED + [pattern for list_ in OPERATIONS.values() for pattern in list_]
    for path in sorted({file for pattern in patterns for file in root.glob(pattern) if file.is_file()}):
        name = path.relative_to(root).as_posix()
        if owner(name) in (operation, "all"):
            yield name, code(path.read_text())


def digest(operation: str, root: pathlib.Path = ROOT) -> str:
    whole = hashlib.sha256()
    for name, content in contents(operation, root):
        whole.update(f"{name} {hashlib.sha256(content.encode()).hexdigest()}\n".encode())
    return whole.hexdigest()


def complaints(root: pathlib.Path = ROOT) -> list[str]:
    record = root / RECORD.name
    recorded = json.loads(record.read_text()) if record.exists() else {}
    return [
        f"{operation}: gpu-validated.json is STALE: kernels, planner or launch code changed after the last run on a GPU"
        if operation in recorded
        else f"{operation}: nothing says that it runs on a GPU"
        for operation in OPERATIONS
        if recorded.get(operation, {}).get("digest") != digest(operation, root)
    ]


def shortfalls(root: pathlib.Path = ROOT) -> list[str]:
    """Bars of speed that the GPU of the record missed."""
    record = root / RECORD.name
    recorded = json.loads(record.read_text()) if record.exists() else {}
    return [
        f"{operation}: right, but short of its bar of speed: {name}"
        for operation, of in recorded.items()
        for name in of.get("short", [])
    ]


def without_digest(sources: set[str]) -> list[str]:
    """Files that no digest has and that are not left out for a reason. The texts of kernels are in machine code."""
    return sorted(
        path
        for path in sources
        if owner(path) is None and not matches(path, list(LEFT_OUT)) and not path.startswith("kernels/")
    )


def sources_of(build: pathlib.Path) -> set[str]:
    """The project's files from which a build folder's GPU targets are made, as Ninja knows them."""
    listed = subprocess.run(
        ["ninja", "-C", str(build), "-t", "deps"],
        check=True,
        capture_output=True,
        text=True,
    )
    found: set[pathlib.Path] = set()
    for block in listed.stdout.split("\n\n"):
        head, *lines = block.strip().splitlines() or [""]
        target = re.match(r"CMakeFiles/(finegemm_\w+)\.dir/", head)
        if target and target[1] not in TARGETS_LEFT_OUT:
            found |= {(build / line.strip()).resolve() for line in lines}
    ours = {path for path in found if path.is_relative_to(ROOT) and not path.is_relative_to(build.resolve())}
    return {path.relative_to(ROOT).as_posix() for path in ours}


def check_sources(build: pathlib.Path) -> int:
    sources = sources_of(build)
    missing = without_digest(sources)
    for path in missing:
        print(f"{path}: GPU targets are built from it, but no digest of tools/gpu_digest.py has it")
    if not sources:
        print(f"{build} has no objects of the GPU targets")
    print(f"{len(sources)} files of the GPU targets, {len(missing)} without a digest")
    return 1 if missing or not sources else 0


def main(arguments: list[str]) -> int:
    if "--sources" in arguments:
        return check_sources(pathlib.Path(arguments[arguments.index("--sources") + 1]))
    if "--check" not in arguments:
        print("\n".join(f"{operation} {digest(operation)}" for operation in OPERATIONS))
        return 0
    stale = complaints()
    print("".join(f"{text}\n" for text in shortfalls()), end="")
    if not stale:
        print("gpu-validated.json is fresh")
        return 0
    stars, text = "*" * 100, "\n".join(stale)
    print(f"{stars}\nWARNING\n{text}\nRun ./dev gpu-check on a machine with an H200 and commit its records.\n{stars}")
    if "--strict" in arguments:
        return 1
    print(stale[0])
    return SKIPPED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
