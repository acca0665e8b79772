"""The command line tool of the package, and its commands as functions."""

import json
import os
import signal
import subprocess
import sys
import sysconfig

import pytest

import finegemm

MOCK = os.environ.get("FINEGEMM_MOCK_DRIVER")
needs_mock = pytest.mark.skipif(not MOCK, reason="FINEGEMM_MOCK_DRIVER names no driver that computes nothing")


def tool(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "finegemm", *arguments], capture_output=True, text=True, **options)


def mock_context():
    return finegemm.Context(driver_path=MOCK, cache_dir="")


def test_the_package_has_the_tool_as_a_script_and_as_a_module():
    script = os.path.join(sysconfig.get_path("scripts"), "finegemm")
    by_script = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert by_script.stdout == tool("--version").stdout == finegemm.__version__ + "\n"


def test_the_tool_says_what_is_wrong_and_exits_with_its_codes():
    ran = tool("run", "8", "16")
    assert ran.returncode == 2 and "M N K" in ran.stderr and not ran.stdout
    assert tool("run", "8", "16", "128", "--device", "cpu", "--repeats", "1").returncode == 0


def test_ctrl_c_ends_the_tool():
    process = subprocess.Popen([sys.executable, "-m", "finegemm", "run", "8192", "8192", "8192", "--device", "cpu"])
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    process.send_signal(signal.SIGINT)
    assert process.wait(1) == -signal.SIGINT


def test_the_tool_looks_for_nvrtc_in_its_own_environment():
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    code = "import os, finegemm.__main__ as m; m._native.tool = lambda _: print(os.environ['VIRTUAL_ENV']); m.main()"
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == sys.prefix


def test_doctor_has_the_options_of_its_context():
    findings = finegemm.doctor(context=finegemm.Context(cpu_threads=3, use_pack=False))["findings"]
    details = {finding["what"]: finding["detail"] for finding in findings}
    assert details["cpu"] == "3 threads"
    assert "turned off" in details["pack"]


@needs_mock
def test_doctor_sees_a_gpu():
    assert finegemm.doctor(context=mock_context())["verdict"] == "GEMMs run on the GPU"


def test_bench_times_shapes_and_lines_of_problems():
    record = finegemm.bench([(8, 16, 128), "gemm 64x128x256 groups=2"], device="cpu", repeats=1)
    assert [row["problem"].split()[1] for row in record["rows"]] == ["8x16x128", "64x128x256"]
    assert record["rows"][1]["kind"] == "grouped" and record["rows"][1]["groups"] == 2
    assert all(row["us"]["finegemm"] > 0 for row in record["rows"])


def test_bench_of_ranks_tells_what_messages_cost():
    record = finegemm.bench(["moe 2x128x128 4x2"], device="cpu", ep=True, ranks=2, repeats=1)
    assert record["ranks"] == 2 and [row["ids"] for row in record["rows"]] == ["even", "Zipf"]
    assert all(row["right"] and row["us"]["layer"] > 0 for row in record["rows"])


def test_bench_writes_its_record(tmp_path):
    record = finegemm.bench([(8, 16, 128)], device="cpu", repeats=1, output=tmp_path / "record.json")
    assert json.loads((tmp_path / "record.json").read_text()) == record


def test_errors_of_commands_are_exceptions():
    with pytest.raises(finegemm.InvalidArgument, match="must be MxNxK"):
        finegemm.bench(["8x16"], device="cpu")
    with pytest.raises(finegemm.Unsupported, match="measures on a GPU"):
        finegemm.tune([(8, 16, 128)], device="cpu")


@needs_mock
def test_tune_writes_a_plan_table(tmp_path):
    file = tmp_path / "plan.json"
    record = finegemm.tune([(8, 16, 128)], output=file, repeats=1, top=2, context=mock_context())
    assert [row["problem"] for row in record["rows"]] == ["gemm 8x16x128 e4m3:row128 e4m3:block128 bf16"]
    assert json.loads(file.read_text())["device"] == "h200"


@needs_mock
@pytest.mark.parametrize(
    "problem", ["gemm 8x16x128", "gemm 100x128x256 groups=2 alignment=64", "gemm 8x16x256 k_groups=2"]
)
def test_tuning_measures_what_the_default_context_met(tmp_path, monkeypatch, problem):
    met = {}
    monkeypatch.setenv("FINEGEMM_DRIVER", MOCK)
    monkeypatch.setattr(finegemm.tools._native, "problems", lambda handle: met[handle])
    with finegemm.tuning(tmp_path / "plan.json", repeats=1, top=1) as tuning:
        met[finegemm.tools.default_handle()] = [problem]
    (row,) = tuning.record["rows"]
    assert row["problem"].startswith(problem.split(" groups")[0].split(" k_groups")[0])
    assert ("groups=2" in row["problem"]) == ("groups=2" in problem)


def test_tuning_without_calls_on_a_gpu_measures_nothing(tmp_path):
    with finegemm.tuning(tmp_path / "plan.json") as tuning:
        finegemm.bench([(8, 16, 128)], device="cpu", repeats=1)
    assert tuning.record is None and not list(tmp_path.iterdir())


def test_tuning_measures_nothing_of_a_program_that_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(finegemm.tools._native, "problems", lambda handle: ["gemm 8x16x128"])
    with pytest.raises(ZeroDivisionError), finegemm.tuning(tmp_path / "plan.json"):
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())
