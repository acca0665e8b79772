"""bench/mqa_table.py: that its calls are of the shapes that they are named after. The times take a GPU."""

import pytest

from support import program
from torch_support import torch

mqa_table = program("bench/mqa_table.py")


def test_ranks_share_a_sequence_evenly():
    row = mqa_table.Rows(8192, 8192, 64, 128, 1, 0, "f32")
    ends = mqa_table.ends(row, "cpu")
    assert ends[:2].tolist() == [0, 1] and ends[4095:4097].tolist() == [4095, 4096] and ends[-1] == 8191
    causal = mqa_table.ends(row._replace(context_parallel=0, keys=9000), "cpu")
    assert causal[0] == 9000 - 8192 and causal[-1] == 8999


@pytest.mark.parametrize("compressed", [0, 1])
def test_forms_of_rows_write_the_same_logits(compressed):
    row = mqa_table.Rows(64, 256, 32, 64, 1, compressed, "f32")
    calls = mqa_table.row_calls(row, "cpu")
    exact = calls["finegemm_exact"]().clone()
    seen = torch.arange(exact.shape[1]) < mqa_table.ends(row, "cpu")[:, None]
    assert seen.any()
    torch.testing.assert_close(calls["finegemm"]()[seen], exact[seen], rtol=0.02, atol=0.05)
    if not compressed:
        assert torch.equal(calls["finegemm_exact_filled"]()[seen], exact[seen])


def test_pages_hold_the_keys_of_each_request():
    calls = mqa_table.page_calls(3, 2, 32, 128, 300, "f32", "cpu")
    d = calls["finegemm_exact"]()
    assert d.shape[0] == 6 and d.shape[1] >= 210


def test_rows_find_their_peers():
    row = {"kind": "mqa", "shape": [2048, 8192, 64, 128], "context_parallel": 0, "compressed": 0, "logits": "f32"}
    peers = {mqa_table.key(row): {"deep_gemm": 222.0, "deep_gemm_clean": 6.0}}
    ours = row | {"us": {"finegemm": 200.0, "finegemm_exact": 222.0, "finegemm_filled": 228.0}}
    assert "1.110 exact 1.000 filled 1.000" in mqa_table.shown(ours, peers, 1.0)
    assert len(mqa_table.ROWS) == 16 and len(mqa_table.PAGES) == 24
