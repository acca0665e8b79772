"""bench/gpu_progress.py: what passed of a check on a GPU is not lost when the run is cut short."""

from support import program

progress = program("bench/gpu_progress.py")
OF = {"digest": "d", "commit": "c", "gpu": "NVIDIA H200", "shapes": 2000}
CHECKS = ("shapes", "table", "speed")


def started(folder, of=OF):
    return progress.Progress(folder / "checks_so_far.json", of)


def test_the_next_run_goes_on_with_what_is_missing(tmp_path):
    assert started(tmp_path).missing(CHECKS) == ["shapes", "table", "speed"]
    started(tmp_path).add("table", {"gemms": 168})
    again = started(tmp_path)
    assert again.missing(CHECKS) == ["shapes", "speed"]
    again.add("shapes", {"gemms": 2000})
    assert started(tmp_path).passed == {"table": {"gemms": 168}, "shapes": {"gemms": 2000}}


def test_nothing_counts_that_passed_with_other_sources_on_another_gpu_or_with_fewer_shapes(tmp_path):
    started(tmp_path).add("table", {})
    for other in ({"digest": "e"}, {"commit": "b"}, {"gpu": "NVIDIA H100"}, {"shapes": 10}):
        assert started(tmp_path, OF | other).missing(CHECKS) == list(CHECKS)


def test_nothing_is_left_when_all_have_passed(tmp_path):
    run = started(tmp_path)
    for name in CHECKS:
        run.add(name, {})
    assert run.missing(CHECKS) == []
    run.done()
    assert list(tmp_path.iterdir()) == []
