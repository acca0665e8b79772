"""bench/fit_costs.py fits the model that the planner uses: both predict the same times."""

import json
import math
import sys

import pytest

import finegemm
from support import program

fit_costs = program("bench/fit_costs.py")
Case, Rates, predict = fit_costs.Case, fit_costs.Rates, fit_costs.predict


SHAPES = [
    (1, 7168, 16384),
    (64, 2112, 7168),
    (1000, 4096, 7168),
    (4096, 24576, 1536),
    (2176, 7400, 3312),
    (40, 8192, 7392),
]


def rates_of(table):
    return {key: now for _, key, now in fit_costs.candidates(fit_costs.source_of(table).read_text(), table)}


def check_predictions(case, account, least=5):
    """That the planner's account of a product has the times that the fit's model predicts, all of them."""
    rates, rows = rates_of(case.table()), [row for row in account["candidates"] if "us" in row]
    assert len(rows) >= least
    for row in rows:
        key = fit_costs.key_of(row["name"])
        assert predict(key, rates[key], case) == pytest.approx(row["us"], abs=0.0051), row["name"]


@pytest.mark.parametrize("device", fit_costs.BYTES_PER_US)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_fit_and_the_planner_have_one_model(shape, device):
    check_predictions(Case(shape, device=device), finegemm.explain(*shape, device=device))


@pytest.mark.parametrize("device", fit_costs.BYTES_PER_US)
@pytest.mark.parametrize("shape", [(2112, 4096, 7168), (32768, 4096, 128), (1000, 4096, 2896)])
@pytest.mark.parametrize("accumulate", [False, True])
def test_so_they_have_for_scales_of_rows(shape, accumulate, device):
    account = finegemm.explain(*shape, device=device, row_b_scales=True, out_dtype="float32", accumulate=accumulate)
    check_predictions(Case(shape, d="f32", accumulate=accumulate, device=device), account)
    if not accumulate:
        account = finegemm.explain(*shape, device=device, row_b_scales=True)
        check_predictions(Case(shape, d="bf16", device=device), account)


@pytest.mark.parametrize("groups", [0, 4])
@pytest.mark.parametrize("shape", [(16, 7168, 16384), (64, 2112, 7168), (1000, 4096, 7168)])
def test_so_they_have_for_mx_scales(shape, groups):
    fields = {"groups": groups} if groups else {}
    account = finegemm.explain(*shape, device="h200", a_mx=True, b_mx=True, **fields)
    check_predictions(Case(shape, groups=groups, mx=True), account, 1 if groups else 3)  # which one kernel serves


@pytest.mark.parametrize("device", fit_costs.BYTES_PER_US)
@pytest.mark.parametrize("shape", [(1536, 2048, 64 * 256), (4096, 7168, 64 * 640)])
@pytest.mark.parametrize("accumulate", [False, True])
def test_so_they_have_for_groups_of_k(shape, accumulate, device):
    account = finegemm.explain(*shape, device=device, k_groups=64, accumulate=accumulate)
    check_predictions(Case(shape, k_groups=64, d="f32", accumulate=accumulate, device=device), account)


# Groups, rows of all, expected rows of each (0: nobody says), N, K: few and many tiles of a group, partly filled ones.
GROUPS = [
    (64, 256, 4, 4096, 7168),
    (32, 6144, 192, 6144, 7168),
    (8, 32768, 0, 7168, 2048),
    (32, 8000, 0, 2880, 2880),
    (8, 8000, 0, 2880, 2896),
]


@pytest.mark.parametrize("device", fit_costs.BYTES_PER_US)
@pytest.mark.parametrize(("groups", "m", "expected", "n", "k"), GROUPS)
def test_so_they_have_for_groups(groups, m, expected, n, k, device):
    account = finegemm.explain(m, n, k, device=device, groups=groups, expected_m=expected)
    check_predictions(Case((m, n, k), groups, expected, device=device), account)
    account = finegemm.explain(m, n, k, device=device, groups=groups, expected_m=expected, dtype="bfloat16")
    check_predictions(Case((m, n, k), groups, expected, element="bf16", d="bf16", device=device), account, least=4)


@pytest.mark.parametrize("device", fit_costs.BYTES_PER_US)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("layout", "d"), [("nt", "bf16"), ("nt", "f32"), ("nn", "bf16")])
def test_so_they_have_without_scales(shape, layout, d, device):
    layouts = {"a_mn_major": layout[0] == "t", "b_mn_major": layout[1] == "n"}
    out = {"bf16": "bfloat16", "f32": "float32"}[d]
    account = finegemm.explain(*shape, device=device, dtype="bfloat16", out_dtype=out, **layouts)
    check_predictions(Case(shape, element="bf16", d=d, layout=layout, device=device), account, least=4)


SMALL, LARGE = (128, 128, 6, 2, "alone", 1, 1), (128, 192, 5, 2, "alone", 1, 1)
START = {SMALL: Rates(0.36, 0.36, 0.9), LARGE: Rates(0.52, 0.52, 1.2)}


def sweep_of(rates):
    """Times as the model has them with these rates, of shapes with one to many waves of tiles."""
    shapes = [(m, n, k) for m in (512, 1024, 2048, 4096, 8192) for n in (2112, 4096, 7168) for k in (2048, 7168)]
    cases = [Case(shape) for shape in shapes]
    return [(case, {key: predict(key, rates[key], case) for key in rates}) for case in cases]


def lost(rates, sweep):
    return sum(fit_costs.expected_loss({key: predict(key, rates[key], case) for key in us}, us) for case, us in sweep)


def test_refining_moves_rates_as_long_as_the_choices_lose_less():
    true = {SMALL: START[SMALL], LARGE: Rates(0.56, 0.56, 1.2)}  # the larger tiles are 8% slower than the rates say
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
    announced = Case((500, 4096, 7168), groups=4, expected=100)
    assert fit_costs.with_rows_known([(announced, {SMALL: 1.0})]) == [(announced._replace(expected=0), {SMALL: 1.0})]


def test_a_case_has_what_its_row_of_a_sweep_says():
    row = {"shape": [1, 8, 256], "d": "f32", "accumulate": True, "k_groups": 2, "us": {"m64n64s5w1": 1.0}}
    case = Case.of(row, "h100")
    assert case == Case((1, 8, 256), k_groups=2, d="f32", accumulate=True, device="h100")
    assert fit_costs.asked(case) == "shape (1, 8, 256), k_groups 2, d f32, accumulate True, device h100"
    assert case.table() == "f32"
    assert [Case((1, 8, 16), **of).table() for of in ({}, {"groups": 2}, {"d": "bf16"})] == ["dense", "groups", "bf16"]


def test_a_row_of_candidates_gets_other_rates_and_no_more_of_them_than_it_has():
    row = "{{128, 128, 4, 2, 1, kAlone, 1}, {0.479, 0.479, 1.69}},"
    changed = "{{128, 128, 4, 2, 1, kAlone, 1}, {0.500, 0.400, 2.00}},"
    assert fit_costs.row_with(row, Rates(0.5, 0.4, 2)) == changed
    assert fit_costs.row_with(row[:-3] + ", 0, 1.63}},", Rates(0.5, 0.4, 2, 0, 1.5)) == changed[:-3] + ", 0, 1.50}},"


@pytest.mark.parametrize("rates", [Rates(0.48, 0.48, 1.7), Rates(0.48, 0.48, 1.7, 0.4), Rates(0.48, 0.48, 1.7, 0, 1.6)])
def test_rates_are_fitted_that_a_kernel_has_and_no_others(rates):
    point = fit_costs.point_of(rates)
    assert len(point) == sum(rate > 0 for rate in rates)
    assert fit_costs.rates_at(point, SMALL, rates) == pytest.approx(rates)


def test_a_cta_alone_is_not_slower_and_as_fast_where_it_always_is():
    point = fit_costs.point_of(Rates(0.3, 0.2, 1))
    assert fit_costs.rates_at(point, (*SMALL[:-1], 2), Rates(1, 1, 1)) == pytest.approx(Rates(0.3, 0.2, 1))
    assert fit_costs.rates_at(point, SMALL, Rates(1, 1, 1)) == pytest.approx(Rates(0.3, 0.3, 1))
    slower = fit_costs.point_of(Rates(0.3, 0.4, 1))
    assert fit_costs.rates_at(slower, (*SMALL[:-1], 2), Rates(1, 1, 1)) == pytest.approx(Rates(0.3, 0.3, 1))


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
    sweep = [
        (Case.of(row, device), {fit_costs.key_of(name): us for name, us in row["us"].items()})
        for row in json.loads((RESULTS / f"sweep_{device}.json").read_text())
    ]
    text, rows = fit_costs.SHIPPED.read_text(), fit_costs.table_rows(rates_of("dense"), sweep)
    assert fit_costs.with_table(text, rows, device) == text, "fit_costs.py --keep --table"


def test_the_table_has_the_best_candidate_where_the_choice_takes_half_a_percent_longer():
    slow, near, alone = (8192, 4096, 7168), (8192, 7168, 7168), (8192, 2112, 7168)
    for shape in (slow, near, alone):  # LARGE is the choice; measured, it is slower than SMALL, or it was not measured
        assert predict(LARGE, START[LARGE], Case(shape)) < predict(SMALL, START[SMALL], Case(shape))
    other = (256, 128, 4, 2, "sharea", 2, 1)  # the fastest of all, but no candidate
    times = {
        slow: {SMALL: 100, LARGE: 100.6, other: 90},
        near: {SMALL: 100, LARGE: 100.4, other: 90},
        alone: {SMALL: 100, other: 90},
    }
    sweep = [(Case(shape), us) for shape, us in times.items()]
    assert list(fit_costs.table_rows(START, sweep, (slow, near, alone))) == [(slow, "m128n128s6w2")]
    with pytest.raises(SystemExit, match=r"no times of \[\(1, 2, 3\)\]"):
        list(fit_costs.table_rows(START, sweep, (slow, (1, 2, 3))))


def test_rows_of_the_table_are_replaced_and_nothing_else():
    def table(*rows):
        lines = "".join(f'    {{{{{", ".join(map(str, shape))}}}, "{name}"}},\n' for shape, name in rows)
        return f"before {{}};\nkMeasuredH200[] = {{\n}};\nkMeasuredH100[] = {{\n{lines}}};\nafter {{}};\n"

    rows = [((4, 5, 6), "m64n32s8w1_x2"), ((7, 8, 9), "m128n64s8w2")]
    other = ((1, 2, 3), "not of the dense table")
    assert other[0] not in fit_costs.DENSE_SHAPES
    text = table((fit_costs.DENSE_SHAPES[0], "old"), other)
    assert fit_costs.with_table(text, rows, "h100") == table(*rows, other)


def test_kernels_are_dropped_by_how_little_they_are_missed():
    times = [{"a": 10, "b": 10.1, "c": 14}, {"a": 10.2, "b": 10, "c": 10.6}, {"c": 5}]
    names, dropped = fit_costs.choose(times, 1)
    assert names == ["c"], "no other kernel was measured for the last shape"
    # "a" costs 1% of one shape, "b" would cost 2%; then "b" costs 14 / 10 and 10.6 / 10.
    assert [name for name, _ in dropped] == ["a", "b"]
    assert [loss for _, loss in dropped] == pytest.approx([math.log(1.01) / 3, math.log(1.4 * 1.06) / 3])


def test_no_kernel_is_dropped_where_so_many_may_stay():
    assert fit_costs.choose([{"a": 1, "b": 2}], 2) == (["a", "b"], [])


def test_without_scipy_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)  # importing it raises ImportError
    with pytest.raises(SystemExit, match=r"scipy: is not installed; .* bench/requirements-fit\.txt"):
        fit_costs.fit(None, [], [], None, None)
