"""What documents show of the sources is what these are, and what they lead to exists."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def documents():
    """Of the repository, without what is built or installed in it."""
    for path in sorted(ROOT.rglob("*.md")):
        if not path.relative_to(ROOT).parts[0].startswith((".", "build", "dist")):
            yield path


def anchors(text: str) -> set:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(path: pathlib.Path) -> list:
    broken = []
    for target in LINK.findall(path.read_text()):
        if re.match(r"\w+:", target):
            continue  # not in this repository
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        if not there.exists() or (anchor and anchor not in anchors(there.read_text())):
            broken.append(target)
    return broken


class Documents(unittest.TestCase):
    def test_the_kernel_of_jit_md_is_a_whole_one(self):
        shown = re.search(r"```cpp\n(.*?)```", (ROOT / "docs/jit.md").read_text(), re.DOTALL)[1]
        source = (ROOT / "tests/golden/gemm_source.cu").read_text()
        self.assertEqual(shown.split(), source.split())

    def test_links_lead_somewhere(self):
        found = list(documents())
        self.assertGreater(len(found), 8)
        for path in found:
            self.assertEqual(broken_links(path), [], path.relative_to(ROOT))


if __name__ == "__main__":
    unittest.main()
