"""A build without its libraries ends with one sentence about all of them."""

import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Missing(unittest.TestCase):
    def test_everything_that_is_missing_is_named_at_once_with_its_packages(self):
        gone = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("fmt", "CLI11")]
        with tempfile.TemporaryDirectory() as folder:
            ran = subprocess.run(
                ["cmake", "-S", ROOT, "-B", folder, "-DFINEGEMM_PACK=none", "-DFINEGEMM_TESTS=OFF", *gone],
                capture_output=True,
                text=True,
            )
        self.assertNotEqual(ran.returncode, 0)
        message = " ".join(ran.stderr.split())
        self.assertIn("FineGEMM is built with fmt, CLI11, which this machine lacks", message)
        for way_out in ("apt-get install libfmt-dev libcli11-dev`", "dnf install fmt-devel cli11-devel`", "fmt cli11`"):
            self.assertIn(way_out, message)


if __name__ == "__main__":
    unittest.main()
