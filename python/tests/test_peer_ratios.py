"""bench/peer_ratios.py: what a ratio is of, and which rows have a mean together."""

import pytest

from support import program

peer_ratios = program("bench/peer_ratios.py")
MQA = {"kind": "mqa", "shape": [2, 4, 8, 64]}
PEERS = {
    "ceilings_us": {peer_ratios.BF16: 1000.0, peer_ratios.FP8: 500.0},
    "rows": [
        {"kind": "contig", "shape": [4, 8, 16, 32], "us": {"deep_gemm": 30.0}},
        {"kind": "dense", "shape": [1, 2, 3], "us": {"deep_gemm": 30.0, "cublas_tensor": 10.0}},
        {"kind": "bf16", "shape": [1, 2, 3], "us": {"deep_gemm": 30.0}},
        MQA | {"logits": "f32", "us": {"deep_gemm": 30.0, "deep_gemm_clean": 10.0}},
        MQA | {"logits": "bf16", "us": {"deep_gemm": 30.0}},
    ],
}
CEILINGS = {peer_ratios.BF16: 1100.0, peer_ratios.FP8: 600.0}


@pytest.mark.parametrize(
    "row, name, ratio",
    [
        ({"kind": "contig", "shape": [4, 8, 16, 32], "us": {"finegemm": 18.0}}, "contig: finegemm", 2.0),
        ({"kind": "dense", "shape": [1, 2, 3], "us": {"finegemm": 8.0, "cublas_tensor": 8.0}}, "dense: finegemm", 3.0),
        ({"kind": "bf16", "shape": [1, 2, 3], "us": {"finegemm": 11.0, "torch": 40.0}}, "bf16, M up to 128", 3.0),
        ({"kind": "bf16", "shape": [1, 2, 3], "us": {"finegemm": 11.0, "torch": 22.0}}, "bf16, M up to 128", 2.0),
        (MQA | {"logits": "f32", "us": {"finegemm_filled": 24.0}}, "mqa, D < 128", 2.0),
    ],
)
def test_a_ratio_is_of_times_over_what_each_machine_does_at_best(row, name, ratio):
    ((of, found),) = peer_ratios.compare({"ceilings_us": CEILINGS, "rows": [row]}, PEERS).items()
    assert of.startswith(name)
    assert found == [(pytest.approx(ratio), row["shape"])]


def test_rows_that_the_table_has_not_are_left_out():
    rows = [
        {"kind": "contig", "shape": [4, 8, 16, 33], "us": {"finegemm": 18.0}},
        MQA | {"logits": "bf16", "us": {"finegemm_filled": 24.0}},
    ]
    assert peer_ratios.compare({"ceilings_us": CEILINGS, "rows": rows}, PEERS) == {}
