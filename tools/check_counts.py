#!/usr/bin/env python3
"""Checks counts that keep the code one house: what has a single home, and how many files share a folder."""

import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HOST, KERNELS = ("src/", "cli/", "python/src/"), ("kernels/",)
# Grouping is a field of a call: names of it in names of files, and in many files, are the beginning of another family.
MOST_FILES_WITH_K_GROUPED = 12
MOST_VIRTUALS = 4  # of Backend, besides its destructor
MOST_FILES_OF_A_FOLDER = 20
# In kernels what follows from the grouping is decided in few places, and the plan tells the others.
MOST_QUESTIONS_OF_GROUPING = 5
MOST_COMPILE_TIME_BRANCHES = 40
# Files that say what a finish is, as ARCHITECTURE.md names them, besides its own and the tables of kernels: it costs
# one more as many, and one of these tables.
MOST_FILES_OF_A_FINISH = 7
FINISHED = ("src/", "cli/", "python/src/", "python/finegemm/ops.py", "include/", "kernels/")
FINISHES, PEERS, TABLES = "src/plan/fields.h", "src/peers/", ("src/plan/candidates", "src/plan/shipped_table")
OPTIONS = "src/api/option_lists.h"
FINISH = re.compile(r"\{Finish::(\w+), &GemmShape::(\w+),")
ARGUMENT = re.compile(r'A\{"(\w+)", Finish::(\w+),')
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)

MADE_PROBLEM = re.compile(r"\bplan::Problem(?: \w+)?\s*\{|\bProblem \w+\([^;{}]*\) \{(?:[^{}]|\{\})*return \{")
INCLUDE_OF_CPU = re.compile(r'#include "[^"]*\bcpu[^"]*"')


QUESTION_OF_GROUPING = re.compile(r"\b[cC]\.(?:grouping\b|(?:grouped|row_groups|k_groups)\(\))")


def files_in(root: pathlib.Path, folders: tuple[str, ...]) -> dict[str, str]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *folders], cwd=root, check=True, capture_output=True, text=True
    )
    paths = (root / line for line in listed.stdout.splitlines())
    return {path.relative_to(root).as_posix(): path.read_text() for path in paths if path.is_file()}


def over(what: str, found: list[str], most: int) -> list[str]:
    return [f"{what}: {len(found)}, at most {most}: {', '.join(found)}"] if len(found) > most else []


def virtuals(files: dict[str, str]) -> list[str]:
    """Names of Backend's virtual functions."""
    (text,) = (text for path, text in files.items() if path.endswith("/backend.h"))
    return re.findall(r"virtual [^~;=]*?(\w+)\(", text)


def lines_with(files: dict[str, str], pattern: str | re.Pattern[str]) -> list[str]:
    """The lines that match, as path:line."""
    return [
        f"{path}:{number}"
        for path, text in files.items()
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(pattern, line)
    ]


def kernel_faults(files: dict[str, str]) -> list[str]:
    device = {path: text for path, text in files.items() if "/device/" in path}
    return over(
        "questions of grouping in kernels", lines_with(files, QUESTION_OF_GROUPING), MOST_QUESTIONS_OF_GROUPING
    ) + over("if constexpr in device", lines_with(device, r"\bif constexpr\b"), MOST_COMPILE_TIME_BRANCHES)


def files_of_finishes(files: dict[str, str]) -> dict[str, list[str]]:
    """For each finish by its name: files that name it, or its arguments, outside of comments."""
    found = {}
    for enumerator, name in FINISH.findall(files[FINISHES]):
        # A letter alone, as of C, stands for anything, and what another operation calls so for that, too.
        arguments = [x for x, of in ARGUMENT.findall(files[FINISHES]) if of == enumerator and len(x) > 1]
        arguments = [x for x in arguments if f'"{x}"' not in files.get(OPTIONS, "")]
        words = "|".join([rf"k?{enumerator}\w*", rf"{name}\w*", *arguments])
        others = {p: t for p, t in files.items() if name not in p and not p.startswith((PEERS, *TABLES))}
        found[name] = [path for path, text in others.items() if re.search(rf"\b(?:{words})\b", COMMENT.sub("", text))]
    return found


def finish_faults(files: dict[str, str]) -> list[str]:
    return [
        fault
        for name, named_in in files_of_finishes(files).items()
        for fault in over(f"files that know of the finish {name}", named_in, MOST_FILES_OF_A_FINISH)
    ]


def faults(files: dict[str, str]) -> list[str]:
    def having(pattern: str | re.Pattern[str]) -> list[str]:
        return [path for path, text in files.items() if re.search(pattern, text)]

    found = over("files with 'grouped' in their name", [path for path in files if "grouped" in path], 0)
    found += over("files that name k_grouped", having("k_grouped"), MOST_FILES_WITH_K_GROUPED)
    found += over("virtual functions of Backend", virtuals(files), MOST_VIRTUALS)
    found += over("files that build a plan::Problem", having(MADE_PROBLEM), 1)
    on_gpu = {path: text for path, text in files.items() if "hopper" in pathlib.PurePosixPath(path).name}
    found += over("GPU files that include a CPU file", [p for p, t in on_gpu.items() if INCLUDE_OF_CPU.search(t)], 0)
    folders = collections.Counter(pathlib.PurePosixPath(path).parent.as_posix() for path in files)
    for folder, count in folders.items():
        if count > MOST_FILES_OF_A_FOLDER:
            found.append(f"{folder}: {count} files, at most {MOST_FILES_OF_A_FOLDER}; give a part of them a folder")
    return found


def main() -> int:
    found = (
        faults(files_in(ROOT, HOST)) + kernel_faults(files_in(ROOT, KERNELS)) + finish_faults(files_in(ROOT, FINISHED))
    )
    print("\n".join(found) if found else "every count is within its bound")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
