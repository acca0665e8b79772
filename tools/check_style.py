#!/usr/bin/env python3
"""Holds the sources to their style: clang-format for C++ and CUDA, ruff and mypy for Python. CONTRIBUTING.md has more.

Usage: check_style.py [format] [lint] [types] [--fix]    all three where none is named; --fix mends what a tool can mend
Exit code 77: a tool is missing, or is of another version than python/requirements-style.txt pins.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CPP = {".h", ".cpp", ".c", ".cuh", ".cu"}
RECORDED = "tests/golden/"  # what programs printed
STRICT = ("python/finegemm/", "tools/")
LOOSE = "bench/"  # passes tensors around, which have no types where torch is not installed
CHECKS = ("format", "lint", "types")
SKIPPED = 77


def pins() -> dict[str, str]:
    text = (ROOT / "python/requirements-style.txt").read_text()
    return dict(re.findall(r"^([\w-]+)==(\S+)$", text, re.MULTILINE))


def search_path() -> str:
    """The tools of this interpreter's environment come first."""
    return str(pathlib.Path(sys.executable).parent) + os.pathsep + os.environ.get("PATH", "")


def commands(what: str, fix: bool, files: list[str]) -> list[list[str]]:
    """Each begins with the name of its tool."""
    cpp = [f for f in files if pathlib.Path(f).suffix in CPP and not f.startswith(RECORDED)]
    python = [f for f in files if f.endswith((".py", ".pyi"))]
    mypy = ["mypy", "--python-executable", sys.executable]
    found = {
        "format": [
            (["clang-format", "-i"] if fix else ["clang-format", "--dry-run", "--Werror"], cpp),
            (["ruff", "format"] if fix else ["ruff", "format", "--check"], python),
        ],
        "lint": [(["ruff", "check", "--fix"] if fix else ["ruff", "check"], python)],
        "types": [
            ([*mypy, "--strict"], [f for f in python if f.startswith(STRICT)]),
            (mypy, [f for f in python if f.startswith(LOOSE)]),
        ],
    }
    return [command + of for command, of in found[what] if of]


class Unusable(Exception):
    pass


def program_of(tool: str) -> str:
    """Where it is, in the version that is pinned."""
    pinned, version = pins()[tool], "missing"
    if program := shutil.which(tool, path=search_path()):
        said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
        if pinned in said.split():
            return program
        version = said.strip()
    raise Unusable(f"{tool} is {version}, must be {pinned}; `./dev style` installs it in .venv")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="|".join(CHECKS))
    parser.add_argument("--fix", action="store_true")
    options = parser.parse_args(arguments)
    if unknown := set(options.what) - set(CHECKS):
        parser.error(f"{', '.join(sorted(unknown))}: must be {', '.join(CHECKS[:-1])} or {CHECKS[-1]}")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    files = [f for f in listed.split("\0") if f and (ROOT / f).is_file()]
    failed, skipped = False, set()
    for command in (c for what in options.what or CHECKS for c in commands(what, options.fix, files)):
        try:
            failed |= subprocess.run([program_of(command[0]), *command[1:]], cwd=ROOT).returncode != 0
        except Unusable as e:
            skipped.add(str(e))
    for text in sorted(skipped):
        print(text)
    return 1 if failed else SKIPPED if skipped else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
