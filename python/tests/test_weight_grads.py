"""examples/python/moe_weight_grads.py: gradients with NumPy arrays and with torch tensors, in both layouts."""

import numpy as np
import pytest

from support import program


@pytest.fixture(scope="module")
def moe():
    return program("examples/python/moe_weight_grads.py")


def zeros(moe):
    return np.zeros((moe.EXPERTS, moe.OUT, moe.HIDDEN), np.float32)


def test_gradients_are_as_good_as_their_roundings(moe):
    grads = zeros(moe)
    for seed in range(2):
        moe.add_weight_grads(grads, *moe.batch(seed))
    off = moe.errors(grads, sum(moe.plain(*moe.batch(seed)) for seed in range(2)))
    assert len(off) == moe.EXPERTS - 1
    assert off.max() < moe.TOLERANCE
    assert off.min() > 0.024, "less than one rounding: that would not be FP8"
    assert not grads[moe.IDLE_EXPERT].any()


def test_blocks_give_the_same_bits(moe):
    grads = zeros(moe)
    moe.add_weight_grads(grads, *moe.batch(3))
    np.testing.assert_array_equal(moe.weight_grads_of_blocks(*moe.batch(3)), grads)


def test_each_token_has_a_slot_in_its_experts_part(moe):
    *_, expert = moe.batch(5)
    to = moe.slots_of(expert)
    assert to.offsets.dtype == np.int32 and to.offsets[0] == 0 and to.offsets[-1] <= to.capacity
    assert (to.offsets % moe.BLOCK == 0).all() and to.capacity % moe.BLOCK == 0
    assert len(set(to.slot)) == moe.TOKENS
    np.testing.assert_array_equal(np.searchsorted(to.offsets[1:], to.slot, side="right"), expert[to.order])


def test_torch_tensors_give_the_same(moe):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    arrays = moe.batch(7)
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        inputs = [torch.from_numpy(x).to(device) for x in arrays]
        grads = torch.zeros((moe.EXPERTS, moe.OUT, moe.HIDDEN), device=device)
        moe.add_weight_grads(grads, *inputs)
        assert moe.errors(grads.cpu().numpy(), moe.plain(*arrays)).max() < moe.TOLERANCE
        torch.testing.assert_close(moe.weight_grads_of_blocks(*inputs), grads, rtol=0, atol=0)
