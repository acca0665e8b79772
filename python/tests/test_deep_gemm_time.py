"""bench/deep_gemm_time.py: that what it compares is the same. The times take a GPU."""

import pytest

from support import program
from torch_support import DEVICES, torch

deep_gemm_time = program("bench/deep_gemm_time.py")


def written(call, d):
    if d is None:
        return call()
    d.zero_()
    call()
    return d.clone()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "kinds, shape",
    [
        ("dense", (8, 128, 256)),
        ("groups_of_rows", (1024, 128, 256)),
        ("groups_of_k", (8, 16)),
        ("others", (3, 128, 256, 128)),
    ],
)
def test_a_call_and_our_own_write_the_same(kinds, shape, device):
    for name, calls in getattr(deep_gemm_time, kinds)(device, *shape).items():
        named, own = (written(call, calls.d) for call in (calls.named, calls.own))
        assert named.any() and torch.equal(named, own), name


def test_programs_of_new_processes_run_with_an_empty_cache():
    (milliseconds,) = deep_gemm_time.in_new_processes(deep_gemm_time.IMPORT, 1)
    assert milliseconds > 0


def test_what_is_above_its_bar_is_said(capsys):
    for value, within in ((0.3, True), (0.31, False)):
        row = deep_gemm_time.bounded("setting", "set_pdl", "us", value, 0.3)
        assert row["within"] is within
        deep_gemm_time.show(row)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("setting set_pdl") and second.startswith("NOT within: setting set_pdl")
