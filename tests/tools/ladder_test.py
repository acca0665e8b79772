"""tools/ladder.py holds rows to its rules, shows them all, and finds them; docs/ladder.json keeps the rules."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import ladder


def row(**changed) -> dict:
    return {
        "area": "ring",
        "technique": "Ten stages for eight",
        "shapes": "64x80 tiles",
        "prediction": "not predicted",
        "result": "3% faster",
        "kept": "yes",
        "record": ["ladder_h200.json"],
    } | changed


def output_of(*arguments: str) -> tuple[int, str]:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        return ladder.main(list(arguments)), printed.getvalue()


class Rules(unittest.TestCase):
    def test_a_row_that_keeps_them_has_no_fault(self):
        self.assertEqual(ladder.faults([row()]), [])

    def test_area_and_verdict_are_of_closed_sets(self):
        for changed in (
            {"area": "rings"},
            {"kept": "maybe"},
            {"kept": "not yet"},
            {"kept": "in part"},
        ):
            self.assertEqual(len(ladder.faults_of(row(**changed))), 1, changed)
        for kept in ("no", "no: it spills", "in part: 128x96 tiles", "experiment"):
            self.assertEqual(ladder.faults_of(row(kept=kept)), [], kept)

    def test_fields_are_these_in_this_order_and_none_is_empty(self):
        self.assertEqual(len(ladder.faults_of(row(note="a"))), 1)
        self.assertEqual(len(ladder.faults_of(dict(reversed(row().items())))), 1)
        for text in ("", " ", "a | b", "a\nb", None):
            self.assertEqual(len(ladder.faults_of(row(prediction=text))), 1, text)

    def test_a_row_stands_alone(self):
        for text in (
            "then ten stages",
            "and ten stages",
            "Ten stages, again",
            "the same in groups",
            "as above",
            "as before",
            "also with the row above",
            "2% with the first one",
            "the rest of it",
        ):
            self.assertEqual(len(ladder.faults_of(row(result=text))), 1, text)
        for text in (
            "as fast as ten stages and one more",
            "the first k-block",
            "strengthened",
            "before the wait",
        ):
            self.assertEqual(ladder.faults_of(row(result=text)), [], text)

    def test_records_exist_and_techniques_differ(self):
        self.assertEqual(len(ladder.faults_of(row(record=["ladder_h300.json"]))), 1)
        self.assertEqual(ladder.faults_of(row(record=[])), [])
        self.assertEqual(len(ladder.faults([row(), row(result="2% slower")])), 1)


class Data(unittest.TestCase):
    rows = ladder.load()

    def test_rows_keep_the_rules(self):
        self.assertGreater(len(self.rows), 180)
        self.assertEqual(ladder.faults(self.rows), [])

    def test_every_area_has_rows(self):
        self.assertEqual({row["area"] for row in self.rows}, set(ladder.AREAS))

    def test_the_pages_show_every_row_once_and_what_was_kept_first(self):
        shown = {name: (ladder.DOCS / name).read_text() for name in (ladder.PRODUCTS, ladder.OPERATIONS)}
        self.assertEqual(shown, ladder.pages(self.rows))
        for row in self.rows:
            start = f"| {row['technique']} | {row['shapes']} |"
            counts = {name: text.count(start) for name, text in shown.items()}
            self.assertEqual(counts, {name: int(name == ladder.page_of(row["area"])) for name in shown}, start)
        for area in "".join(shown.values()).split("\n## "):
            ranks = [ladder.KEPT.index(line.split("**")[1]) for line in area.splitlines() if "**" in line]
            self.assertEqual(ranks, sorted(ranks), area.splitlines()[0])

    def test_each_area_is_linked_to_where_its_rows_are(self):
        first = ladder.pages(self.rows)[ladder.PRODUCTS]
        self.assertIn("| [ring](#ring) |", first)
        self.assertIn("| [indexer](ladder_operations.md#indexer) |", first)
        self.assertLessEqual(set(ladder.OF_OPERATIONS), set(ladder.AREAS))

    def test_the_data_has_a_line_for_each_row(self):
        self.assertEqual(ladder.DATA.read_text().count("\n"), len(self.rows) + 2)
        self.assertEqual(ladder.DATA.read_text(), ladder.text_of(self.rows))


class Commands(unittest.TestCase):
    def test_find_takes_rows_that_have_all_words_or_longer_ones(self):
        rows = [
            row(),
            row(technique="Eighteen stages", result="0.3% slower"),
            row(technique="128x80 stages"),
        ]
        self.assertEqual(ladder.find(rows, ["stage", "SLOWER"]), rows[1:2])
        self.assertEqual(ladder.find(rows, ["8x80"]), [])
        self.assertEqual(ladder.find(rows, ["64x80"]), rows)

    def test_find_prints_rows_with_their_records_or_says_that_there_is_none(self):
        status, printed = output_of("find", "stream-k")
        self.assertEqual(status, 0)
        self.assertIn("scheduler: Stream-K", printed)
        self.assertIn("bench/results/ladder_h200.json", printed)
        self.assertEqual(output_of("find", "ring", "xyzzy"), (1, "no row has all of: ring, xyzzy\n"))

    def test_check_tells_of_a_stale_page_and_of_faults(self):
        self.assertEqual(output_of("--check")[0], 0)
        with tempfile.TemporaryDirectory() as folder:
            docs = pathlib.Path(folder)
            data, page = docs / "ladder.json", docs / ladder.PRODUCTS
            with mock.patch.multiple(ladder, DATA=data, DOCS=docs, load=lambda: [row()]):
                data.write_text(ladder.text_of([row()]))
                page.write_text("old")
                self.assertEqual(output_of("--check")[0], 1)
                self.assertEqual(output_of()[0], 0)
                self.assertEqual(output_of("--check"), (0, "the pages show 1 rows\n"))
            with mock.patch.multiple(ladder, DATA=data, DOCS=docs, load=lambda: [row(area="rings")]):
                before = page.read_text()
                self.assertEqual(output_of("--check")[0], 1)
                self.assertEqual(output_of()[0], 1)
                self.assertEqual(page.read_text(), before)


if __name__ == "__main__":
    unittest.main()
