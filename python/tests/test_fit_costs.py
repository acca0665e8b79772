"""bench/fit_costs.py fits the model that the planner uses: both predict the same times."""

import json
import math

import pytest
from support import program

import finegemm

fit_costs = program("bench/fit_costs.py")


SHAPES = [(1, 7168, 16384), (64, 2112, 7168), (1000, 4096, 7168), (4096, 24576, 1536), (2176, 7400, 3312),
          (40, 8192, 7392)]


@pytest.mark.parametrize("device", fit_costs.BYTES_PER_US)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_fit_and_the_planner_have_one_model(shape, device):
    rates = {key: now for _, key, now in fit_costs.candidates(fit_costs.CANDIDATES.read_text())}
    rows = [row for row in finegemm.explain(*shape, device=device)["candidates"] if "us" in row]
    assert len(rows) > 5
    for row in rows:
        key = fit_costs.key_of(row["name"])
        predicted = fit_costs.predict(key, rates[key], shape, device=device)
        assert predicted == pytest.approx(row["us"], abs=0.0051), row["name"]


# Groups, rows of all, expected rows of each (0: nobody says), N, K: few and many tiles of a group, partly filled ones.
GROUPS = [(64, 256, 4, 4096, 7168), (32, 6144, 192, 6144, 7168), (8, 32768, 0, 7168, 2048), (32, 8000, 0, 2880, 2880),
          (8, 8000, 0, 2880, 2896)]


@pytest.mark.parametrize("device", fit_costs.BYTES_PER_US)
@pytest.mark.parametrize(("groups", "m", "expected", "n", "k"), GROUPS)
def test_so_they_have_for_groups(groups, m, expected, n, k, device):
    rates = {key: now for _, key, now in fit_costs.candidates(fit_costs.CANDIDATES.read_text(), grouped=True)}
    account = finegemm.explain(m, n, k, device=device, groups=groups, expected_m=expected)
    rows = [row for row in account["candidates"] if "us" in row]
    assert len(rows) > 5
    for row in rows:
        key = fit_costs.key_of(row["name"].removesuffix("_grouped"))
        predicted = fit_costs.predict(key, rates[key], (m, n, k), groups, expected, device)
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


def test_what_all_kernels_of_a_shape_have_in_common_is_told_from_what_one_has():
    even = sweep_of(START)
    slower = [(case, {key: time * (1 + i / 50) for key, time in us.items()}) for i, (case, us) in enumerate(even)]
    assert fit_costs.common_factors(START, slower) == pytest.approx([1 + i / 50 for i in range(len(even))])
    one = [(case, us | {LARGE: us[LARGE] * 1.2}) for case, us in even]
    assert all(1 <= factor < 1.2 for factor in fit_costs.common_factors(START, one)), "some of it"
    far = [(case, us | {LARGE: min(us.values()) * 2}) for case, us in even]
    assert fit_costs.common_factors(START, far) == pytest.approx([1.0] * len(even)), "no contender"


def test_rows_of_groups_are_known_where_rates_are_fitted():
    sweep = [(((500, 4096, 7168), 4, 100, "h200"), {SMALL: 1.0})]
    assert fit_costs.with_rows_known(sweep) == [(((500, 4096, 7168), 4, 0, "h200"), {SMALL: 1.0})]


def test_a_loss_counts_choices_in_doubt_by_how_near_they_are():
    us = {"a": 10.0, "b": 11.0}
    sure = fit_costs.expected_loss({"a": 10, "b": 20}, us)
    even = fit_costs.expected_loss({"a": 10, "b": 10}, us)
    wrong = fit_costs.expected_loss({"a": 20, "b": 10}, us)
    assert sure == pytest.approx(0, abs=1e-9)
    assert wrong == pytest.approx(0.0953, abs=1e-4), "log(11 / 10)"
    assert even == pytest.approx(wrong / 2)


RESULTS = fit_costs.CANDIDATES.parents[2] / "bench/results"


def test_names_are_those_of_the_planner():
    names = {name for row in json.loads((RESULTS / "sweep_h200.json").read_text()) for name in row["us"]}
    candidates = fit_costs.candidates(fit_costs.CANDIDATES.read_text())
    assert {fit_costs.key_of(name) for name in names} >= {key for _, key, _ in candidates}
    for name in names:
        assert fit_costs.name_of(fit_costs.key_of(name)) == name


@pytest.mark.parametrize("device", fit_costs.BYTES_PER_US)
def test_the_shipped_table_follows_from_the_sweep_and_the_rates(device):
    rates = {key: now for _, key, now in fit_costs.candidates(fit_costs.CANDIDATES.read_text())}
    sweep = [((tuple(row["shape"]), 0, 0, device), {fit_costs.key_of(name): us for name, us in row["us"].items()})
             for row in json.loads((RESULTS / f"sweep_{device}.json").read_text())]
    text = fit_costs.SHIPPED.read_text()
    assert fit_costs.with_table(text, fit_costs.table_rows(rates, sweep), device) == text, "fit_costs.py --keep --table"


def test_the_table_has_the_best_candidate_where_the_choice_takes_half_a_percent_longer():
    slow, near, alone = (8192, 4096, 7168), (8192, 7168, 7168), (8192, 2112, 7168)
    for shape in (slow, near, alone):   # LARGE is the choice; measured, it is slower than SMALL, or it was not measured
        assert fit_costs.predict(LARGE, START[LARGE], shape) < fit_costs.predict(SMALL, START[SMALL], shape)
    other = (256, 128, 4, 2, "sharea", 2, 1)   # the fastest of all, but no candidate
    times = {slow: {SMALL: 100, LARGE: 100.6, other: 90}, near: {SMALL: 100, LARGE: 100.4, other: 90},
             alone: {SMALL: 100, other: 90}}
    sweep = [((shape, 0, 0), us) for shape, us in times.items()]
    assert list(fit_costs.table_rows(START, sweep, (slow, near, alone))) == [(slow, "m128n128s6w2")]
    with pytest.raises(SystemExit, match=r"no times of \[\(1, 2, 3\)\]"):
        list(fit_costs.table_rows(START, sweep, (slow, (1, 2, 3))))


def test_rows_of_the_table_are_replaced_and_nothing_else():
    text = 'before {};\nkMeasuredH200[] = {\n};\nkMeasuredH100[] = {\n    {{1, 2, 3}, "old"},\n};\nafter {};\n'
    rows = [((4, 5, 6), "m64n32s8w1_x2"), ((7, 8, 9), "m128n64s8w2")]
    lines = '    {{4, 5, 6}, "m64n32s8w1_x2"},\n    {{7, 8, 9}, "m128n64s8w2"},\n'
    h100 = f"before {{}};\nkMeasuredH200[] = {{\n}};\nkMeasuredH100[] = {{\n{lines}}};\nafter {{}};\n"
    assert fit_costs.with_table(text, rows, "h100") == h100


def test_kernels_are_dropped_by_how_little_they_are_missed():
    times = [{"a": 10, "b": 10.1, "c": 14}, {"a": 10.2, "b": 10, "c": 10.6}, {"c": 5}]
    names, dropped = fit_costs.choose(times, 1)
    assert names == ["c"], "no other kernel was measured for the last shape"
    # "a" costs 1% of one shape, "b" would cost 2%; then "b" costs 14 / 10 and 10.6 / 10.
    assert [name for name, _ in dropped] == ["a", "b"]
    assert [loss for _, loss in dropped] == pytest.approx([math.log(1.01) / 3, math.log(1.4 * 1.06) / 3])


def test_no_kernel_is_dropped_where_so_many_may_stay():
    assert fit_costs.choose([{"a": 1, "b": 2}], 2) == (["a", "b"], [])
