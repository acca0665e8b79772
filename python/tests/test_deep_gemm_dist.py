"""finegemm.deep_gemm.utils.dist: two processes on one CPU. Skipped where torch is not installed."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch has no gloo, by which processes without a GPU talk", allow_module_level=True)

GATHER = """
import sys
import torch
from finegemm.deep_gemm.utils import dist

rank, file = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group("gloo", init_method=f"file://{file}", world_size=2, rank=rank)
rows = torch.arange(6.0).view(3, 2)[:2] if rank == 0 else torch.full((1, 2), 9.0)
assert dist.uneven_all_gather(rows).tolist() == [[0, 1], [2, 3], [9, 9]]
assert dist.uneven_all_gather(rows.t(), dim=1).tolist() == [[0, 2, 9], [1, 3, 9]]
dist.dist_print(f"rank {rank}")
torch.distributed.destroy_process_group()
"""


def test_tensors_of_different_extents_are_gathered(tmp_path):
    command = [sys.executable, "-c", GATHER]
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "ranks")], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=300)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0] and said == ["rank 0\n", "rank 1\n"]
