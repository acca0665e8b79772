"""finegemm.deep_gemm: settings of the process, and what the environment says."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from finegemm import deep_gemm
from finegemm.deep_gemm import envs, knobs


@pytest.fixture(autouse=True)
def defaults(monkeypatch):
    monkeypatch.setattr(knobs, "_knobs", knobs.Knobs())


class Gpus:
    """torch, on a machine with a GPU of 132 SMs and one of 114."""

    def __init__(self, initialised=True):
        self.initialised, self.device, self.sms = initialised, 0, (132, 114)
        self.cuda = self

    def is_initialized(self):
        return self.initialised

    def is_available(self):
        return True

    def current_device(self):
        return self.device

    def device_count(self):
        return len(self.sms)

    def get_device_properties(self, device):
        return SimpleNamespace(multi_processor_count=self.sms[device])


@pytest.fixture
def gpus(monkeypatch):
    gpus = Gpus()
    monkeypatch.setattr(knobs, "torch", gpus)
    monkeypatch.setattr(knobs, "_sms", knobs._Sms())
    return gpus


def test_the_number_of_sms_is_that_of_the_gpu_until_it_is_set(gpus):
    assert deep_gemm.get_num_sms() == 132
    deep_gemm.set_num_sms(131)
    assert deep_gemm.get_num_sms() == 131
    deep_gemm.set_num_sms(0)
    assert deep_gemm.get_num_sms() == 132
    gpus.device = 1
    assert deep_gemm.get_num_sms() == 114


def test_gpus_that_are_alike_are_not_told_apart(gpus, monkeypatch):
    gpus.sms = (132, 132)
    assert deep_gemm.get_num_sms() == 132
    monkeypatch.setattr(gpus, "current_device", None)
    assert deep_gemm.get_num_sms() == 132


def test_who_puts_back_what_he_found_leaves_no_limit(gpus):
    gpus.sms = (132, 132)
    before = deep_gemm.get_num_sms()
    deep_gemm.set_num_sms(66)
    deep_gemm.set_num_sms(before)
    assert knobs.of_call(SimpleNamespace(is_cuda=True, get_device=lambda: 0)) == {}
    assert deep_gemm.get_num_sms() == 132


@pytest.mark.parametrize("n", (-1, 133))
def test_no_more_sms_than_there_are_can_be_set(gpus, n):
    deep_gemm.set_num_sms(66)
    with pytest.raises(RuntimeError, match=rf"^num_sms: is {n}, must .*; 0 allows all"):
        deep_gemm.set_num_sms(n)
    assert deep_gemm.get_num_sms() == 66


def test_before_cuda_is_initialised_calls_compare_the_number(gpus):
    gpus.initialised = False
    deep_gemm.set_num_sms(200)
    on_gpu, on_cpu = SimpleNamespace(is_cuda=True, get_device=lambda: 0), SimpleNamespace(is_cuda=False)
    assert knobs.of_call(on_cpu) == {"num_sms": 200}
    with pytest.raises(RuntimeError, match=r"^num_sms: is 200, must be at most the 132 SMs"):
        knobs.of_call(on_gpu)
    deep_gemm.set_num_sms(64)
    assert knobs.of_call(on_gpu) == {"num_sms": 64}


@pytest.mark.parametrize("wrong", ("64", 64.0, True, None))
def test_the_number_of_sms_is_an_integer(wrong):
    with pytest.raises(TypeError, match=r"^num_sms: must be an integer, not of <class"):
        deep_gemm.set_num_sms(wrong)


def test_settings_are_kept():
    assert deep_gemm.get_tc_util() == 100 and deep_gemm.get_pdl() is False
    deep_gemm.set_tc_util(60)
    deep_gemm.set_pdl(True)
    deep_gemm.set_ignore_compile_dims(True)
    deep_gemm.use_deterministic_algorithms(True)
    deep_gemm.set_block_size_multiple_of((64, 32))
    assert deep_gemm.get_tc_util() == 60 and deep_gemm.get_pdl() is True
    assert knobs._knobs == knobs.Knobs(
        pdl=True, tc_util=60, ignores_compile_dims=True, block_multiples=(64, 32), deterministic=True
    )
    deep_gemm.set_block_size_multiple_of(16)
    assert knobs._knobs.block_multiples == (16, 16)
    with pytest.raises(RuntimeError, match=r"^tc_util: is 101, must be from 0 to 100"):
        deep_gemm.set_tc_util(101)


def test_the_alignment_is_128_until_it_is_set():
    assert deep_gemm.get_mk_alignment_for_contiguous_layout() == 128
    deep_gemm.utils.layout.set_mk_alignment_for_contiguous_layout(256)
    assert deep_gemm.get_m_alignment_for_contiguous_layout() == 256
    for arguments in ((), (64,), (64, 8)):
        assert deep_gemm.get_theoretical_mk_alignment_for_contiguous_layout(*arguments) == 128


def settings(monkeypatch, **variables):
    for name in [n for n in os.environ if n.startswith(("DG_", "DJ_", "FINEGEMM_"))]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return envs.settings.__wrapped__()


def test_the_cache_directory_is_a_folder_of_ours_in_theirs(monkeypatch, tmp_path):
    assert settings(monkeypatch).context is None
    for variable in ("DG_JIT_CACHE_DIR", "DJ_JIT_CACHE_DIR"):
        context = settings(monkeypatch, **{variable: f"{tmp_path}:/elsewhere"}).context
        assert context.options["cache_dir"] == str(tmp_path / "finegemm")
    assert settings(monkeypatch, DG_JIT_CACHE_DIR="/theirs", FINEGEMM_CACHE_DIR="/ours").context is None


@pytest.mark.parametrize("variable", ("DG_PRINT_CONFIGS", "DG_JIT_DEBUG", "DJ_JIT_DEBUG"))
def test_kernels_are_printed_if_asked(monkeypatch, variable):
    assert not settings(monkeypatch).prints_configs
    assert not settings(monkeypatch, **{variable: "0"}).prints_configs
    assert settings(monkeypatch, **{variable: "1"}).prints_configs


def test_the_kernel_of_a_problem_is_printed_once(capsys, monkeypatch):
    monkeypatch.setattr(envs, "_printed", set())
    for _ in range(2):
        envs.print_config("fp8_gemm", 64, 576, 7168, device="h200")
    envs.print_config("fp8_gemm", 0, 576, 7168)
    assert capsys.readouterr().out == "fp8_gemm m=64 n=576 k=7168 device=h200: m64n32s7w1_splitK5_x2\n"


def test_variables_without_effect_are_named_in_one_note():
    code = """
import logging
logging.basicConfig(level="INFO", format="%(message)s")
from finegemm.deep_gemm import envs
envs.settings()
envs.settings()
"""
    environment = {**os.environ, "DG_JIT_USE_NVRTC": "1", "DJ_JIT_CPP_STANDARD": "20", "DG_JIT_CACHE_DIR": ""}
    said = subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True, text=True)
    assert said.stderr.splitlines() == [
        "DG_JIT_USE_NVRTC, DJ_JIT_CPP_STANDARD: without effect here, kernels come compiled with the library"
    ]
