"""tools/check_vocabulary.py finds words that were given up, and comments that lean on others."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from check_vocabulary import ROOT, VOCABULARY, check_words, leaning_comments, read_vocabulary

WORDS = read_vocabulary("""
# a comment
[identifiers]  # another one
slab: strip
jit/turns.h: jit/yield_hints.h
[phrases]
take turns: alternate
[glossary]
run: segment
""")


class Words(unittest.TestCase):
    def found(self, text: str, path: str = "src/a.cpp") -> list[str]:
        return check_words(path, text, WORDS)

    def test_an_identifier_is_found_as_a_whole_only(self):
        self.assertEqual(self.found("x\nint slab = 1;\n"), ["src/a.cpp:2: 'slab': strip"])
        self.assertEqual(self.found("int slabs, my_slab, slab_x; Slab s;\n"), [])

    def test_documents_and_file_names_are_looked_at_too(self):
        self.assertEqual(len(self.found("see `slab`\n", "docs/a.md")), 1)
        self.assertEqual(len(self.found('#include "jit/turns.h"\n')), 1)
        self.assertEqual(len(self.found("", "src/jit/turns.h")), 1)

    def test_a_phrase_may_go_on_in_the_next_line(self):
        for text in ("they take turns\n", "// they take\n// turns\n", "they take\nturns\n"):
            self.assertEqual(len(self.found(text)), 1, text)
        self.assertEqual(self.found("they mistake turns; take turnstiles\n"), [])

    def test_a_term_of_a_glossary_is_found_there_only(self):
        self.assertEqual(len(self.found("| run | columns of a tile |\n", "docs/a.md")), 1)
        self.assertEqual(self.found("run it | run |\n", "docs/a.md"), [])

    def test_each_line_of_the_list_says_what_to_say_instead(self):
        words = read_vocabulary((ROOT / VOCABULARY).read_text())
        self.assertGreater(len(words), 50)
        for pattern, old, new in words:
            self.assertIsNone(pattern.search(new), f"{old}: {new}")


class Comments(unittest.TestCase):
    def test_a_block_that_begins_with_a_word_that_leans_is_found(self):
        for word in ("Of", "The same", "Those", "Their", "By", "And"):
            for mark, path in (("//", "a.h"), ("///", "a.cuh"), ("/*", "a.c"), ("#", "a.py"), ("    #", "a.cmake")):
                self.assertEqual(len(leaning_comments(path, f"x\n{mark} {word} B.\n")), 1, word + path)

    def test_lines_inside_of_a_block_may_begin_with_any_word(self):
        self.assertEqual(leaning_comments("a.h", "// Rows\n// Of B.\n"), [])

    def test_other_beginnings_are_none(self):
        text = "// Often.\n\n// The samples.\n\n// Bytes of B.\n\nint x;  // Of y\n\n#pragma once\n"
        self.assertEqual(leaning_comments("a.h", text), [])


if __name__ == "__main__":
    unittest.main()
