"""tools/run_pages.py: what runs of a document, and when that is a failure."""

import contextlib
import io
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import run_pages  # noqa: E402


def block(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```\n\n"


class Pages(unittest.TestCase):
    def run_page(self, text: str, blocks: str = "python,console,sh") -> tuple[int, str]:
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()) as said:
            page = pathlib.Path(folder) / "page.md"
            page.write_text(text)
            try:
                with contextlib.redirect_stdout(said):
                    return run_pages.main(["--blocks", blocks, str(page)]), said.getvalue()
            finally:
                os.chdir(before)

    def test_blocks_share_names_and_what_they_print_is_compared(self):
        page = block("python", "a = 1") + "Text.\n\n" + block("python", "print(a + 1)")
        self.assertEqual(self.run_page(page + block("text", "2"))[0], 0)
        code, said = self.run_page(page + block("text", "3"))
        self.assertEqual(code, 1)
        self.assertIn("it printed\n2\nand the page shows\n3", said)

    def test_output_is_that_of_the_block_right_before(self):
        page = block("python", "print(1)") + "Text.\n\n" + block("text", "not of it")
        self.assertEqual(self.run_page(page)[0], 0)

    def test_three_dots_stand_for_any_text(self):
        page = block("python", "print('a b c')")
        self.assertEqual(self.run_page(page + block("text", "a ... c"))[0], 0)
        self.assertEqual(self.run_page(page + block("text", "a ... d"))[0], 1)

    def test_commands_run_in_a_folder_with_the_files_of_the_page(self):
        page = '```c title="sub/a.txt"\nhello\n```\n\n' + block("console", "$ cat sub/a.txt\nhello\n$ true")
        self.assertEqual(self.run_page(page)[0], 0)
        self.assertEqual(self.run_page(page.replace("$ true", "$ false"))[0], 1)
        self.assertEqual(self.run_page(page.replace("txt\nhello\n$", "txt\nbye\n$"))[0], 1)

    def test_a_script_fails_by_its_first_command_that_does(self):
        self.assertEqual(self.run_page(block("sh", "false\ntrue"))[0], 1)

    def test_what_is_marked_or_of_another_language_does_not_run(self):
        page = "<!-- not run: it fails -->\n" + block("sh", "false")
        page += "<!-- needs: no-such-program -->\n" + block("sh", "false") + block("cpp", "#error")
        self.assertEqual(self.run_page(page), (0, "page.md: 0 blocks ran\n"))
        self.assertEqual(self.run_page(block("sh", "false"), "python"), (0, "page.md: 0 blocks ran\n"))

    def test_the_line_of_a_block_that_fails_is_named(self):
        code, said = self.run_page("# Title\n\n" + block("python", "1 / 0"))
        self.assertEqual(code, 1)
        self.assertRegex(said, r"page\.md:4: ZeroDivisionError")


if __name__ == "__main__":
    unittest.main()
