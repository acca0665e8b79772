"""bench/moe_turns.py takes the rows whose layer was slower than the faster call for each step."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from moe_turns import over_moe, slower


class MoeTurns(unittest.TestCase):
    def test_rows_are_those_of_which_either_chain_was_faster(self):
        rows = [{"us": {"moe": 100.0, "chain": a, "chain, pdl": b}} for a, b in ((99, 120), (120, 99), (100, 101))]
        self.assertEqual(slower(rows), rows[:2])

    def test_ratios_are_of_the_faster_chain_and_of_the_layer_once_more(self):
        us = {"moe": 200.0, "moe, again": 201.0, "chain": 210.0, "chain, pdl": 204.0}
        self.assertEqual(over_moe(us), {"chain of moe": 1.02, "again of moe": 1.005})


if __name__ == "__main__":
    unittest.main()
