"""bench/measured.py: what documents show of records, and what is computed from one."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import measured  # noqa: E402
import records  # noqa: E402


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
    def test_has_a_row_for_each_layer_and_the_better_peer_by_class_of_m(self):
        lines = measured.dense(RECORD)
        self.assertIn("| 256 x 512 | 2.0 us, 0 |  | 2.0 us, 8 | 4.0 us, 8 |  |  |", lines)
        of_m = ["| 1 to 128 | 1.00, least 0.50, 1 of 3 behind |", "| 2048 to 8192 | 0.50, least 0.50, 1 of 1 behind |"]
        for line, begin in zip(lines[-3:], [*of_m, "| 1 to 8192 | 0.84, least 0.50, 2 of 4 behind |"], strict=True):
            self.assertEqual(line[: len(begin)], begin)
        self.assertFalse(any("DeepGEMM" in line or "264" in line for line in lines))

    def test_of_classes_has_each_peer_where_it_was_timed(self):
        lines = measured.classes(RECORD)
        self.assertIn("| M | the better of cuBLASLt's two modes | cuBLASLt with block scales |", lines[0])
        self.assertIn("| 2.12, least 1.50, 0 of 2 behind | 0.84, least 0.50, 2 of 4 behind |", lines[-1])
        self.assertFalse(any("DeepGEMM" in line or "256 to 1024" in line for line in lines))

    def test_intensity_counts_each_matrix_and_its_scales_once(self):
        self.assertEqual(records.operations([3, 264, 144]), 2 * 3 * 264 * 144)
        self.assertEqual(records.traffic([3, 264, 144]), 3 * 144 + 264 * 144 + 2 * 3 * 264 + 4 * (3 * 2 + 3 * 2))

    def test_ceilings_are_those_that_were_measured(self):
        flop, traffic = records.ceilings(RECORD)
        self.assertAlmostEqual(flop, 2 * 8192**3 / 1000)
        self.assertAlmostEqual(traffic, 4e6)
        self.assertEqual(records.ceilings({}), (0, 0))


CHECKS = {
    "checks": {
        "grouped_skew": {
            "even": {"of_floor": 0.9, "of_even": 1.0},
            "one expert has 90%": {"of_even": 0.885},
            "zipf": {"of_even": 0.94},
            "half are empty": {"of_even": 1.761},
            "128 experts of 1 to 8 rows, 256x4096": {"of_floor": 0.824},
            "384 experts of 1 to 8 rows, 512x7168": {"of_floor": 0.984},
        },
        "grouped_tall": {"in one group": {"of_even": 1.077}},
        "grouped_capacity": {"us": {"1": {"graph": 9.22, "exact": 9.47, "planned": 8.26, "within_target": True}}},
        "dependent_launch": {"m": {"16": {"us_without": 92.54, "us_with": 89.0, "us_with_prefetch": 86.0}}},
        "num_sms": {"time_over_132_sms": {"1x2x3": {"131": 1.0, "5": 9.3}, "4x5x6": {"131": 1.01, "5": 20.7}}},
        "batch_invariant": {"time_over_default": {"1x8x16": 1.5, "7x8x16": 1.0, "1x24x32": 0.99}},
        "layouts": {"row_over_mn": 1.0128, "each": [0.99, 1.03]},
    }
}


def grouped_row(groups: int, rows: int, tflop_per_s: float, gb_per_s: float) -> dict:
    return {"groups": groups, "expected_m": rows, "tflop_per_s": tflop_per_s, "gb_per_s": gb_per_s}


class Parts(unittest.TestCase):
    def test_groups_have_the_least_and_the_most_of_each_kind(self):
        rows = [
            grouped_row(64, 64, 1, 3777),
            grouped_row(64, 4, 1, 4243),
            grouped_row(32, 20, 1, 3717.0),
            grouped_row(32, 256, 957.4, 1),
            grouped_row(32, 256, 1047, 1),
            grouped_row(8, 4096, 1265, 1),
            grouped_row(4, 8192, 1384.6, 1),
        ]
        gradients = {"rows": [{"shape": [1000, 1000, 1000], "us": {"finegemm": 2.0}}]}
        of_k = {"rows": [{"tflop_per_s": 915.6}, {"tflop_per_s": 1082.4}]}
        lines = measured.groups({"rows": rows}, CHECKS, gradients, of_k)
        self.assertEqual(
            [line.split(" | ")[1].rstrip(" |") for line in lines[2:]],
            [
                "3.8 to 4.2 TB/s",
                "3.7 to 3.7 TB/s",
                "957 to 1047 TFLOP/s",
                "1265 to 1385 TFLOP/s",
                "0.82 to 0.98 of what 4.2 TB/s would allow",
                *(f"{speed} of the speed of even groups" for speed in (0.89, 0.94, 1.76, 1.08)),
                "1000 to 1000 TFLOP/s",
                "916 to 1082 TFLOP/s",
            ],
        )

    def test_checks_have_a_row_for_each_case(self):
        self.assertEqual(measured.capacity(CHECKS)[2:], ["| 1 | 9.2 us | 9.5 us | 8.3 us |"])
        self.assertEqual(measured.dependent_launch(CHECKS)[2:], ["| 16 | 92.5 us | 89.0 us | 86.0 us |"])
        self.assertEqual(
            measured.sm_budget(CHECKS),
            ["| SMs | 131 | 5 |", "| --- | --- | --- |", "| 1x2x3 | 1.00 | 9.30 |", "| 4x5x6 | 1.01 | 20.70 |"],
        )
        self.assertEqual(
            measured.batch_invariance(CHECKS),
            ["| N x K | M = 1 | M = 7 |", "| --- | --- | --- |", "| 8 x 16 | 1.50 | 1.00 |", "| 24 x 32 | 0.99 |  |"],
        )
        self.assertIn("take 1.013 of the time", measured.layouts(CHECKS)[0])

    def test_a_part_is_written_between_its_marks_and_nothing_else(self):
        text = "a\n<!-- measured: x -->\nold\n<!-- measured: end -->\nb\n<!-- measured: y -->\n<!-- measured: end -->\n"
        self.assertEqual(measured.written(text, "x", ["1", "2"]), text.replace("old", "1\n2"))
        self.assertEqual(measured.written(text, "y", ["1"]), text[: -len(measured.END)] + "1\n" + measured.END)
        with self.assertRaisesRegex(ValueError, "measured: z"):
            measured.written(text, "z", [])


if __name__ == "__main__":
    unittest.main()
