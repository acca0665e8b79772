"""bench/host_time.py: that the calls run which it times, and what it makes of times. The times take a GPU."""

from support import program
from torch_support import torch

host_time = program("bench/host_time.py")


def test_the_calls_of_a_shape_run(monkeypatch):
    monkeypatch.setattr(host_time, "CALLS", 2)
    tensors = host_time.operands(5, 48, 640, "cpu")
    calls = host_time.ours(**tensors)
    us = host_time.measure(calls, batches=3)
    assert list(us) == list(calls) and all(0 < row["p10"] <= row["median"] <= row["p90"] for row in us.values())


def test_calls_by_keywords_are_the_same_calls():
    tensors = host_time.operands(5, 48, 640, "cpu")
    calls, d = host_time.ours(**tensors), tensors["d"]
    for name in ("finegemm.gemm into d", "finegemm.gemm into d, all by keywords"):
        d.fill_(7)
        calls[name]()
        assert torch.equal(d, calls["finegemm.gemm"]()) and not (d == 7).all()


def test_a_summary_has_the_median_and_tenths_of_batches():
    assert host_time.summary([float(us) for us in range(101)]) == {"median": 50.0, "p10": 10.0, "p90": 90.0}
