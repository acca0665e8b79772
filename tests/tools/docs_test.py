"""What documents show of the sources is what these are."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Documents(unittest.TestCase):
    def test_the_kernel_of_jit_md_is_a_whole_one(self):
        shown = re.search(r"```cpp\n(.*?)```", (ROOT / "docs/jit.md").read_text(), re.DOTALL)[1]
        source = (ROOT / "tests/golden/gemm_source.cu").read_text()
        self.assertEqual(shown.split(), source.split())


if __name__ == "__main__":
    unittest.main()
