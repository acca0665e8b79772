"""bench/gpu_lanes.py: checks side by side, on processes without a GPU."""

import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor

import pytest

from support import program

lanes = program("bench/gpu_lanes.py")
sys.modules[lanes.__name__] = lanes  # where what comes from another process looks for its class


def start():
    return ProcessPoolExecutor(1, multiprocessing.get_context("fork"))


def run(name):
    if name == "dies":
        os._exit(3)
    if name == "fails":
        return lanes.Outcome(name, "FAILED", origin={"process": os.getpid()}, lost=True)
    return lanes.Outcome(name, "passed", {}, {"process": os.getpid()})


def outcomes(names, count=2, fits=lambda name: True):
    return {outcome.name: outcome for outcome in lanes.side_by_side(names, count, start, run, fits)}


def test_each_runs_once_in_as_many_processes_as_there_are_lanes():
    names = [f"check{i}" for i in range(9)]
    of = outcomes(names, 3)
    assert sorted(of) == names and all(outcome.passed for outcome in of.values())
    processes = {outcome.origin["process"] for outcome in of.values()}
    assert 1 <= len(processes) <= 3 and os.getpid() not in processes


@pytest.mark.parametrize("bad", ["dies", "fails"])
def test_what_loses_its_process_fails_alone_and_the_lane_begins_anew(bad):
    of = outcomes(["first", bad, "second"], 1)
    assert [outcome.passed for outcome in of.values()] == [True, False, True] and of[bad].lost
    assert of["first"].origin["process"] != of["second"].origin["process"]


def test_what_no_longer_fits_does_not_begin(capsys):
    of = outcomes(["short", "long"], fits=lambda name: name == "short")
    assert list(of) == ["short"] and capsys.readouterr().out == "begins  short\n"


def test_none_at_all_starts_no_process():
    assert list(lanes.side_by_side([], 2, lambda: pytest.fail("a lane"), run, lambda name: True)) == []


def test_a_missed_bar_is_recorded_but_has_not_passed():
    assert not lanes.Outcome("slow", "", {"short": "by 3%"}).passed and lanes.Outcome("right", "", {}).passed
