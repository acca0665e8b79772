"""bench/report.py: README's table and what is computed from a record."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import records  # noqa: E402
import report  # noqa: E402


def row(m: int, n: int, k: int, **us: float) -> dict:
    return {"kind": "dense", "shape": [m, n, k], "us": us}


RECORD = {
    "machine": {"name": "NVIDIA H200", "driver_version": "580.1"},
    "ceilings_us": {"cublas_tensor fp8 8192^3": 1000.0, "read+write of 4 GB each": 2147.483648},
    "rows": [
        row(1, 256, 512, finegemm=2.0, cublas_tensor=1.0),
        row(64, 256, 512, finegemm=2.0, cublas_tensor=4.0, cublas_block=6.0),
        row(128, 256, 512, finegemm=4.0, cublas_tensor=4.0),
        row(8192, 256, 512, finegemm=8.0, cublas_tensor=4.0, cublas_block=12.0),
        row(9, 264, 512, cublas_tensor=4.0),
        {"kind": "masked", "shape": [1, 2], "us": {"finegemm": 1.0}},
    ],
}


class Table(unittest.TestCase):
    def test_has_a_row_for_each_layer_and_a_mean_for_each_peer(self):
        lines = report.table(RECORD).splitlines()
        self.assertIn("| 256 x 512 | 2.0 us, 0 |  | 2.0 us, 8 | 4.0 us, 8 |  |  |", lines)
        self.assertIn("- cuBLASLt with one scale per tensor takes 0.84 times as long, in geometric mean over 4 shapes.",
                      lines)
        self.assertIn("- cuBLASLt with block scales takes 2.12 times as long, in geometric mean over 2 shapes.", lines)
        self.assertFalse(any("DeepGEMM" in line or "264" in line for line in lines))

    def test_intensity_counts_each_matrix_and_its_scales_once(self):
        self.assertEqual(records.operations([3, 264, 144]), 2 * 3 * 264 * 144)
        self.assertEqual(records.traffic([3, 264, 144]), 3 * 144 + 264 * 144 + 2 * 3 * 264 + 4 * (3 * 2 + 3 * 2))

    def test_ceilings_are_those_that_were_measured(self):
        flop, traffic = records.ceilings(RECORD)
        self.assertAlmostEqual(flop, 2 * 8192**3 / 1000)
        self.assertAlmostEqual(traffic, 4e6)
        self.assertEqual(records.ceilings({}), (0, 0))


if __name__ == "__main__":
    unittest.main()
