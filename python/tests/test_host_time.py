"""bench/host_time.py: that the calls run which it times, and what it makes of times. The times take a GPU."""

import itertools

from support import program
from torch_support import torch

host_time = program("bench/host_time.py")


def test_the_calls_of_a_shape_run(monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(host_time, "CALLS", 2)
    monkeypatch.setattr(host_time.time, "perf_counter_ns", lambda: 5000 * next(ticks))
    tensors = host_time.operands(5, 48, 640, "cpu")
    calls = host_time.ours(**tensors)
    assert host_time.measure(calls, batches=3) == {name: {"median": 2.5, "p10": 2.5, "p90": 2.5} for name in calls}


def test_calls_by_keywords_are_the_same_calls():
    tensors = host_time.operands(5, 48, 640, "cpu")
    calls, d = host_time.ours(**tensors), tensors["d"]
    for name in ("finegemm.gemm into d", "finegemm.gemm into d, all by keywords"):
        d.fill_(7)
        calls[name]()
        assert torch.equal(d, calls["finegemm.gemm"]()) and not (d == 7).all()


def test_figures_stand_beside_an_empty_launch_and_torch_of_the_same_run(capsys):
    us = {"finegemm.gemm": 5.0, "torch.matmul bf16 into d": 12.5, "an empty Python function": 0.03}
    row = {"shape": [1, 2, 3], "us": {name: dict.fromkeys(("median", "p10", "p90"), x) for name, x in us.items()}}
    row["beside"] = host_time.beside(row, {"empty_launch_us": {"median": 3.5}})
    assert row["beside"] == {
        "floor_us": {"launch": 3.5, "launch_from_python": 3.53},
        "calls": {"finegemm.gemm": {"of_torch_matmul": 0.4, "above_floor_us": 1.47}},
    }
    alone = {**row, "beside": host_time.beside(row, None)}
    assert alone["beside"] == {"calls": {"finegemm.gemm": {"of_torch_matmul": 0.4}}}
    host_time.show({"python_rows": [row, alone]})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1x2x3: an empty launch 3.50 us, from Python 3.53" and lines[4] == "1x2x3"
    assert lines[1].endswith("(5.00 to 5.00)   1.47 above that, 0.40 of torch.matmul")
    assert lines[5].endswith("(5.00 to 5.00)   0.40 of torch.matmul")


def test_a_summary_has_the_median_and_tenths_of_batches():
    assert host_time.summary([float(us) for us in range(101)]) == {"median": 50.0, "p10": 10.0, "p90": 90.0}
