"""What a type checker says of calls."""

import pathlib
import subprocess
import sys

import pytest

import finegemm

pytest.importorskip("mypy", reason="mypy is not installed (python/requirements-style.txt)")

RIGHT = """
import numpy as np
import finegemm
x = np.zeros((128, 128), np.float32)
q, s = finegemm.quantize_rows(x)
y: np.ndarray = finegemm.gemm(q, s, q, s, out_dtype="float32", alpha=2, c=x)
finegemm.gemm(q, None, q, None, x)
finegemm.k_grouped_gemm(q, s, q, s, sizes=[128])
finegemm.grouped_gemm(q, s, q, s, masked_m=x)
"""
WRONG = {
    'finegemm.gemm("a", s, q, s)': "type-var",
    "finegemm.gemm(q, 1, q, s)": "arg-type",
    "finegemm.gemm(q, s, None, s)": "arg-type",
    "finegemm.gemm(q, s, q, 2.5)": "arg-type",
    "z: str = finegemm.gemm(q, s, q, s)": "assignment",
    "finegemm.quantize_rows([1.0])": "type-var",
    "finegemm.k_grouped_gemm(q, s, q, s, sizes=128)": "arg-type",
    "finegemm.Context(log=3)": "arg-type",
}


def test_operands_are_arrays_and_results_are_of_their_library(tmp_path):
    """One run for all lines: starting takes the checker longer than checking."""
    program = tmp_path / "program.py"
    lines = [*RIGHT.splitlines(), *WRONG]
    program.write_text("\n".join(lines) + "\n")
    root = pathlib.Path(finegemm.__file__).parents[1]
    elsewhere = {} if root.name in ("site-packages", "dist-packages") else {"MYPYPATH": str(root)}
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), str(program)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=elsewhere, check=False)
    found = {}
    for line in ran.stdout.splitlines():
        if line.startswith(program.name) and ": error: " in line:
            found.setdefault(lines[int(line.split(":")[1]) - 1], line.rpartition("[")[2].rstrip("]"))
    assert found == WRONG, ran.stdout + ran.stderr
