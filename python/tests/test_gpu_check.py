"""bench/gpu_check.py on the CPU's model of a GPU: each check passes, and fails where a column of one D is wrong."""

import argparse
import json
import os
import pathlib
import sys

import pytest

from gpu_rehearsal import OnCpu, Rehearsal
from support import program
from torch_support import torch

LIBRARY = pathlib.Path(os.environ.get("FINEGEMM_LIBRARY", pathlib.Path(__file__).parents[2] / "build/libfinegemm.so"))
pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")

FEW = 6  # random problems: one in each form


@pytest.fixture
def rehearsal(monkeypatch):
    return Rehearsal(str(LIBRARY), monkeypatch, FEW)


# What has no large problems, and nothing that the CPU's checks of arguments would refuse; a call whose D is looked at.
CHECKS = {
    "shapes": 1,
    "grouped": 1,
    "unscaled": 1,
    "affine": 1,
    "head_gaps": 1,
    "gated": 1,
    "einsum": 1,
    "graph": 11,
    "integers_repeat": 1,
    "integers_options": 2,
    "integers_beyond_31_bits": 1,
    "mx": 1,
    "mx_many": 3,  # of few rows there is one kernel, whose bits are those of nothing else
    "mx_repeat": 1,
    "mx_options": 2,
    "mx_beyond_31_bits": 1,
    "streams": 1,
    "devices": 1,
    "quantize": 1,
    "quantize_weights": 1,
    "quantize_columns": 1,
    "quantize_columns_repeat": 4,
    "whole_rows": 1,
    "whole_rows_repeat": 4,
    "reencode": 1,
    "reencode_repeat": 3,
    "reencode_graph": 4,
    "swiglu": 1,
    "swiglu_values": 1,
    "swiglu_repeat": 3,
    "four_bit": 1,
    "four_bit_many": 1,
    "four_bit_repeat": 5,
    "scale_layout": 1,
    "scale_layout_repeat": 4,
    "mqa": 1,
    "mqa_schedule": 1,
    "mqa_repeat": 4,
    "mqa_many": 2,
    "mqa_graph": 4,
    "mqa_devices": 1,
    "prenorm": 1,
    "prenorm_repeat": 4,
    "prenorm_graph": 3,
    "prenorm_devices": 2,
    "routing": 4,
    "routing_repeat": 7,
    "routing_graph": 7,
    "routing_devices": 6,
    "ep_bits": 2,
    "ep_many": 2,
    "ep_graph": 3,
    "topk": 1,
    "topk_repeat": 4,
    "topk_graph": 3,
    "topk_devices": 1,
    "moe_bits": 1,
    "moe_repeat": 3,
    "moe_graph": 4,
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_passes(rehearsal, name):
    assert rehearsal.run(name)


@pytest.mark.parametrize(("name", "call"), [of for of in CHECKS.items() if of[0] != "streams"])  # as devices do
def test_a_check_sees_wrong_bits(rehearsal, name, call):
    with pytest.raises(AssertionError, match=r"differ|elements"):
        rehearsal.run(name, spoil=call)


def test_the_sanitizers_run_every_kernel(rehearsal):
    assert rehearsal.run("kernels")["kernels"] > 100
    assert rehearsal.run("quantize_kernels") == {"kernels": 35}
    assert rehearsal.run("swiglu_kernels") == {"kernels": 5}
    assert rehearsal.run("scale_layout_kernels") == {"kernels": 11}
    assert rehearsal.run("mqa_kernels") == {"kernels": 31}
    assert rehearsal.run("prenorm_kernels") == {"kernels": 4}
    assert rehearsal.run("routing_kernels") == {"kernels": 8}
    assert rehearsal.run("ep_kernels") == {"kernels": 3}
    assert rehearsal.run("topk_kernels") == {"kernels": 7}
    assert rehearsal.run("four_bit_kernels") == {"kernels": 4}


def test_a_case_of_compare_builds_with_groups_of_k_runs(rehearsal):
    prepare = program("bench/compare_builds.py").prepared(("4sparse", 130, 136, 512), torch.Generator())
    for kernel in (None, "m128n128s4w2_1d1d_f32_kgrouped"):
        prepare(rehearsal.check.tested, config=kernel)()
    assert rehearsal.names == {"m128n128s4w2_1d1d_f32_kgrouped"}


def test_a_kernel_that_nothing_launches_is_named(rehearsal, monkeypatch):
    monkeypatch.setattr(rehearsal.check, "small_quantize", lambda: None)
    with pytest.raises(AssertionError, match="35 kernels of 35 were not launched: FineGEMM_quantize_blocks_BF16"):
        rehearsal.run("quantize_kernels")


def test_a_run_records_what_passed_and_the_next_one_goes_on(rehearsal, monkeypatch, tmp_path, capsys):
    checks, facts = rehearsal.program, {"name": "NVIDIA H200", "clocks.sm": "1980 MHz"}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(checks.Check, "facts", facts)
    monkeypatch.setattr(checks, "CHECKS", {"gemm": ("absent",), "quantize": ("quantize", "quantize_kernels")})
    monkeypatch.setattr(checks.Check, "absent", failing, raising=False)
    arguments = ["gpu_check.py", "--library", str(LIBRARY), "--out", str(tmp_path), "--commit", "c0ffee"]
    monkeypatch.setattr(sys, "argv", [*arguments, "--only", "quantize"])
    with OnCpu():
        assert checks.main() == 0
    record = json.loads((tmp_path / "h200_checks.json").read_text())
    of = record["of"]["quantize"]
    assert record["checks"] == {"quantize": {"cases": 180}}
    assert of["machine"] == facts and of["commit"] == "c0ffee" and of["seconds"] >= 0
    assert json.loads((tmp_path / "gpu-validated.json").read_text()) == {}

    monkeypatch.setattr(sys, "argv", arguments)
    capsys.readouterr()
    with OnCpu():
        assert checks.main() == 1
    out = capsys.readouterr().out
    assert "begins  quantize\n" not in out and "FAILED  absent" in out and "1 passed, 1 failed, 0 not run" in out
    assert list(json.loads((tmp_path / "gpu-validated.json").read_text())) == ["quantize"]

    monkeypatch.setattr(checks, "digest_of_check", lambda check, name: "another check")
    monkeypatch.setattr(checks, "is_lost", lambda: True)
    with OnCpu():
        checks.main()
    out = capsys.readouterr().out
    assert "stops after absent" in out and "begins  quantize\n" not in out
    monkeypatch.setattr(sys, "argv", [*arguments, "--until", "0"])
    with OnCpu():
        assert checks.main() == 0
    assert "0 passed, 0 failed, 3 not run" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", arguments)
    monkeypatch.setattr(checks, "is_lost", lambda: False)
    with OnCpu():
        checks.main()
    assert "begins  quantize\n" in capsys.readouterr().out


def test_what_a_sanitizer_watches_runs_no_kernels_but_its_own(rehearsal, monkeypatch, tmp_path, capsys):
    checks = rehearsal.program
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(checks.Check, "machine", failing)
    monkeypatch.setattr(checks, "CHECKS", {"quantize": ()})  # all of it has passed
    arguments = ["--library", str(LIBRARY), "--out", str(tmp_path), "--only", "small_quantize"]
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", *arguments])
    with OnCpu():
        assert checks.main() == 0
    assert "1 passed, 0 failed, 0 not run" in capsys.readouterr().out and not list(tmp_path.iterdir())


def test_a_lane_has_a_gpu_of_those_that_are_there_and_its_share_of_cores(rehearsal, monkeypatch):
    checks, threads = rehearsal.program, []
    monkeypatch.setattr(checks, "Check", lambda arguments: arguments)
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert checks.visible_gpus() == [str(i) for i in range(torch.cuda.device_count())]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    monkeypatch.setenv("FINEGEMM_CPU_THREADS", "9")
    monkeypatch.delenv("FINEGEMM_CPU_THREADS")
    assert checks.visible_gpus() == ["4", "6"]
    checks.begin_lane(argparse.Namespace(jobs=12), "6")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "6" and os.environ["FINEGEMM_CPU_THREADS"] == "2" and threads == [2]


def test_a_missed_bar_of_speed_fails_and_is_named_beside_what_is_right(rehearsal, monkeypatch, tmp_path, capsys):
    checks = rehearsal.program
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(checks.Check, "facts", {"name": "NVIDIA H200"})
    monkeypatch.setattr(checks, "CHECKS", {"quantize": ("quantize", "slow")})

    def slow(check):
        raise checks.TooSlow("as slow as it must")

    monkeypatch.setattr(checks.Check, "slow", slow, raising=False)
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--library", str(LIBRARY), "--out", str(tmp_path)])
    for begun in (True, False):  # what passed does not run again, what was short does
        capsys.readouterr()
        with OnCpu():
            assert checks.main() == 1
        out = capsys.readouterr().out
        assert ("begins  quantize\n" in out) == begun and "begins  slow" in out and "as slow as it must" in out
        assert json.loads((tmp_path / "gpu-validated.json").read_text())["quantize"]["short"] == ["slow"]


def test_a_check_counts_as_long_as_the_files_that_it_is_made_of_stay(rehearsal):
    check, files_of = rehearsal.program.Check, program("bench/gpu_progress.py").files_of
    names = {name: {file.name for file in files_of(check, name)} for name in ("quantize", "head_gaps", "memcheck")}
    assert names["quantize"] >= {"gpu_dense.py", "gpu_fixture.py", "gpu_library.py"}
    assert "gpu_heads.py" in names["head_gaps"] and "gpu_heads.py" not in names["quantize"]
    assert names["memcheck"] >= {"gpu_sanitize.py", "gpu_affine.py", "gpu_heads.py"}, "they have what it launches"


def failing(check):
    raise AssertionError("as it must")
