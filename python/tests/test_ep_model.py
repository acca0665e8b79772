"""bench/ep_model.py: what it counts, and what its ways have in common; ep_ranks.py: what is predicted by it."""

import json
import pathlib

import numpy as np
import pytest

from support import program

RESULTS = pathlib.Path(__file__).parents[2] / "bench" / "results"


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


@pytest.fixture(scope="module")
def ranks(model):
    return program("bench/ep_ranks.py")


def test_a_record_is_found_again_by_what_is_fitted_to_it(ranks):
    """Messages and layers that follow the model's own laws, of two ranks."""
    links = ranks.ep_model.Links(nvlink=300e3, nvlink_us=9.0)
    rows = []
    for layer, (hidden, choices) in ranks.LAYERS.items():
        for tokens in (64, 1024, 4096):
            case = ranks.Case(layer, "even", tokens, 2)
            sizes = ranks.ep_model.Layer(hidden, choices)
            there, back = (9.0 + tokens * choices / 2 * size / 300e3 for size in (sizes.sent, sizes.returned))
            local = 100.0 + tokens * choices / 10
            us = {"bare dispatch": there, "bare combine": back, "bare places": there + back, "local": local}
            us |= {"capacity": local + 5 + 1.5 * (there + back), "peers": local + 9 + (there + back) / 16}
            rows.append({**case._asdict(), "rank": 0, "rows": tokens * choices, "us": us})
    record = {"ranks": 2, "rows": rows, "gpu": "none"}
    model = ranks.Model([record])
    np.testing.assert_allclose(model.links[:2], links[:2], rtol=1e-9)
    np.testing.assert_allclose(model.beside["capacity"], [5, 1.5], rtol=1e-9)
    np.testing.assert_allclose(model.beside["peers"], [9, 1 / 16], rtol=1e-9)
    said = ranks.predictions([record], "none")
    seen = [r for r in said["rows"] if (r["ranks"], r["kind"], r["layer"]) == (8, "even", "DeepSeek-V3")]
    assert [r["us"]["bare combine"] for r in seen] == sorted(r["us"]["bare combine"] for r in seen)
    at_two = next(r for r in said["rows"] if (r["ranks"], r["tokens"], r["kind"]) == (2, 4096, "even"))
    assert at_two["us"]["capacity"] < next(
        r["us"]["capacity"] for r in said["rows"] if (r["ranks"], r["tokens"], r["kind"]) == (8, 4096, "even")
    )
    lines = ranks.compared(said, record)
    assert len(lines) == 2 + 6 and all(": 1.0" in line or ": 0.9" in line for line in lines[2:])


@pytest.mark.parametrize(
    ("predicted", "records"),
    [("ep_predicted", ["ep_h100"]), ("ep_predicted_h200", ["ep_peers_h200", "ep_peers4_h200"])],
)
def test_predictions_on_record_are_those_of_the_program(ranks, predicted, records):
    """What was written down before a run on more GPUs."""

    def read(name):
        return json.loads((RESULTS / f"{name}.json").read_text())

    found_rows = ranks.predictions([read(name) for name in records], "records")["rows"]
    for found, wanted in zip(found_rows, read(predicted)["rows"], strict=True):
        us = [list(row.pop("us").values()) for row in (found, wanted)]
        assert found == wanted
        np.testing.assert_allclose(*us, rtol=1e-3)


def test_four_ranks_through_memory_take_what_two_predict(ranks):
    """As docs/expert_parallel.md says."""
    two, four = (json.loads((RESULTS / f"ep_peers{of}_h200.json").read_text()) for of in ("", "4"))
    model = ranks.Model([two])
    cases = {case: seen["us"]["peers"] for case, seen in ranks.slowest_of(four).items() if case.tokens >= 64}
    over = [us / model.predicted(case)["peers"] for case, us in cases.items()]
    assert len(over) == 20 and min(over) > 0.9 and max(over) < 1.1
