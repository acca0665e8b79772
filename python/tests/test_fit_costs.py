"""bench/fit_costs.py fits the model that the planner uses: both predict the same times."""

import pytest
from support import program

import finegemm

fit_costs = program("bench/fit_costs.py")


SHAPES = [(1, 7168, 16384), (64, 2112, 7168), (1000, 4096, 7168), (4096, 24576, 1536), (2176, 7400, 3312),
          (40, 8192, 7392)]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_fit_and_the_planner_have_one_model(shape):
    rates = {key: now for _, key, now in fit_costs.candidates(fit_costs.CANDIDATES.read_text())}
    rows = [row for row in finegemm.explain(*shape, device="h200")["candidates"] if "us" in row]
    assert len(rows) > 5
    for row in rows:
        key = fit_costs.key_of(row["name"])
        assert fit_costs.predict(key, rates[key], shape) == pytest.approx(row["us"], abs=0.0051), row["name"]


# Groups, rows of all, expected rows of each (0: nobody says), N, K: few and many tiles of a group, partly filled ones.
GROUPS = [(64, 256, 4, 4096, 7168), (32, 6144, 192, 6144, 7168), (8, 32768, 0, 7168, 2048), (32, 8000, 0, 2880, 2880),
          (8, 8000, 0, 2880, 2896)]


@pytest.mark.parametrize(("groups", "m", "expected", "n", "k"), GROUPS)
def test_so_they_have_for_groups(groups, m, expected, n, k):
    rates = {key: now for _, key, now in fit_costs.candidates(fit_costs.CANDIDATES.read_text(), grouped=True)}
    account = finegemm.explain(m, n, k, device="h200", groups=groups, expected_m=expected)
    rows = [row for row in account["candidates"] if "us" in row]
    assert len(rows) > 5
    for row in rows:
        key = fit_costs.key_of(row["name"].removesuffix("_grouped"))
        predicted = fit_costs.predict(key, rates[key], (m, n, k), groups, expected)
        assert predicted == pytest.approx(row["us"], abs=0.0051), row["name"]


SMALL, LARGE = (128, 128, 6, 2, "alone", 1, 1), (128, 192, 5, 2, "alone", 1, 1)
START = {SMALL: (0.36, 0.36, 0.9), LARGE: (0.52, 0.52, 1.2)}


def sweep_of(rates):
    """Times as the model has them with these rates, of shapes with one to many waves of tiles."""
    shapes = [(m, n, k) for m in (512, 1024, 2048, 4096, 8192) for n in (2112, 4096, 7168) for k in (2048, 7168)]
    return [((shape, 0, 0), {key: fit_costs.predict(key, rates[key], shape) for key in rates}) for shape in shapes]


def lost(rates, sweep):
    return sum(fit_costs.expected_loss({key: fit_costs.predict(key, rates[key], *case) for key in us}, us)
               for case, us in sweep)


def test_refining_moves_rates_as_long_as_the_choices_lose_less():
    true = {SMALL: START[SMALL], LARGE: (0.56, 0.56, 1.2)}   # the larger tiles are 8% slower than the rates say
    sweep = sweep_of(true)
    refined = fit_costs.refine(START, sweep)
    assert lost(refined, sweep) < 0.7 * lost(START, sweep)
    quotient = {key: refined[key][0] / START[key][0] for key in START}
    assert quotient[LARGE] > quotient[SMALL], "what chooses is how the kernels compare"


def test_refining_keeps_rates_that_choose_well():
    assert fit_costs.refine(START, sweep_of(START)) == START


def test_a_loss_counts_choices_in_doubt_by_how_near_they_are():
    us = {"a": 10.0, "b": 11.0}
    sure = fit_costs.expected_loss({"a": 10, "b": 20}, us)
    even = fit_costs.expected_loss({"a": 10, "b": 10}, us)
    wrong = fit_costs.expected_loss({"a": 20, "b": 10}, us)
    assert sure == pytest.approx(0, abs=1e-9)
    assert wrong == pytest.approx(0.0953, abs=1e-4), "log(11 / 10)"
    assert even == pytest.approx(wrong / 2)
