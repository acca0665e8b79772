#!/usr/bin/env python3
"""Fits the rates of the planner's candidates (src/plan/candidates.cpp) to measured times, and says what choices lose.

Usage: fit_costs.py SWEEP.json [--write] [--keep] [--refine] [--table] [--device NAME]
       fit_costs.py SWEEP.json --choose N

SWEEP.json: [{"shape": [m, n, k], "us": {"m128n128s6w2_shareB2": microseconds, ...}}, ...], measured on one GPU with L2
flushed before each launch; grouped products have also "groups" and, where the rows of a group were announced,
"expected"; those with scales for each row of B have "d", bf16 or f32, and where it holds "accumulate": true and
"k_groups"; those without scales have "element", bf16 or f16, "d" and "layout", those with MX scales "mx": true. All
rows belong to one table of candidates.cpp, candidates/unscaled.cpp or candidates/mx.cpp. --write puts the fitted rates
there; --keep takes those that are there. --refine then moves rates by small steps as long as what the choices lose gets
less: the best fit to all times is not the one that chooses best. Needs bench/requirements-fit.txt. The model
(bench/cost_model.py) has no rules: a kernel that was not measured for a shape is not a choice for it. --table writes
into src/plan/shipped_table.cpp what is best where the choice with these rates takes more than 0.5% longer, of the
shapes of the dense table. --device says which GPU the sweep was measured on, if not an H200.

--choose fits nothing: of all measured kernels it drops, one at a time, the one that is missed least, until N are left.
"""

import argparse
import json
import math
import re
from pathlib import Path

import numpy as np

from cost_model import BYTES_PER_US, NAME, Case, Rates, key_of, name_of, predict
from dense_table import DENSE_SHAPES

PLAN = Path(__file__).resolve().parent.parent / "src/plan"
CANDIDATES, SHIPPED = PLAN / "candidates.cpp", PLAN / "shipped_table.cpp"
UNSCALED, MX = PLAN / "candidates/unscaled.cpp", PLAN / "candidates/mx.cpp"
# Where candidates.cpp has them: dense ones, groups of rows, scales for each row of B with D in bf16 or f32. And where
# candidates/unscaled.cpp has those of products without scales, by the layouts of A and B and the type of D.
TABLES = {
    "dense": "kCandidates = ",
    "groups": "kGrouped = ",
    "bf16": "kRowCandidates = ",
    "f32": "kRowF32Candidates = ",
    "unscaled nt bf16": "kDense = ",
    "unscaled nt f32": "kDenseF32 = ",
    "unscaled nn bf16": "kDenseNn = ",
    "unscaled tn bf16": "kDenseTn = ",
    "unscaled tt bf16": "kDenseTt = ",
    "unscaled nt bf16 groups": "kRows = ",
    "mx": "kDense = ",
    "mx groups": "kOfRows = ",
}
ROW = re.compile(r"\{\{(\d+), (\d+), (\d+), (\d+), (\d+), k(\w+), (\d+)\}, \{([\d., ]+)\}\},")
# A kernel is fitted where it is a contender: within this factor of the best, and the more so the nearer it is to the
# best. Elsewhere its time does not matter.
CONTENDER, NEARNESS = 1.35, 8
# Weight of a rate's distance (as a logarithm) from what its shape suggests: small, it decides only where few shapes do.
PRIOR_WEIGHT = 0.02


def prior(key):
    """A tile's products, its store, and an exchange for split K, as they were on a first kernel of each kind."""
    tile_m, tile_n, _, _, use, _, ctas_per_sm = key
    block = ctas_per_sm * (0.03 + 0.4 * tile_m * tile_n / 16384)
    return np.log([block, block / ctas_per_sm, 2.6 if use == "splitk" else 0.6 + tile_m * tile_n / 32768])


def weights(us):
    """Of the contenders."""
    behind = {key: time / min(us.values()) - 1 for key, time in us.items()}
    return {key: 1 / (1 + NEARNESS * late) for key, late in behind.items() if 1 + late < CONTENDER}


def rates_at(x, key, now):
    """The rates at a point of the search, of logarithms. `now`: those that the kernel has, which say what it needs."""
    block, block_alone, tile = (float(rate) for rate in np.exp(x[:3]))
    if key[-1] == 1 or block_alone > block:  # alone a CTA is not slower
        block_alone = block
    spared = 1 / (1 + math.exp(-x[3])) if now.spared > 0 else 0
    return Rates(block, block_alone, tile, spared, math.exp(x[-1]) if now.source > 0 else 0)


def point_of(rates):
    """Where the search has them."""
    spared = [math.log(rates.spared / (1 - rates.spared))] if rates.spared > 0 else []
    return np.concatenate([np.log(rates[:3]), spared, [math.log(rates.source)] if rates.source > 0 else []])


def fit(key, sweep, common, now, start):
    """`now`: the rates that the kernel has; `start`: where the search begins, or None."""
    try:  # here, so that the model can be had without it
        from scipy.optimize import minimize
    except ImportError:
        raise SystemExit("scipy: is not installed; .venv/bin/pip install -r bench/requirements-fit.txt") from None
    data = [
        (case, us[key] / both, of[key])
        for (case, us), both in zip(sweep, common, strict=True)
        if key in (of := weights(us))
    ]
    # Half of a tile's time is spared; loading the old D takes a microsecond.
    expected = np.append(prior(key), [0.0] * (now.spared > 0) + [0.0] * (now.source > 0))

    def loss(x):
        off = [weight * math.log(predict(key, rates_at(x, key, now), case) / us) ** 2 for case, us, weight in data]
        return sum(off) + PRIOR_WEIGHT * sum((x - expected) ** 2)

    begin = expected if start is None else point_of(start)
    best = minimize(loss, begin, method="Nelder-Mead", options={"maxiter": 4000, "xatol": 1e-4, "fatol": 1e-6})
    return rates_at(best.x, key, now)


# Rounds of fits: later ones change choices no more.
ROUNDS = 8


def with_rows_known(sweep):
    """The same, as if it were known how many rows the groups of each case had together."""
    return [(case._replace(expected=0), us) for case, us in sweep]


def common_factors(rates, sweep):
    """Of each case: what its contenders take together of the times that are predicted."""
    factors = []
    for case, us in sweep:
        of = {key: weight for key, weight in weights(us).items() if key in rates}
        off = sum(weight * math.log(us[key] / predict(key, rates[key], case)) for key, weight in of.items())
        factors.append(math.exp(off / sum(of.values())) if of else 1.0)
    return factors


def fit_all(now, sweep):
    """Rates that tell kernels apart. What all contenders of a shape take more or less than predicted, as clocks follow
    the power that the shape takes, say, says nothing of a kernel: in each round it is left out as the last one's rates
    have it."""
    known = with_rows_known(sweep)
    rates, common = dict.fromkeys(now), [1.0] * len(known)
    for _ in range(ROUNDS):
        rates = {key: fit(key, known, common, now[key], rates[key]) for key in now}
        common = common_factors(rates, known)
    return rates


# What a step of `refine` multiplies a kernel's rates by, those that are not 0; block_alone moves with block.
STEPS = {"block": (0.98, 0.99, 1.01, 1.02), "tile": (0.93, 1.07), "spared": (0.93, 1.07), "source": (0.93, 1.07)}
# Kernels so much slower than the choice are choices, too, in part: nobody's model is better than that.
DOUBT = 0.012
# Weight of a rate's distance (as a logarithm) from where it began.
STAY_WEIGHT = 0.02


def expected_loss(predicted, us):
    """The mean logarithm of what the choice takes of the best time, with the choice in doubt."""
    least, best = min(predicted.values()), min(us.values())
    weights = {key: math.exp((1 - time / least) / DOUBT) for key, time in predicted.items()}
    return sum(w * math.log(us[key] / best) for key, w in weights.items()) / sum(weights.values())


def moved(rates, part, factor):
    """Rates with one of them times `factor`."""
    if part == "block":
        return rates._replace(block=rates.block * factor, block_alone=rates.block_alone * factor)
    return rates._replace(**{part: getattr(rates, part) * factor})


def refine(rates, sweep):
    start, rates = rates, dict(rates)
    predicted = [{key: predict(key, rates[key], case) for key in rates if key in us} for case, us in sweep]
    losses = [expected_loss(p, us) for p, (_, us) in zip(predicted, sweep, strict=True)]

    def distance(key, at):
        return sum(math.log(x / y) ** 2 for x, y in zip(at, start[key], strict=True) if y > 0)

    better = True
    while better:
        better = False
        for key in rates:
            rows = [i for i, p in enumerate(predicted) if key in p]
            steps = [(part, f) for part in STEPS if getattr(rates[key], part) > 0 for f in STEPS[part]]
            for part, factor in steps:
                there = moved(rates[key], part, factor)
                if there.spared > 1:
                    continue
                new = {i: predict(key, there, sweep[i][0]) for i in rows}
                lost = {i: expected_loss(predicted[i] | {key: new[i]}, sweep[i][1]) for i in rows}
                gain = sum(losses[i] - lost[i] for i in rows) / len(sweep)
                if gain > STAY_WEIGHT * (distance(key, there) - distance(key, rates[key])) + 1e-6:
                    rates[key], better = there, True
                    for i in rows:
                        predicted[i][key], losses[i] = new[i], lost[i]
    return rates


def choice_and_best(rates, case, us):
    """Of the candidates that were measured for a case: the one that the model takes, and the fastest."""
    measured = [key for key in rates if key in us]
    return min(measured, key=lambda key: predict(key, rates[key], case)), min(measured, key=us.get)


def asked(case):
    """What a case has that the usual one has not."""
    return ", ".join(f"{name} {x}" for name, x in case._asdict().items() if x != Case._field_defaults.get(name))


def report(rates, sweep):
    lost, least = [], []
    for case, us in sweep:
        choice, candidate = choice_and_best(rates, case, us)
        best = min(us, key=us.get)
        lost.append(us[choice] / us[best])
        least.append(us[candidate] / us[best])
        if lost[-1] > 1.04:
            print(f"{asked(case)}: chose {choice} {us[choice]:.1f} us; best {best} {us[best]:.1f} us")

    def mean(ratios):
        return math.exp(np.mean(np.log(ratios)))

    print(f"{len(sweep)} shapes, {len(rates)} candidates of {len({k for _, us in sweep for k in us})} measured kernels")
    print(f"the choice takes {mean(lost):.4f} of the best measured time in geometric mean, {max(lost):.3f} at worst")
    print(f"the best candidate takes {mean(least):.4f}, {max(least):.3f} at worst")


# A choice that takes this much longer than the best candidate has a row in the shipped table: less may be noise.
TABLE_FROM = 1.005


def table_rows(rates, sweep, shapes=DENSE_SHAPES):
    """(shape, name of the best candidate) where the model's choice takes too long."""
    cases = {case.shape: (case, us) for case, us in sweep}
    if missing := [shape for shape in shapes if shape not in cases]:
        raise SystemExit(f"--table: the sweep has no times of {missing}; measure these shapes with bench/sweep.py")
    for shape in shapes:
        case, us = cases[shape]
        choice, best = choice_and_best(rates, case, us)
        if us[choice] > TABLE_FROM * us[best]:
            yield shape, name_of(best)


def with_table(text, rows, device="h200"):
    """The text of shipped_table.cpp with these rows in place of the device's own, but for those of experts, and of
    shapes that the dense table has not."""
    head = f"kMeasured{device.upper()}[] = {{\n"
    begin = text.index(head) + len(head)
    lines = "".join(f'    {{{{{m}, {n}, {k}}}, "{name}"}},\n' for (m, n, k), name in rows)
    end = min(at for word in ("    {{.m = ", "};") if (at := text.find(word, begin)) >= 0)
    kept = [line for line in text[begin:end].splitlines(True) if shape_of_row(line) not in DENSE_SHAPES]
    return text[:begin] + lines + "".join(kept) + text[end:]


def shape_of_row(line):
    """M, N and K of a row of a dense product in shipped_table.cpp."""
    return tuple(int(number) for number in re.findall(r"\d+", line)[:3])


# What a shape loses (as a logarithm) for which no kernel is left: more than any kernel that was measured loses.
UNSERVED = 10


def choose(times, count):
    """Names of the kernels that stay, and (name, loss without it) of the others in the order in which they go. The loss
    is the mean logarithm of what the best one left takes of the best measured time."""
    names = sorted({name for us in times for name in us})
    behind = np.array(
        [[math.log(us[name] / min(us.values())) if name in us else UNSERVED for name in names] for us in times]
    )
    left, dropped = list(range(len(names))), []
    while len(left) > count:
        losses = {one: behind[:, [other for other in left if other != one]].min(axis=1).mean() for one in left}
        least = min(losses, key=lambda one: losses[one])
        left.remove(least)
        dropped.append((names[least], float(losses[least])))
    return [names[i] for i in left], dropped


def report_chosen(names, dropped):
    left = len(names) + len(dropped)
    for gone, (name, loss) in enumerate(dropped, 1):
        print(f"without {name}: the best of {left - gone} takes {math.exp(loss):.5f} of the best measured time")
    print(f"{len(names)} stay:", *names, sep="\n")


def source_of(table):
    """The file that has a table."""
    return UNSCALED if table.startswith("unscaled") else MX if table.startswith("mx") else CANDIDATES


def candidates(text, table="dense"):
    """The rows of a table in the text of its file: (match, key, rates)."""
    begin = text.index(TABLES[table])
    for row in ROW.finditer(text, begin, text.index("});", begin)):
        tile_m, tile_n, stages, warpgroups, cluster, use, ctas, rates = row.groups()
        key = (int(tile_m), int(tile_n), int(stages), int(warpgroups), use.lower(), int(cluster), int(ctas))
        yield row, key, Rates(*(float(r) for r in rates.split(",")))


def row_with(row, rates):
    """A row of a table with other rates: as many as it has."""
    head, _, old = row.partition("}, {")
    forms = ("{:.3f}", "{:.3f}", "{:.2f}", "{:.2f}", "{:.2f}")[: old.count(",")]
    texts = (form.format(rate) if rate else "0" for form, rate in zip(forms, rates, strict=False))
    return head + "}, {" + ", ".join(texts) + "}},"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--refine", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--device", choices=BYTES_PER_US, default="h200")
    parser.add_argument("--choose", type=int, metavar="N")
    args = parser.parse_args()
    measurements = json.loads(args.sweep.read_text())
    tables = {Case.of(row).table() for row in measurements}
    if len(tables) != 1:
        parser.error(f"{args.sweep}: has rows of {len(tables)} tables of candidates; give one with rows of one")
    table = tables.pop()
    if args.table and table != "dense":
        parser.error("--table: the shipped table is of the dense table, and this sweep is not; give a dense one")
    if args.choose is not None:
        if args.choose < 1:
            parser.error(f"--choose {args.choose}: at least one kernel stays")
        return report_chosen(*choose([row["us"] for row in measurements], args.choose))
    sweep = [
        (Case.of(row, args.device), {key_of(name): us for name, us in row["us"].items() if NAME.match(name)})
        for row in measurements
    ]
    text = source_of(table).read_text()
    measured = {key for _, us in sweep for key in us}
    rates, lines = {}, {}
    for row, key, now in candidates(text, table):
        if key not in measured:
            print("not measured, keeps its rates:", key)
        rates[key], lines[key] = now, row.group()
    if not args.keep:
        rates |= fit_all({key: now for key, now in rates.items() if key in measured}, sweep)
    if args.refine:  # how the rows of these groups happened to differ from what was expected is not to be learnt
        rates = refine(rates, sweep + with_rows_known(sweep) if table.endswith("groups") else sweep)
    rows = {old: row_with(old, rates[key]) for key, old in lines.items()}
    begin = text.index(TABLES[table])
    for old, new in rows.items():
        text = text[:begin] + text[begin:].replace(old, new, 1)
    print("\n".join(rows.values()))
    report(rates, sweep)
    if args.write:
        source_of(table).write_text(text)
    if args.table:
        rounded = {key: now for _, key, now in candidates(text, table)}  # as the planner has them
        SHIPPED.write_text(with_table(SHIPPED.read_text(), table_rows(rounded, sweep), args.device))


if __name__ == "__main__":
    main()
