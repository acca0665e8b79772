"""tools/header_pages.py, tools/site_hooks.py: what the site has beside the documents. Hooks need mkdocs."""

import importlib.util
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import header_pages  # noqa: E402

HEADERS = sorted((ROOT / "include/finegemm").glob("*.h"))


class Headers(unittest.TestCase):
    def test_every_exported_function_has_a_heading_and_its_declaration(self):
        found = 0
        for header in HEADERS:
            text = header.read_text()
            names = re.findall(r"^FINEGEMM_(?:C_)?API [^;{]*?(\w+)\(", text, re.MULTILINE)
            page = header_pages.page(f"finegemm/{header.name}", text)
            for name in names:
                self.assertIn(f"\n## {name}\n", page)
                self.assertRegex(page, rf"```cpp\nFINEGEMM_(C_)?API [^`]*\b{name}\(")
            found += len(names)
        self.assertGreater(found, 15)

    def test_every_public_struct_has_all_of_its_members(self):
        for header in HEADERS:
            text = header.read_text()
            page = header_pages.page(f"finegemm/{header.name}", text)
            for member in re.findall(r"^    [\w:<>* ]+ (\w+)(?: = [^;]*|\{\}|\[\w+\])?;", text, re.MULTILINE):
                self.assertRegex(page, rf"\b{member}\b")

    def test_comments_go_on_and_stand_before_or_behind(self):
        lines = ["int a = 1;  ///< one", "            ///< more", "/// before", "int b;", "int c; /* c | d */"]
        code = "struct S {\n    " + "\n    ".join(lines) + "\n};"
        (found,) = header_pages.declarations(f"/// What S is.\n{code}\n")
        self.assertEqual((found.name, found.comment), ("S", "What S is."))
        self.assertEqual(
            header_pages.members(code), [("int a = 1", "one more"), ("int b", "before "), ("int c", "c | d")]
        )
        self.assertIn(r"| `int c` | c \| d |", header_pages.shown(code))

    def test_a_class_with_access_is_shown_as_code(self):
        code = "class C {\npublic:\n    int a;\n};"
        self.assertEqual(header_pages.shown(code), ["```cpp", code, "```"])


@unittest.skipUnless(importlib.util.find_spec("mkdocs"), "no mkdocs here; ./dev site installs it in .venv")
class Hooks(unittest.TestCase):
    def setUp(self):
        import site_hooks

        self.hooks = site_hooks

    def test_links_become_those_of_the_site(self):
        text = "[a](scales.md#loading) [b](../include/finegemm/gemm.h) [c](../src/os/process.cpp) [d](absent.md)"
        text += " [e](../SECURITY.md) [f](../bench/results/dense_h200.json)"
        self.assertEqual(
            re.findall(r"\((.*?)\)", self.hooks.relinked("docs/grouped.md", text)),
            [
                "scales.md#loading",
                "reference/cpp/gemm.md",
                "source/src/os/process.cpp.md",
                "absent.md",
                "project/security.md",
                "source/bench/results/dense_h200.json",
            ],
        )
        self.assertEqual(self.hooks.relinked("docs/how-to/a.md", "[b](../../README.md)"), "[b](../README.md)")

    def test_patterns_of_pages_name_each_page_once_and_empty_parts_go(self):
        nav = [{"A": ["b.md", "absent.md"]}, {"B": ["absent.md"]}, {"C": ["*.md", {"D": ["r/*.md"]}]}]
        self.assertEqual(
            self.hooks.expanded(nav, ["a.md", "b.md", "r/a.md"], set()),
            [{"A": ["b.md"]}, {"C": ["a.md", {"D": ["r/a.md"]}]}],
        )


if __name__ == "__main__":
    unittest.main()
