#!/usr/bin/env python3
"""Checks words: none that tools/vocabulary.txt gave up is left, and comments stand alone."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
VOCABULARY = "tools/vocabulary.txt"
C_LIKE = {".h", ".cpp", ".c", ".cuh", ".cu"}
CODE = C_LIKE | {".py", ".pyi", ".cmake", ".sh"}
TEXT = CODE | {".md", ".txt", ".toml"}
# Records keep the words of their day, and what checks the words names them.
ASIDE = ("bench/results/", "docs/ladder", "CHANGELOG", VOCABULARY, "tests/tools/vocabulary_test.py")

# A comment that begins so needs the one before it.
LEANING = re.compile(r"(?:Of|The same|Those|Their|By|And)\b")
MOST_LEANING = 10


Word = tuple[re.Pattern[str], str, str]


def read_vocabulary(text: str) -> list[Word]:
    """(pattern, old word, new word) of each line `old: new`, by the section that it is in."""
    patterns = {
        "identifiers": r"(?<![\w-]){}(?![\w-])",
        "phrases": r"\b{}\b",
        "glossary": r"^\| {} \|",
    }
    pattern, words = "", []
    for line in text.splitlines():
        line = line.partition("#")[0].strip()
        if line.startswith("["):
            pattern = patterns[line.strip("[]")]
        elif line:
            old, new = line.split(": ", 1)
            between = r"\s+(?://+ |# )?".join(map(re.escape, old.split(" ")))  # a phrase may go on in the next line
            words.append((re.compile(pattern.format(between), re.MULTILINE), old, new))
    return words


def check_words(path: str, text: str, words: list[Word]) -> list[str]:
    found = [f"{path}: the file's name has '{old}': {new}" for pattern, old, new in words if pattern.search(path)]
    for pattern, old, new in words:
        for match in pattern.finditer(text):
            found.append(f"{path}:{text.count(chr(10), 0, match.start()) + 1}: '{old}': {new}")
    return found


def leaning_comments(path: str, text: str) -> list[str]:
    """Blocks of comment lines whose first word leans on the comment before."""
    mark = re.compile(r"\s*(?://+<?|/\*+)\s*(.*)" if pathlib.Path(path).suffix in C_LIKE else r"\s*#\s*(.*)")
    found, inside = [], False
    for number, line in enumerate(text.splitlines(), 1):
        comment = mark.match(line)
        if comment and not inside and LEANING.match(comment[1]):
            found.append(f"{path}:{number}: {line.strip()}")
        inside = bool(comment)
    return found


def main() -> int:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    texts = {
        path: (ROOT / path).read_text()
        for path in sorted(listed.split("\0"))
        if pathlib.Path(path).suffix in TEXT and not path.startswith(ASIDE) and (ROOT / path).is_file()
    }
    words = read_vocabulary((ROOT / VOCABULARY).read_text())
    found = [line for path, text in texts.items() for line in check_words(path, text, words)]
    code = {path: text for path, text in texts.items() if pathlib.Path(path).suffix in CODE}
    leaning = [line for path, text in code.items() for line in leaning_comments(path, text)]
    if len(leaning) > MOST_LEANING:
        found += [*leaning, f"{len(leaning)} comments lean on the one before; at most {MOST_LEANING}: name the thing"]
    print("\n".join(found) if found else f"{len(texts)} files keep to {VOCABULARY}; {len(leaning)} comments lean")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
