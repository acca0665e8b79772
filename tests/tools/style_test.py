"""tools/check_style.py runs what is pinned, on what it is for, and says so where it cannot."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_style

FILES = ["src/a.cpp", "kernels/b.cuh", "tests/golden/c.cu", "python/finegemm/d.py", "tools/e.py", "bench/f.py", "g.md"]


def run(version: str, status: int, *arguments: str) -> tuple[int, str]:
    """The exit code and what is printed, where each tool is a script of that version and exit code."""
    out = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out):
        for name in ("clang-format", "ruff", "mypy"):
            tool = pathlib.Path(folder) / name
            tool.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{name} {version}" && exit\nexit {status}\n')
            tool.chmod(0o755)
        with mock.patch.object(check_style, "search_path", lambda: folder):
            code = check_style.main(list(arguments))
    return code, out.getvalue()


class Style(unittest.TestCase):
    def test_each_tool_gets_the_files_that_it_is_for(self):
        cpp, python = check_style.commands("format", fix=False, files=FILES)
        self.assertEqual(cpp[-2:], ["src/a.cpp", "kernels/b.cuh"])
        self.assertEqual(python[-3:], ["python/finegemm/d.py", "tools/e.py", "bench/f.py"])
        strict, others = check_style.commands("types", fix=False, files=FILES)
        self.assertEqual(strict[-3:], ["--strict", "python/finegemm/d.py", "tools/e.py"])
        self.assertNotIn("--strict", others)
        self.assertEqual(others[-1], "bench/f.py")

    def test_only_a_fix_writes(self):
        for what in ("format", "lint"):
            for command in check_style.commands(what, fix=False, files=FILES):
                self.assertFalse({"-i", "--fix"} & set(command), command)
                self.assertTrue({"--dry-run", "--check", "check"} & set(command), command)
            for command in check_style.commands(what, fix=True, files=FILES):
                self.assertFalse({"--dry-run", "--check"} & set(command), command)

    def test_a_tool_without_files_is_not_run(self):
        self.assertEqual(check_style.commands("format", fix=False, files=["g.md"]), [])

    def test_what_a_tool_finds_is_an_error(self):
        with mock.patch.object(check_style, "pins", lambda: dict.fromkeys(("clang-format", "ruff", "mypy"), "1.2")):
            for what in ("format", "lint", "types"):
                self.assertEqual(run("1.2", 1, what)[0], 1)
                self.assertEqual(run("1.2", 0, what)[0], 0)

    def test_what_is_skipped_hides_no_error(self):
        with mock.patch.object(check_style, "pins", lambda: {"clang-format": "1.2", "ruff": "1.3"}):
            self.assertEqual(run("1.2", 1, "format")[0], 1)
            self.assertEqual(run("1.2", 0, "format")[0], 77)

    def test_another_version_is_a_skip_that_says_what_to_do(self):
        code, text = run("0.1", 0, "lint")
        self.assertEqual(code, 77)
        self.assertRegex(text.splitlines()[-1], r"^ruff is ruff 0\.1, must be \S+; `\./dev style` installs it in")

    def test_a_missing_tool_is_one_too(self):
        out = io.StringIO()
        with mock.patch.object(check_style, "search_path", lambda: "/nowhere"), contextlib.redirect_stdout(out):
            self.assertEqual(check_style.main(["types"]), 77)
        self.assertRegex(out.getvalue().splitlines()[-1], r"^mypy is missing, must be \S+; `\./dev style` installs it")

    def test_what_it_needs_is_pinned(self):
        self.assertEqual(set(check_style.pins()), {"clang-format", "ruff", "mypy"})


if __name__ == "__main__":
    unittest.main()
