#!/usr/bin/env python3
"""Pages of the public headers for the site: each declaration with the comment above it. See tools/site_hooks.py.

Usage: header_pages.py HEADER    prints the page of one header
"""

import pathlib
import re
import sys
from typing import NamedTuple

COMMENT = r"(?P<comment>(?:///[^\n]*\n)+|/\*(?:[^*]|\*(?!/))*\*/\n)?"
BEGINNING = r"(?:struct|class|enum|using|constexpr|typedef|FINEGEMM_)[^{;]*"  # in the first column
BRACES = r"\{(?:[^\n]*\}|.*?\n\})[^;\n]*;?"
DECLARATION = re.compile(
    rf"^{COMMENT}(?P<code>#define FINEGEMM_\w+ \d+|{BEGINNING}(?:{BRACES}|;))", re.MULTILINE | re.DOTALL
)
FORWARD = re.compile(r"(?:struct|class) \w+;")
NAMES = (
    r"^typedef \w+ \(\*(\w+)\)",  # of a function's pointer
    r"^typedef .*?(\w+);$",
    r"^(?:struct|class|enum class)(?: FINEGEMM_API)? (\w+)",
    r"^using (\w+)",
    r"^#define (\w+)",
    r"(\w+)\(",
)
FORMULA = re.compile(r"^(?:or, .*)?\w+\[.*\] = ")
INDENT = "    "


# A member or a value of an enum, and the comment behind it, which may go on in the next lines.
MEMBER = re.compile(r"(?P<member>[^/]*[^/\s])\s*(?:///<\s*(?P<cpp>.*)|/\*\s*(?P<c>.*))?")


class Declaration(NamedTuple):
    name: str
    comment: str
    code: str


def name_of(code: str) -> str:
    found = [match[1] for pattern in NAMES if (match := re.search(pattern, code, re.DOTALL))]
    return found[0] if found else "Constants"


def plain(comment: str) -> str:
    """Without its marks."""
    lines = (re.sub(r"^\s*(?:///?|/\*+|\*(?!/))\s?", "", line) for line in comment.strip().splitlines())
    return "\n".join(line.removesuffix("*/").rstrip() for line in lines)


def declarations(header: str) -> list[Declaration]:
    return [
        Declaration(name_of(match["code"]), plain(match["comment"] or ""), match["code"].strip())
        for match in DECLARATION.finditer(header)
        if not FORWARD.fullmatch(match["code"])
    ]


def prose(comment: str) -> list[str]:
    """Formulas on lines of their own; names of documents lead to them."""
    text: list[str] = []
    for line in comment.splitlines():
        linked = re.sub(r"\bdocs/(\w+)\.md\b", r"[\1.md](../../\1.md)", line)
        text += ["", INDENT + line, ""] if FORMULA.match(line) else [linked]
    return text


def members(code: str) -> list[tuple[str, str]]:
    """(member, what is said of it) of a struct or an enum that has nothing but such; else none."""
    body = code.partition("\n")[2].rpartition("\n}")[0]
    if re.search(r"^\w+:$", body, re.MULTILINE):
        return []
    rows: list[tuple[str, str]] = []
    before = ""
    for line in map(str.strip, body.splitlines()):
        if comment := re.match(r"///<\s*(.*)|(?!/\*)([^;=,]+)\*/$", line):
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {(comment[1] or comment[2]).strip()}")
        elif comment := re.match(r"///?\s*(.*)", line):
            before += comment[1] + " "
        elif found := MEMBER.fullmatch(line):
            after = (found["cpp"] or found["c"] or "").removesuffix("*/").strip()
            rows.append((found["member"].rstrip(",;"), before + after))
            before = ""
    return rows


def shown(code: str) -> list[str]:
    """A declaration as code, members of a struct as a table."""
    rows = members(code)
    if not rows:
        return ["```cpp", code, "```"]
    first = code.partition("\n")[0].rstrip(" {")
    cells = [(member, said.replace("|", r"\|").replace("*", r"\*")) for member, said in rows]
    return [
        f"`{first}`",
        "",
        "| member | meaning |",
        "| --- | --- |",
        *(f"| `{member}` | {said} |" for member, said in cells),
    ]


def page(path: str, header: str) -> str:
    """`path`: of the header, as programs include it."""
    first = plain(re.split(r"\n#|\*/", header, maxsplit=1)[0])
    about = re.sub(r"\s*Layer:? public\.", "", first).strip()
    lines = [f"# {path.rpartition('/')[2]}", "", *prose(about), "", "```cpp", f"#include <{path}>", "```"]
    constants = 0
    for name, comment, code in declarations(header):
        if name == "Constants":
            constants += 1
        if name != "Constants" or constants == 1:
            lines += ["", f"## {name}", "", *prose(comment)]
        lines += ["", *shown(code)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def main(arguments: list[str]) -> int:
    for argument in arguments:
        path = pathlib.Path(argument)
        print(page(f"{path.parent.name}/{path.name}", path.read_text()), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
