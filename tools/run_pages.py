#!/usr/bin/env python3
"""Runs what documents show, in the order in which it stands, each page in an empty folder of its own.

Usage: run_pages.py --blocks python,console PAGE...

  ```LANGUAGE title="FILE"   becomes that file
  ```python                  runs; the blocks of a page share their names
  ```console                 lines that begin with $ are commands, and what stands below one is what it prints
  ```sh                      is a script that must succeed
  ```text                    right behind a block that ran: what it printed

Of python, console and sh those that --blocks names are run. Where output is shown, ... stands for any text. A block
below <!-- not run: REASON --> is passed over, and one below <!-- needs: PROGRAM --> where there is no such program.
Exit code 1: a block failed, or printed something else.
"""

import argparse
import contextlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

BLOCK = re.compile(
    r"^(?:<!-- (?P<aside>not run|needs): (?P<why>[^\n]+) -->\n+)?"
    r'```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    language: str
    title: str | None
    text: str
    line: int
    aside: bool  # it is not to be run
    follows: bool  # nothing stands between it and the block before


def aside(match: re.Match[str]) -> bool:
    return match["aside"] == "not run" or (match["aside"] == "needs" and not shutil.which(match["why"]))


def blocks_of(page: str) -> Iterator[Block]:
    end = 0
    for match in BLOCK.finditer(page):
        line = page.count("\n", 0, match.start("text")) + 1
        follows = not page[end : match.start()].strip() and end > 0
        yield Block(match["language"], match["title"], match["text"], line, aside(match), follows)
        end = match.end()


class Failed(Exception):
    pass


def compare(printed: str, shown: str) -> None:
    pattern = re.escape(shown.strip()).replace(re.escape("..."), ".*")
    if not re.fullmatch(pattern, printed.strip(), re.DOTALL):
        raise Failed(f"it printed\n{printed.strip()}\nand the page shows\n{shown.strip()}")


def shell(command: str) -> str:
    ran = subprocess.run(["sh", "-ec", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if ran.returncode:
        raise Failed(f"{command.strip()}\nended with {ran.returncode}:\n{ran.stdout}")
    return ran.stdout


def console(text: str) -> str:
    """Each command, and what is shown of its output, if anything."""
    for step in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = step.partition("\n")
        while command.endswith("\\"):
            more, _, shown = shown.partition("\n")
            command = command[:-1] + more
        printed = shell(command.partition("  #")[0])
        if shown.strip():
            compare(printed, shown)
    return ""


def python(text: str, place: str, names: dict[str, Any]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(text, place, "exec"), names)
    return out.getvalue()


def run_block(block: Block, page: str, names: dict[str, Any]) -> str:
    """What it printed."""
    if block.language == "python":
        return python(block.text, f"{page}:{block.line}", names)
    return console(block.text) if block.language == "console" else shell(block.text)


def run_page(path: pathlib.Path, languages: set[str]) -> int:
    """How many blocks ran, in the current folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    printed: str | None = None
    ran = 0
    for block in blocks_of(path.read_text()):
        before, printed = printed, None
        try:
            if block.title:
                file = pathlib.Path(block.title)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(block.text)
            elif block.language == "text":
                if before is not None and block.follows and not block.aside:
                    compare(before, block.text)
            elif block.language in languages and not block.aside:
                printed = run_block(block, path.name, names)
                ran += 1
        except Exception as error:
            raise Failed(f"{path}:{block.line}: {type(error).__name__}: {error}") from error
    return ran


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Runs what documents show.")
    parser.add_argument("pages", nargs="+", type=pathlib.Path)
    parser.add_argument("--blocks", default="python,console", help="of python, console and sh")
    options = parser.parse_args(arguments)
    for page in (page.resolve() for page in options.pages):
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                ran = run_page(page, set(options.blocks.split(",")))
            except Failed as error:
                print(error, file=sys.stderr)
                return 1
            finally:
                os.chdir(page.parent)
        print(f"{page.name}: {ran} blocks ran")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
