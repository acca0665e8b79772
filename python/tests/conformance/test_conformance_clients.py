"""DeepGEMM's interface as programs call it: section 23 of its specification, and what they do before they serve."""

import importlib
import os
import pathlib
import subprocess
import sys

import pytest

from clients import PROBED, PROGRAMS, SGLANG, TRANSFORMERS, VLLM
from finegemm import deep_gemm
from finegemm.deep_gemm.install import alias
from reference import MOST_OF_UNQUANTISED, calc_diff
from torch_support import DEVICES, needs_gpu, torch

HERE = pathlib.Path(__file__).parent
SCORES = ("# mqa_logits ", "# paged_mqa_logits ", "# paged_mqa_schedule ", "# prenorm_gemm ")  # in a log of calls
GPUS = [f"cuda:{i}" for i in range(torch.cuda.device_count())] if "cuda" in DEVICES else []


@pytest.fixture(autouse=True)
def _settings():
    pdl = deep_gemm.get_pdl()
    yield
    deep_gemm.set_pdl(pdl)


def found(name):
    module = deep_gemm
    for part in name.split("."):
        module = getattr(module, part)
    return module


@pytest.mark.parametrize("names", (VLLM, TRANSFORMERS, SGLANG), ids=("vllm", "transformers", "sglang"))
def test_every_name_that_a_program_looks_up_can_be_called(names):
    assert all(callable(found(name)) for name in names)


def test_names_that_are_taken_for_features_are_absent():
    assert not [name for name in PROBED if hasattr(deep_gemm, name)]


def test_the_package_answers_below_another_one_too(tmp_path, monkeypatch):
    (tmp_path / "serving").mkdir()
    alias.install(tmp_path / "serving", force=True)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    try:
        module = importlib.import_module("serving.deep_gemm.utils.layout")
        assert module is deep_gemm.utils.layout
        assert importlib.import_module("serving.deep_gemm") is deep_gemm
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]


def check(call):
    """Bytes of what it returns, where something is asked of it."""
    d = call.run()
    asked = ~call.exact.isnan()
    assert d.shape == call.exact.shape, call.name
    if d.numel():
        diff = calc_diff(d[asked], call.exact[asked])
        assert diff < 5e-6 < MOST_OF_UNQUANTISED, (call.name, diff)
    return d[asked].view(torch.uint8).clone()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_calls_of_a_program(device, program):
    for scale in (1, 4) if device == "cuda" else (1,):
        with torch.inference_mode(program != "trainers"):
            for call in PROGRAMS[program](deep_gemm, device, scale):
                check(call)


@pytest.mark.skipif(len(GPUS) < 2, reason="needs two Hopper GPUs")
@pytest.mark.parametrize("program", PROGRAMS)
def test_calls_of_a_program_run_on_the_gpu_of_their_tensors(program):
    assert torch.cuda.current_device() == 0
    for call in PROGRAMS[program](deep_gemm, GPUS[1], 1):
        check(call)


@needs_gpu
@pytest.mark.parametrize("program", PROGRAMS)
def test_calls_of_a_program_in_graphs(program):
    for call in PROGRAMS[program](deep_gemm, "cuda", 2):
        want = check(call)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            d = call.run()
        for _ in range(2):
            d.fill_(3)
            graph.replay()
            assert torch.equal(d[~call.exact.isnan()].view(torch.uint8), want), call.name


@pytest.mark.parametrize("device", DEVICES)
def test_warming_up_compiles_nothing_and_writes_no_file(device, tmp_path):
    folder, log = tmp_path / "home", tmp_path / "log"
    folder.mkdir()
    names = "HOME XDG_CACHE_HOME DG_JIT_CACHE_DIR FINEGEMM_CACHE_DIR CUDA_CACHE_PATH TMPDIR"
    environment = os.environ | dict.fromkeys(names.split(), str(folder)) | {"FINEGEMM_LOG": f"calls:{log}"}
    if device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    program = [sys.executable, HERE / "warm_up.py", device]
    done = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    calls = [line for line in log.read_text().splitlines() if line.startswith(("gemm ", "grouped", *SCORES))]
    assert len(calls) > 50
    assert all(any(line.startswith(kind) for line in calls) for kind in SCORES)
    assert not [line for line in calls if ", compiled" in line or ", disk" in line]
    assert device == "cpu" or [line for line in calls if ", pack" in line]
    assert not [path for path in folder.rglob("*") if path.is_file()]
