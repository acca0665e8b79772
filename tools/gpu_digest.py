#!/usr/bin/env python3
"""The digest of everything that decides what runs on a GPU, and whether gpu-validated.json was made with it.

Usage: gpu_digest.py            prints the digest
       gpu_digest.py --check    says loudly when the record is stale; with --strict that is an error
"""

import hashlib
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD = ROOT / "gpu-validated.json"
FILES = ["kernels/**/*", "src/plan/*", "src/cuda/*", "src/jit/*", "src/backend/hopper*", "src/backend/pack_contents.*"]
SKIPPED = 77


def digest(root: pathlib.Path = ROOT) -> str:
    """Of the names and contents of FILES."""
    whole = hashlib.sha256()
    for path in sorted({path for pattern in FILES for path in root.glob(pattern) if path.is_file()}):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        whole.update(f"{path.relative_to(root).as_posix()} {content}\n".encode())
    return whole.hexdigest()


def complaint() -> str | None:
    if not RECORD.exists():
        return "There is no gpu-validated.json: nothing says that these kernels run on a GPU."
    recorded = json.loads(RECORD.read_text())["digest"]
    if recorded == digest():
        return None
    return (
        f"gpu-validated.json is STALE: kernels, planner or launch code changed after the last run on a GPU.\n"
        f"recorded {recorded}\nhere     {digest()}"
    )


def main(arguments: list[str]) -> int:
    if "--check" not in arguments:
        print(digest())
        return 0
    text = complaint()
    if text is None:
        print("gpu-validated.json is fresh")
        return 0
    stars = "*" * 100
    print(f"{stars}\nWARNING\n{text}\nRun ./dev gpu-check on a machine with an H200 and commit its records.\n{stars}")
    if "--strict" in arguments:
        return 1
    print(text.splitlines()[0])
    return SKIPPED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
