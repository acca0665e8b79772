"""bench/fit_costs.py fits the model that the planner uses: both predict the same times."""

import pytest
from support import program

import finegemm

fit_costs = program("bench/fit_costs.py")


@pytest.mark.parametrize("shape", [(1, 7168, 16384), (64, 2112, 7168), (1000, 4096, 7168), (4096, 24576, 1536)])
def test_the_fit_and_the_planner_have_one_model(shape):
    rates = {key: now for _, key, now in fit_costs.candidates(fit_costs.CANDIDATES.read_text())}
    rows = [row for row in finegemm.explain(*shape, device="h200")["candidates"] if "us" in row]
    assert len(rows) > 5
    for row in rows:
        key = fit_costs.key_of(row["name"])
        assert fit_costs.predict(key, rates[key], shape) == pytest.approx(row["us"], abs=0.0051), row["name"]


# Groups, rows of all, expected rows of each (0: nobody says), N, K: few and many tiles of a group, partly filled ones.
GROUPS = [(64, 256, 4, 4096, 7168), (32, 6144, 192, 6144, 7168), (8, 32768, 0, 7168, 2048), (32, 8000, 0, 2880, 2880)]


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
