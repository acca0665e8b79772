"""The package itself."""

import importlib.resources
import subprocess
import sys

import finegemm


def test_every_public_name_exists_and_is_documented():
    for name in finegemm.__all__:
        assert getattr(finegemm, name).__doc__, name


def test_type_checkers_find_types():
    files = {f.name for f in importlib.resources.files(finegemm).iterdir()}
    assert {"py.typed", "_native.pyi"} <= files


def test_nothing_of_this_package_imports_a_framework():
    # tvm-ffi looks for torch and NumPy itself; without it, none of them is there.
    code = """
import sys, types
sys.modules["torch"] = sys.modules["numpy"] = sys.modules["ml_dtypes"] = None   # importing them raises ImportError
import finegemm
assert finegemm.explain(1, 8, 16, device="h200")["chosen"]
"""
    subprocess.run([sys.executable, "-c", code], check=True)
