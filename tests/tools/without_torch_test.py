"""Benchmarks where there is no torch: help, and a sentence instead of a traceback."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
PROGRAMS: dict[str, list[str]] = {
    "sweep": ["build.so", "record.json"],
    "compare_builds": ["build.so"],
    "conformance": [],
    "deep_gemm_time": [],
    "torch_training": [],
}


class WithoutTorch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        (pathlib.Path(folder.name) / "torch.py").write_text("raise ImportError('No module named torch')\n")
        self.environment = os.environ | {"PYTHONPATH": folder.name}

    def run_program(self, name: str, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, BENCH / f"{name}.py", *arguments], env=self.environment, capture_output=True, text=True
        )

    def test_help_needs_none(self):
        for name in PROGRAMS:
            done = self.run_program(name, "--help")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(done.stdout.startswith(f"usage: {name}.py"), done.stdout)

    def test_that_it_is_missing_is_said(self):
        for name, arguments in PROGRAMS.items():
            done = self.run_program(name, *arguments)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stderr, f"{name}: needs torch and a Hopper GPU: torch is not installed\n")


if __name__ == "__main__":
    unittest.main()
