"""bench/ep_model.py: what it counts, and what its ways have in common."""

import numpy as np
import pytest

from support import program


@pytest.fixture(scope="module")
def model():
    return program("bench/ep_model.py")


def test_each_choice_is_a_row_and_a_host_has_a_token_once(model):
    flows = model.flows_of(model.Layer(choices=6), 16, 8, 64, 1.0)
    np.testing.assert_array_equal(flows.rows.sum(1), 64 * 6)
    assert (flows.hosts <= 64).all() and (flows.hosts.sum(1) >= 64).all()
    assert (flows.hosts[:, 0] <= flows.rows[:, :8].sum(1)).all()


def test_ways_agree_within_one_host(model):
    flows = model.flows_of(model.Layer(), 8, 8, 64, 0.0)
    flat, *others = (model.exchange_us(model.Links(), model.Layer(), flows, 8, w) for w in ("flat", "rails", "summed"))
    assert flat == others[0] == others[1]


def test_a_slow_link_and_favourite_experts_make_all_wait(model):
    links, layer = model.Links(), model.Layer()
    even, zipf = (model.flows_of(layer, 16, 8, 64, s) for s in (0.0, 1.0))
    for way in ("flat", "rails", "summed"):
        usual, slow = model.exchange_us(links, layer, even, 8, way), model.exchange_us(links, layer, even, 8, way, 0.5)
        skewed = model.exchange_us(links, layer, zipf, 8, way)
        assert slow[0] > 1.2 * usual[0] and skewed[0] > 1.2 * usual[0]
    assert model.exchange_us(links, layer, even, 8, "summed")[1] < model.exchange_us(links, layer, even, 8, "flat")[1]
