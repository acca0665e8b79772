"""tools/test_summary.py counts what ran, what failed and what was skipped."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import test_summary

GOOGLE = """<testsuites><testsuite name="A">
<testcase name="Runs" status="run" result="completed" classname="A" />
<testcase name="Fails" status="run" result="completed" classname="A"><failure message="1 != 2"/></testcase>
<testcase name="Skips" result="skipped" classname="A"><skipped message="a.cpp:7&#x0A;no GPU here"/></testcase>
</testsuite></testsuites>"""
PYTEST = """<testsuites><testsuite>
<testcase classname="t" name="one"/><testcase classname="t" name="two"><error message="x">broken</error></testcase>
<testcase classname="t" name="three"><skipped message="no GPU">t.py:1</skipped></testcase>
<testcase classname="" name="u"><skipped message="collection skipped">('u', 9, 'Skipped: no torch')</skipped></testcase>
</testsuite></testsuites>"""


def entry(name: str, status: str, output: str = "") -> str:
    return f'<testcase name="{name}" status="{status}"><system-out>{output}</system-out></testcase>'


def summary(entries: list[str], **cases: str) -> tuple[int, list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        build = pathlib.Path(folder)
        (build / "results").mkdir()
        (build / "ctest.xml").write_text("<testsuite>" + "".join(entries) + "</testsuite>")
        for name, text in cases.items():
            (build / "results" / f"{name}.xml").write_text(text)
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            code = test_summary.main([folder])
        return code, text.getvalue().splitlines()


class Summary(unittest.TestCase):
    def test_each_case_of_a_suite_counts(self):
        entries = [entry("a", "fail"), entry("python", "fail"), entry("layers", "run")]
        code, lines = summary(entries, a=GOOGLE, python=PYTEST)
        self.assertEqual(code, 1)
        self.assertEqual(lines[-1], "3 passed, 2 failed, 3 skipped")
        self.assertIn("skipped 1: no GPU here (a: A.Skips)", lines)
        self.assertIn("skipped 1: no GPU (python: t.three)", lines)
        self.assertIn("skipped 1: no torch (python: u)", lines)
        self.assertIn("FAILED a: A.Fails", lines)

    def test_a_suite_that_crashed_has_failed(self):
        code, lines = summary([entry("layers", "run"), entry("a", "fail")])
        self.assertEqual((code, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))

    def test_a_suite_that_failed_after_its_last_test_has_failed(self):
        code, lines = summary([entry("a", "fail")], a='<testsuites><testcase classname="A" name="Runs"/></testsuites>')
        self.assertEqual((code, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))

    def test_a_skipped_entry_gives_the_last_line_of_its_output_as_the_reason(self):
        code, lines = summary([entry("layers", "run"), entry("python", "notrun", "loading\nno numpy here\n")])
        self.assertEqual((code, lines), (0, ["skipped 1: no numpy here (python)", "1 passed, 0 failed, 1 skipped"]))

    def test_nothing_that_ran_is_no_success(self):
        self.assertEqual(summary([entry("python", "notrun", "no numpy")])[0], 1)


if __name__ == "__main__":
    unittest.main()
