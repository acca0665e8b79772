#!/usr/bin/env python3
"""Writes what other languages say of the fields of a product, from the list in src/plan/fields.h and the table of
types of elements in src/plan/elements.h.

These are the members of finegemm_shape in include/finegemm/c_api.h, and the keywords of finegemm.explain with their
meanings in python/finegemm/ops.py. A test compares them.

Usage: gen_fields.py [--check]
"""

import pathlib
import re
import sys
import textwrap
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST, SHAPE, TYPES = "src/plan/fields.h", "include/finegemm/gemm.h", "src/plan/elements.h"
C_API, OPS = "include/finegemm/c_api.h", "python/finegemm/ops.py"
WIDTH = 120

FIELD = re.compile(r'visit\(\s*Field\{"(\w+)",\s*\w+,\s*"([^"]*)"(?:,\s*is_(\w+))?\},\s*shapes\.(\w+)\.\.\.\)')
TYPE = re.compile(r'\.array_name = "(\w+)"((?:(?!\.dtype = ).)*)', re.DOTALL)
RESULT = re.compile(r"(    out_dtype: )Literal\[[^]]*\]")
STRUCT = re.compile(r"(typedef struct finegemm_shape \{\n)(.*?)(\} finegemm_shape;)", re.DOTALL)
BESIDE = {"struct_size", "m", "n", "k", "device", "plan_table"}  # members of finegemm_shape that are no fields
SIGNATURE = re.compile(r"(def explain\(.*?    # Fields of a product;[^\n]*\n)(.*?)(\) -> )", re.DOTALL)
MEANINGS = re.compile(r"(def explain\(.*?    Fields of the product, [^\n]*:\n\n)(.*?)(    \"\"\")", re.DOTALL)
PYTHON = {
    "bool": "bool = False",
    "int32_t": "int = 0",
    "int64_t": "int = 0",
    "std::optional<int64_t>": "int | None = None",
}


class Field(NamedTuple):
    name: str
    type: str
    meaning: str
    of: str = ""  # the members of a type of elements: "operand", "output"


def fields(listed: str, shape: str) -> list[Field]:
    """From the texts of the list and of GemmShape's header."""
    found = FIELD.findall(listed)
    if len(found) != listed.count("visit(Field{") or any(name != member for name, _, _, member in found):
        sys.exit(f'{LIST}: a field is not of the form visit(Field{{"name", takers, "meaning"}}, shapes.name...)')
    members = shape[shape.index("struct GemmShape {") :]
    members = members[: members.index("\n};")]
    types = {name: re.search(rf"^ *(\S+) {name}\b", members, re.MULTILINE) for name, _, _, _ in found}
    if missing := [name for name, type in types.items() if not type]:
        sys.exit(f"{SHAPE}: GemmShape has no member {missing[0]}, which {LIST} lists; declare it on a line of its own")
    return [Field(name, type[1], meaning, of) for name, meaning, of, _ in found if (type := types[name])]


def replaced(pattern: re.Pattern[str], text: str, middle: str, path: str) -> str:
    if len(pattern.findall(text)) != 1:
        sys.exit(f"{path}: the place to write to is not there as tools/gen_fields.py looks for it")
    return pattern.sub(lambda m: m[1] + middle + m[3], text)


def c_api(text: str, listed: list[Field]) -> str:
    """Programs were compiled with the members that are there: new ones go behind them, with 64 bits each, as padding
    between two would hold anything in programs that know the first one only."""
    found = STRUCT.search(text)
    body = found[2] if found else ""
    there = set(re.findall(r"(\w+)\s*[,;]", re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)))
    if gone := sorted(there - BESIDE - {f.name for f in listed}):
        sys.exit(
            f"{C_API}: finegemm_shape has '{gone[0]}', which is not in {LIST}; list it again, as programs may set it"
        )
    new = "".join(f"    int64_t {f.name}; /* {f.meaning} */\n" for f in listed if f.name not in there)
    return replaced(STRUCT, text, body + new, C_API)


def array_names(types: str, of: str) -> list[str]:
    """Of the types of elements that may be so, from the text of their table."""
    rows = types[types.index("kElementTypes[] = {") : types.index("\n};\n// clang-format on")]
    return [name for name, rest in TYPE.findall(rows) if f".{of} = " in rest]


def literal(names: list[str]) -> str:
    return "Literal[" + ", ".join(f'"{name}"' for name in names) + "]"


def python_type(field: Field, types: str) -> str:
    if field.of:
        return f"{literal(array_names(types, field.of))} | None = None"
    if field.type not in PYTHON:
        sys.exit(f"{SHAPE}: {field.name} is of {field.type}, which PYTHON in tools/gen_fields.py lacks; add it")
    return PYTHON[field.type]


def ops(text: str, listed: list[Field], types: str) -> str:
    keywords = "".join(f"    {f.name}: {python_type(f, types)},\n" for f in listed)
    text = replaced(SIGNATURE, text, keywords, OPS)
    text = RESULT.sub(lambda m: f"{m[1]}{literal(array_names(types, 'output'))}", text)
    lines = (
        textwrap.fill(f"`{f.name}`: {f.meaning}.", WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8)
        for f in listed
    )
    return replaced(MEANINGS, text, "".join(line + "\n" for line in lines), OPS)


def main() -> int:
    listed, types = fields((ROOT / LIST).read_text(), (ROOT / SHAPE).read_text()), (ROOT / TYPES).read_text()
    stale = 0
    for path, write in ((C_API, c_api), (OPS, lambda text, listed: ops(text, listed, types))):
        text = (ROOT / path).read_text()
        if (new := write(text, listed)) == text:
            continue
        if "--check" not in sys.argv[1:]:
            (ROOT / path).write_text(new)
            continue
        print(f"{path} differs from what tools/gen_fields.py makes of {LIST}; run it, and read the difference")
        stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
