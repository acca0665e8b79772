"""bench/fit_costs.py fits the model that the planner uses: both predict the same times."""

import importlib.util
from pathlib import Path

import pytest

import finegemm

spec = importlib.util.spec_from_file_location("fit_costs", Path(__file__).parents[2] / "bench/fit_costs.py")
fit_costs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fit_costs)


@pytest.mark.parametrize("shape", [(1, 7168, 16384), (64, 2112, 7168), (1000, 4096, 7168), (4096, 24576, 1536)])
def test_the_fit_and_the_planner_have_one_model(shape):
    rates = {key: now for _, key, now in fit_costs.candidates(fit_costs.CANDIDATES.read_text())}
    rows = [row for row in finegemm.explain(*shape, device="h200")["candidates"] if "us" in row]
    assert len(rows) > 5
    for row in rows:
        key = fit_costs.key_of(row["name"])
        assert fit_costs.predict(key, rates[key], shape) == pytest.approx(row["us"], abs=0.0051), row["name"]
