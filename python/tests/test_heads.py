"""D in heads with a gap in each: the product lies around the gaps, which stay as they are."""

import numpy as np
import pytest

import finegemm
from support import BF16, operands

M, N, K = 33, 96, 272
SPLIT = {"head_left": 32, "head_gap": 24, "head_right": 16}


def around_gaps(d):
    """The columns of the product in D."""
    heads = d.reshape(M, 2, 72)
    return np.concatenate([heads[:, :, :32], heads[:, :, 56:]], axis=2).reshape(M, N)


def test_a_new_d_has_room_for_the_gaps():
    args = operands(M, N, K)
    d = finegemm.gemm(*args, **SPLIT)
    assert d.shape == (M, 144)
    np.testing.assert_array_equal(around_gaps(d).view(np.uint16), finegemm.gemm(*args).view(np.uint16))


def test_gaps_are_not_written():
    args, d = operands(M, N, K), np.full((M, 144), 7, BF16)
    assert finegemm.gemm(*args, d, **SPLIT) is d
    assert (d.reshape(M, 2, 72)[:, :, 32:56] == 7).all()
    np.testing.assert_array_equal(around_gaps(d).view(np.uint16), finegemm.gemm(*args).view(np.uint16))


def test_what_does_not_fit_is_refused():
    args = operands(M, N, K)
    with pytest.raises(finegemm.InvalidArgument, match="d: has 96 columns, must have 144: 2 heads of 32, 24 and 16"):
        finegemm.gemm(*args, np.empty((M, N), BF16), **SPLIT)
    with pytest.raises(TypeError, match="head_left"):
        finegemm.k_grouped_gemm(*args, offsets=[0, 272], **SPLIT)


def test_explain_knows_the_kernels():
    plan = finegemm.explain(4096, 8192, 512, "h200", head_gaps=True)
    assert plan["chosen"]["name"].endswith("_head_gaps")
    assert plan["line"].endswith(" head_gaps")
