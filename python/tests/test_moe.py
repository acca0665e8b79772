"""examples/python/moe_layer.py: the layer with NumPy arrays and with torch tensors."""

import numpy as np
import pytest

from support import program


@pytest.fixture(scope="module")
def moe():
    return program("examples/python/moe_layer.py")


def test_the_layer_is_as_good_as_its_roundings(moe):
    x, *weights = moe.example()
    off = moe.errors(moe.Layer(*weights)(x), moe.plain(x, *weights))
    assert off.max() < moe.TOLERANCE
    assert np.median(off) > 0.024, "less than one rounding: that would not be FP8"


def test_torch_tensors_give_the_same(moe):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    arrays = moe.example()
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        x, *weights = (torch.from_numpy(a).to(device) for a in arrays)
        out = moe.Layer(*weights)(x)
        assert out.device == x.device
        assert moe.errors(out.cpu().numpy(), moe.plain(*arrays)).max() < moe.TOLERANCE


def test_rows_are_sorted_by_expert_and_one_expert_has_none(moe):
    x, router, *_ = moe.example()
    to = moe.route(x, router)
    sizes = np.diff(to.offsets)
    assert to.offsets.dtype == np.int32 and to.offsets[0] == 0 and to.offsets[-1] == moe.TOKENS * moe.TOP_K
    assert sizes[moe.IDLE_EXPERT] == 0 and np.count_nonzero(sizes) == moe.EXPERTS - 1
    best = np.argsort(-(x @ router.T), stable=True)[:, : moe.TOP_K]
    expert_of_row = np.searchsorted(to.offsets[1:], np.arange(len(to.source)), side="right")
    np.testing.assert_array_equal(expert_of_row[to.slot].reshape(best.shape), best)
    np.testing.assert_array_equal(to.source[to.slot], np.repeat(np.arange(moe.TOKENS), moe.TOP_K))
    np.testing.assert_allclose(to.weights.sum(1), 1, rtol=1e-6)


def test_the_tolerance_notices_one_wrong_token(moe):
    x, *weights = moe.example()
    want = moe.plain(x, *weights)
    out = moe.Layer(*weights)(x)
    out[[5, 6]] = out[[6, 5]]
    assert np.count_nonzero(moe.errors(out, want) > moe.TOLERANCE) == 2
