"""SwiGLU with quantisation from Python: its formula in doubles, groups, and what may be given together."""

import numpy as np
import pytest

import finegemm
from support import BF16

RANDOM = np.random.default_rng(3)


def formula(x, limit=np.inf, alpha=1.0, offset=0.0, weights=1.0):
    gate, up = np.split(x.astype(np.float64), 2, axis=-1)
    gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    return gate / (1 + np.exp(-alpha * gate)) * (up + offset) * weights


def values(q, scales):
    return q.astype(np.float64) * np.repeat(scales, 128, axis=-1)[..., : q.shape[-1]]


def test_it_is_the_formula_within_a_code():
    x = RANDOM.standard_normal((2, 5, 2 * 272)).astype(BF16)
    weights = RANDOM.random((2, 5), np.float32)
    q, scales = finegemm.swiglu_quantize(x, weights=weights, gate_limit=1.5, gate_alpha=1.702, up_offset=1)
    assert q.shape == (2, 5, 272) and scales.shape == (2, 5, 3)
    want = formula(x, 1.5, 1.702, 1, weights[..., None])
    step = np.repeat(scales, 128, axis=-1)[..., :272] * 2.0**-10  # half of the least step
    assert (np.abs(values(q, scales) - want) <= np.abs(want) / 15.9 + step).all()


def test_interleaved_columns_and_rounding_give_the_same_codes_as_steps_apart():
    x = RANDOM.standard_normal((7, 256)).astype(BF16)
    halves = x.reshape(7, 16, 2, 8).swapaxes(1, 2).reshape(7, 256)
    apart = finegemm.swiglu_quantize(halves, to_bf16=True, power_of_two_scales=True)
    together = finegemm.swiglu_quantize(x, to_bf16=True, power_of_two_scales=True, interleaved=True)
    for one, other in zip(apart, together, strict=True):
        assert one.tobytes() == other.tobytes()


def test_rows_of_no_group_stay_as_they_were():
    x = np.full((6, 64), np.nan, np.float32)
    x[[0, 1, 4]] = 2
    for groups in (
        {"m_indices": np.array((0, 3, -1, -1, 1, -1), np.int32)},
        {"prefix_sums": np.array((2, 5), np.int32), "alignment": 4},
    ):
        q, scales = np.full((6, 32), 7, np.uint8), np.full((6, 1), -1, np.float32)
        finegemm.swiglu_quantize(x, q, scales, **groups)
        assert (q == 7).all(1).tolist() == [False, False, True, True, False, True]
        assert (scales[[2, 3, 5]] == -1).all() and (q[[0, 1, 4]] == 0x7E).all()


def test_rows_belong_to_groups_by_one_argument():
    numbers = np.array((0, 2), np.int32)
    with pytest.raises(finegemm.InvalidArgument, match=r"^prefix_sums: is given, but so is offsets; "):
        finegemm.swiglu_quantize(np.ones((2, 64), np.float32), offsets=numbers, prefix_sums=numbers)
    with pytest.raises(finegemm.InvalidArgument, match=r"^masked_m: has 2 masks, must have 1 "):
        finegemm.swiglu_quantize(np.ones((2, 64), np.float32), masked_m=numbers)
