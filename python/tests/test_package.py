"""The package itself."""

import copy
import importlib.metadata
import importlib.resources
import json
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import finegemm
from support import operands


def test_every_public_name_exists_and_is_documented():
    for name in finegemm.__all__:
        assert getattr(finegemm, name).__doc__, name


def test_the_version_is_that_of_the_distribution():
    assert finegemm.__version__ == importlib.metadata.version("finegemm")


def test_type_checkers_find_types():
    files = {f.name for f in importlib.resources.files(finegemm).iterdir()}
    assert {"py.typed", "_native.pyi"} <= files


def test_the_wheel_has_every_kernel_for_each_driver_that_it_was_built_for():
    library = next(f for f in importlib.resources.files(finegemm).iterdir() if f.name.startswith("_native.abi3"))
    content = library.read_bytes()
    packs = [m.start() for m in re.finditer(b"FGPACK01", content)]
    counts = [int.from_bytes(content[at + 8 : at + 16], "little") for at in packs]
    golden = json.loads((pathlib.Path(__file__).parents[2] / "tests/golden/kernel_text.json").read_text())
    expected = {len(kernels) for kernels in golden.values()}
    whole = [c for c in counts if c < 10_000]  # the name stands in the code that reads packs, too
    assert len(whole) >= len(os.environ.get("PACK_CUDA", "13").split(";")) and set(whole) <= expected


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda context: pickle.loads(pickle.dumps(context))])
def test_a_context_is_copied_and_pickled_by_its_options(again):
    context = finegemm.Context(cpu_threads=1, cache_dir="")
    twin = again(context)
    assert twin.options == context.options and twin.options["cpu_threads"] == 1
    assert twin.handle is not context.handle
    a, sfa, b, sfb = operands(8, 16, 128)
    assert np.array_equal(finegemm.gemm(a, sfa, b, sfb, context=twin), finegemm.gemm(a, sfa, b, sfb, context=context))


def test_nothing_of_this_package_imports_a_framework():
    code = """
import sys
sys.modules["torch"] = sys.modules["numpy"] = sys.modules["ml_dtypes"] = None   # importing them raises ImportError
import finegemm
assert finegemm.explain(1, 8, 16, device="h200")["chosen"]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_program_may_end_while_a_thread_multiplies():
    code = """
import threading
import numpy as np
import finegemm

a, b, d = np.zeros((512, 4096), np.uint8), np.zeros((512, 4096), np.uint8), np.zeros((512, 512), np.uint16)
sfa, sfb = np.ones((512, 32), np.float32), np.ones((4, 32), np.float32)
done = threading.Event()

def work():
    while True:
        finegemm.gemm(a, sfa, b, sfb, d)
        done.set()

threading.Thread(target=work, daemon=True).start()
done.wait()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_module_is_of_the_stable_abi():
    assert finegemm._native.__file__.endswith("_native.abi3.so")


def test_the_module_needs_no_library_but_those_of_the_compiler():
    if not shutil.which("readelf"):
        pytest.skip("no readelf, which says what a library needs")
    listed = subprocess.run(["readelf", "-d", finegemm._native.__file__], capture_output=True, text=True, check=True)
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", listed.stdout))
    assert {
        name for name in needed if not re.match(r"lib(c|m|dl|pthread|rt|stdc\+\+|gcc_s)\.so|ld-linux", name)
    } == set()


def test_a_misspelt_variable_draws_a_warning(monkeypatch):
    monkeypatch.setenv("FINEGEMM_CPU_THREAD", "1")
    with pytest.warns(RuntimeWarning, match="did you mean FINEGEMM_CPU_THREADS"):
        assert "sentence" not in finegemm.Context().options


def test_types_of_arguments_are_checked():
    for options in ({"cache_dir": 3}, {"cpu_threads": "all"}, {"use_pack": "no"}, {"batch_invariant": 0}):
        with pytest.raises(TypeError, match=f"{next(iter(options))}: must be"):
            finegemm.Context(**options)


FLAGS = {
    "gemm": ("check_values", "batch_invariant", "pdl", "prefetch_weights", "accumulate"),
    "quantize_rows": ("power_of_two_scales",),
    "quantize_columns": ("rows", "power_of_two_scales"),
    "reencode": ("blocks", "pdl"),
    "scale_layout": ("packed", "power_of_two_scales"),
    "explain": ("row_b_scales", "batch_invariant"),
}


@pytest.mark.parametrize("function, flag", [(name, flag) for name, flags in FLAGS.items() for flag in flags])
def test_flags_are_booleans(function, flag):
    arguments = {
        "gemm": (*operands(16, 32, 128), np.zeros((16, 32), np.uint16)),
        "quantize_rows": (np.ones((4, 128), np.float32),),
        "quantize_columns": (np.ones((4, 128), np.float32),),
        "reencode": (operands(4, 8, 128)[0], np.zeros((4, 1), np.int32)),
        "scale_layout": (np.ones((4, 3), np.float32),),
        "explain": (1, 8, 16, "h200"),
    }

    def call(value):
        getattr(finegemm, function)(*arguments[function], **{flag: value})

    for no in (False, np.False_):
        call(no)
    for wrong in ("no", 0, [], np.zeros(1)):
        with pytest.raises(TypeError, match=f"{flag}: must be True or False, not of <class '.*'>"):
            call(wrong)
