#!/usr/bin/env python3
"""Writes what other languages say of the fields of a product and of the arguments of its epilogue, from the lists in
src/plan/fields.h and the table of types of elements in src/plan/elements.h.

These are the members of finegemm_shape and finegemm_epilogue in include/finegemm/c_api.h, and in python/finegemm/ops.py
the keywords of finegemm.explain with their meanings, and those of products. A test compares them.

Usage: gen_fields.py [--check]
"""

import pathlib
import re
import sys
import textwrap
from collections.abc import Callable
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST, SHAPE, TYPES = "src/plan/fields.h", "include/finegemm/gemm.h", "src/plan/elements.h"
C_API, OPS = "include/finegemm/c_api.h", "python/finegemm/ops.py"
WIDTH = 120

FIELD = re.compile(r'visit\(\s*Field\{"(\w+)",\s*k(\w+),\s*"([^"]*)"(?:,\s*is_(\w+))?\},\s*shapes\.(\w+)\.\.\.\)')
FINISH = re.compile(r"\{Finish::(\w+), &GemmShape::(\w+),")
ARGUMENT = re.compile(r'visit\(\s*A\{"(\w+)",\s*Finish::(\w+),\s*"([^"]*)"\},\s*epilogues\.(\w+)\.\.\.\)')
TYPE = re.compile(r'\.array_name = "(\w+)"((?:(?!\.dtype = ).)*)', re.DOTALL)
RESULT = re.compile(r"(    out_dtype: )Literal\[[^]]*\]")
STRUCTS = {
    name: re.compile(rf"(typedef struct finegemm_{name} \{{\n)(.*?)(\}} finegemm_{name};)", re.DOTALL)
    for name in ("shape", "epilogue")
}
# Members of the structs that are in no list.
BESIDE = {"struct_size", "reserved", "m", "n", "k", "device", "plan_table"}
SIGNATURE = re.compile(r"(def explain\(.*?    # Fields of a product;[^\n]*\n)(.*?)(\) -> )", re.DOTALL)
MEANINGS = re.compile(r"(def explain\(.*?    Fields of the product, [^\n]*:\n\n)(.*?)(    \"\"\")", re.DOTALL)
# By the products that take an argument, as the names of Takers have them.
KEYWORDS = {
    takers: re.compile(
        rf"(def {name}\((?:(?!\ndef ).)*?    # What becomes [^\n]*\n)(.*?)(    (?:out_dtype|numerics): )", re.DOTALL
    )
    for takers, name in {"Dense": "gemm", "Rows": "grouped_gemm"}.items()
}
PYTHON = {
    "bool": "bool = False",
    "int32_t": "int = 0",
    "int64_t": "int = 0",
    "std::optional<int64_t>": "int | None = None",
    "std::optional<float>": "float | None = None",
    "ConstStack": "Tensor | None = None",
    "Stack": "Tensor | None = None",
    "RowNumbers": "Tensor | None = None",
    "RowIndices": "Tensor | None = None",
    "ConstMatrix": "Tensor | None = None",
}
C = {
    "float": "double",
    "std::optional<float>": "double",
    "ConstStack": "finegemm_stack",
    "Stack": "finegemm_stack",
    "RowNumbers": "finegemm_stack",
    "RowIndices": "finegemm_matrix",
    "ConstMatrix": "finegemm_matrix",
}


class Field(NamedTuple):
    name: str
    type: str
    meaning: str
    of: str = ""  # the members of a type of elements: "operand", "output"
    takers: str = ""  # "DenseOrRows"
    default: str = ""


def typed(found: list[Field], struct: str, header: str) -> list[Field]:
    """With the types that the members of that struct have."""
    members = header[header.index(f"struct {struct} {{") :]
    members = members[: members.index("\n};")]
    types = {x.name: re.search(rf"^ *(\S+) {x.name}\b(?: = ([\d.]+))?", members, re.MULTILINE) for x in found}
    if missing := [name for name, type in types.items() if not type]:
        sys.exit(f"{SHAPE}: {struct} has no member {missing[0]}, which {LIST} lists; declare it on a line of its own")
    return [x._replace(type=type[1], default=type[2] or "") for x in found if (type := types[x.name])]


def fields(listed: str, shape: str) -> list[Field]:
    """From the texts of the list and of GemmShape's header."""
    found = FIELD.findall(listed)
    if len(found) != listed.count("visit(Field{") or any(name != member for name, _, _, _, member in found):
        sys.exit(f'{LIST}: a field is not of the form visit(Field{{"name", takers, "meaning"}}, shapes.name...)')
    return typed([Field(name, "", meaning, of, takers) for name, takers, meaning, of, _ in found], "GemmShape", shape)


def arguments(listed: str, shape: str) -> list[Field]:
    """The arguments of an epilogue, with the takers of the field that asks for its finish."""
    found = ARGUMENT.findall(listed)
    if len(found) != listed.count("visit(A{") or any(name != member for name, _, _, member in found):
        sys.exit(f'{LIST}: an argument is not of the form visit(A{{"name", finish, "meaning"}}, epilogues.name...)')
    takers = {f.name: f.takers for f in fields(listed, shape)}
    asked = dict(FINISH.findall(listed))
    all = [Field(name, "", meaning, takers=takers[asked[finish]]) for name, finish, meaning, _ in found]
    return typed(all, "Epilogue", shape)


def replaced(pattern: re.Pattern[str], text: str, middle: str, path: str) -> str:
    if len(pattern.findall(text)) != 1:
        sys.exit(f"{path}: the place to write to is not there as tools/gen_fields.py looks for it")
    return pattern.sub(lambda m: m[1] + middle + m[3], text)


def c_api(text: str, listed: list[Field], struct: str = "shape") -> str:
    """Programs were compiled with the members that are there: new ones go behind them, with 64 bits each, as padding
    between two would hold anything in programs that know the first one only."""
    found = STRUCTS[struct].search(text)
    body = found[2] if found else ""
    there = set(re.findall(r"(\w+)\s*[,;]", re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)))
    if gone := sorted(there - BESIDE - {f.name for f in listed}):
        sys.exit(
            f"{C_API}: finegemm_{struct} has '{gone[0]}', which is not in {LIST}; list it again, as programs may set it"
        )
    new = "".join(
        f"    {C.get(f.type, 'int64_t')} {f.name}; /* {f.meaning} */\n" for f in listed if f.name not in there
    )
    return replaced(STRUCTS[struct], text, body + new, C_API)


def array_names(types: str, of: str) -> list[str]:
    """Of the types of elements that may be so, from the text of their table."""
    rows = types[types.index("kElementTypes[] = {") : types.index("\n};\n// clang-format on")]
    return [name for name, rest in TYPE.findall(rows) if f".{of} = " in rest]


def literal(names: list[str]) -> str:
    return "Literal[" + ", ".join(f'"{name}"' for name in names) + "]"


def python_type(field: Field, types: str = "") -> str:
    if field.of:
        return f"{literal(array_names(types, field.of))} | None = None"
    if field.type == "float":
        return f"float = {float(field.default)}"
    if field.type not in PYTHON:
        sys.exit(f"{SHAPE}: {field.name} is of {field.type}, which PYTHON in tools/gen_fields.py lacks; add it")
    return PYTHON[field.type]


def keywords_of(products: str, listed: list[Field]) -> str:
    return "".join(f"    {f.name}: {python_type(f)},\n" for f in listed if products in f.takers or f.takers == "All")


def products(text: str, listed: list[Field]) -> str:
    for takers, pattern in KEYWORDS.items():
        text = replaced(pattern, text, keywords_of(takers, listed), OPS)
    return text


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
    texts = (ROOT / LIST).read_text(), (ROOT / SHAPE).read_text()
    listed, given, types = fields(*texts), arguments(*texts), (ROOT / TYPES).read_text()
    written: dict[str, Callable[[str], str]] = {
        C_API: lambda text: c_api(c_api(text, listed), given, "epilogue"),
        OPS: lambda text: products(ops(text, listed, types), given),
    }
    stale = 0
    for path, write in written.items():
        text = (ROOT / path).read_text()
        if (new := write(text)) == text:
            continue
        if "--check" not in sys.argv[1:]:
            (ROOT / path).write_text(new)
            continue
        print(f"{path} differs from what tools/gen_fields.py makes of {LIST}; run it, and read the difference")
        stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
