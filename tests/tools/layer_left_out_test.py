"""bench/layer_left_out.py finds what it leaves out in the kernels' text, and changes no length."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from layer_left_out import LEFT_OUT, is_bound_by_bytes, products_and_copies, without  # noqa: E402

TEXT = b"".join(path.read_bytes() for path in sorted((ROOT / "kernels").rglob("*")) if path.is_file())


class LayerLeftOut(unittest.TestCase):
    def test_each_part_is_in_the_kernels_once_and_gives_a_text_as_long(self):
        for name, parts in LEFT_OUT.items():
            changed = without(TEXT, parts)
            self.assertEqual(len(changed), len(TEXT), name)
            for old, _ in parts:
                self.assertNotIn(old.encode(), changed, name)
                self.assertTrue("wgmma" in old or TEXT.count(old.encode()) == 1, old)

    def test_launches_beyond_the_fewest_are_no_products(self):
        us = {"whole": 200.0, "no passes": 170.0, "launches": 25.0, "input copied": 30.0, "nothing copied": 5.0}
        self.assertEqual(products_and_copies(us, 20.0), 0.95)

    def test_the_input_of_an_activation_that_has_a_launch_comes_from_l2(self):
        us = {"whole": 200.0, "no passes": 150.0, "launches": 20.0, "input copied": 25.0, "nothing copied": 5.0}
        us |= {"activation's input written": 12.0, "activation copied": 22.0}
        self.assertEqual(products_and_copies(us, 20.0), 0.9)

    def test_rows_are_those_of_short_weights_or_of_weights_that_take_longest(self):
        for weights, products, wanted in ((99.0, 500.0, True), (500.0, 249.0, True), (500.0, 251.0, False)):
            row = {"weights_us": weights, "products_us": products}
            self.assertEqual(is_bound_by_bytes(row, 100.0), wanted, row)

    def test_a_text_that_is_not_there_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "the build has no such text: nothing like it"):
            without(TEXT, (("nothing like it", ""),))


if __name__ == "__main__":
    unittest.main()
