"""bench/gpu_progress.py: what passed of a check on a GPU is not lost, and counts for its own sources only."""

import json

import pytest

from support import program

progress = program("bench/gpu_progress.py")
OF = {name: {"digest": "g", "gpu": "NVIDIA H200", "shapes": 2000} for name in ("shapes", "table", "speed")}
OF["quantize"] = {"digest": "q", "gpu": "NVIDIA H200", "shapes": 2000}


def started(folder, of=OF):
    return progress.Progress(folder / "h200_checks.json", of)


def passed(folder, *names):
    run = started(folder)
    for name in names:
        run.add(name, {"gemms": 1}, {"date": "2026-11-25"})


def test_the_next_run_goes_on_with_what_is_missing(tmp_path):
    assert started(tmp_path).missing() == ["shapes", "table", "speed", "quantize"]
    passed(tmp_path, "table")
    assert started(tmp_path).missing() == ["shapes", "speed", "quantize"]
    passed(tmp_path, *OF)
    assert started(tmp_path).missing() == []


def test_a_result_says_what_it_is_of(tmp_path):
    passed(tmp_path, "table")
    record = json.loads((tmp_path / "h200_checks.json").read_text())
    assert record == {"checks": {"table": {"gemms": 1}}, "of": {"table": {"date": "2026-11-25"} | OF["table"]}}


def test_a_change_of_one_operation_reruns_its_own_checks_only(tmp_path):
    passed(tmp_path, *OF)
    changed = OF | {"quantize": OF["quantize"] | {"digest": "r"}}
    assert started(tmp_path, changed).missing() == ["quantize"]


@pytest.mark.parametrize("other", [{"digest": "e"}, {"gpu": "NVIDIA H100"}, {"shapes": 10}])
def test_nothing_counts_that_passed_with_other_sources_on_another_gpu_or_with_fewer_shapes(tmp_path, other):
    passed(tmp_path, "table")
    assert "table" in started(tmp_path, OF | {"table": OF["table"] | other}).missing()


def test_a_record_of_a_check_that_is_no_more_is_dropped(tmp_path):
    passed(tmp_path, "table", "speed")
    started(tmp_path, {"table": OF["table"]}).add("table", {}, {})
    assert list(json.loads((tmp_path / "h200_checks.json").read_text())["checks"]) == ["table"]


def test_a_build_of_other_kernels_is_refused(tmp_path):
    kernels, build = tmp_path / "kernels", tmp_path / "build.so"
    (kernels / "device").mkdir(parents=True)
    (kernels / "device/a.cuh").write_text("first();\n")
    (kernels / "b.h").write_text("second();\n")
    build.write_bytes(b"\0second();\n\0first();\n\0")
    progress.check_build(build, kernels)
    (kernels / "device/a.cuh").write_text("last();\n")
    with pytest.raises(ValueError, match="has not the kernels of this tree: device/a"):
        progress.check_build(build, kernels)
