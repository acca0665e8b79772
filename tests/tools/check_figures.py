"""bench/figures.py: what is drawn of a record. Exit code 77 without matplotlib."""

import json
import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
try:
    import matplotlib
except ImportError:
    print("no matplotlib here; ./dev test installs it in .venv")
    sys.exit(77)
from report_test import RECORD, row  # noqa: E402

import diagrams  # noqa: E402
import figures  # noqa: E402
import report  # noqa: E402
import torch_curves  # noqa: E402

PINNED = (ROOT / "bench/requirements.txt").read_text().split("==")[1].split()[0]


class Figures(unittest.TestCase):
    def draw(self, record: dict, folder: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in figures.draw(record, "r", pathlib.Path(folder))}

    def test_are_the_same_bytes_for_the_same_record(self):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            first, second = self.draw(RECORD, one), self.draw(RECORD, two)
        self.assertEqual(sorted(first), ["r_roofline.png", "r_roofline.svg", "r_speedup.png", "r_speedup.svg"])
        self.assertEqual(first, second)

    def test_show_every_time(self):
        with tempfile.TemporaryDirectory() as folder:
            before = self.draw(RECORD, folder)["r_roofline.svg"]
            less = RECORD | {"rows": RECORD["rows"][:2]}
            after = self.draw(less, folder)["r_roofline.svg"]
        series = re.compile(r'id="PathCollection_.*?\n   </g>', re.DOTALL)
        points = ["".join(series.findall(svg.decode())).count("<use ") for svg in (before, after)]
        self.assertEqual(points[0] - points[1], 5, "two rows of ours, two of one peer, one of the other")

    def test_without_peers_or_ceilings_show_what_there_is(self):
        alone = {"machine": {"name": "GPU"}, "rows": [row(m, 256, 512, finegemm=2.0) for m in (1, 2)]}
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(sorted(self.draw(alone, folder)), ["r_roofline.png", "r_roofline.svg"])

    def test_of_many_layers_are_sorted_rows(self):
        many = RECORD | {"rows": [row(64, 8 * n, 512, finegemm=2.0, cublas_tensor=2.0 + n) for n in range(1, 30)]}
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn("r_speedup.svg", self.draw(many, folder))

    def test_of_layouts_that_are_committed_are_what_is_drawn(self):
        if matplotlib.__version__ != PINNED:
            self.skipTest(f"matplotlib is {matplotlib.__version__}, the figures are drawn by {PINNED}")
        with tempfile.TemporaryDirectory() as folder:
            for path in diagrams.draw(pathlib.Path(folder)):
                committed = (report.FIGURES / path.name).read_bytes()
                self.assertEqual(path.read_bytes(), committed, f"{path.name} is stale: run ./dev report")

    def test_that_are_committed_show_the_committed_record(self):
        if matplotlib.__version__ != PINNED:
            self.skipTest(f"matplotlib is {matplotlib.__version__}, the figures are drawn by {PINNED}")
        record = json.loads(report.RECORD.read_text())
        with tempfile.TemporaryDirectory() as folder:
            for path in figures.draw(record, report.RECORD.stem, pathlib.Path(folder)):
                if path.suffix == ".svg":
                    committed = (report.FIGURES / path.name).read_bytes()
                    self.assertEqual(path.read_bytes(), committed, f"{path.name} is stale: run ./dev report")
        record = json.loads((ROOT / "bench/results/torch_curves_cpu.json").read_text())
        with tempfile.TemporaryDirectory() as folder:
            svg, _ = torch_curves.draw(record, "torch_curves_cpu", pathlib.Path(folder))
            committed = (report.FIGURES / svg.name).read_bytes()
            self.assertEqual(svg.read_bytes(), committed, f"{svg.name} is stale: run bench/torch_curves.py --draw")


if __name__ == "__main__":
    unittest.main()
