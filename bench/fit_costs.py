#!/usr/bin/env python3
"""Fits the rates of the planner's candidates (src/plan/candidates.cpp) to measured times, and says what choices lose.

Usage: fit_costs.py SWEEP.json [--write] [--keep] [--refine] [--table] [--device NAME]
       fit_costs.py SWEEP.json --choose N

SWEEP.json: [{"shape": [m, n, k], "us": {"m128n128s6w2_shareB2": microseconds, ...}}, ...], measured on one GPU with
L2 flushed before each launch; grouped products have also "groups" and, where the rows of a group were announced,
"expected". All rows are of one kind. --write puts the fitted rates into candidates.cpp; --keep takes those that are
there. --refine then moves rates by small steps as long as what the choices lose gets less: the best fit to all times
is not the one that chooses best. Needs numpy and scipy. The model is that of src/plan/cost.cpp, without the rules: a
kernel that was not measured for a shape is not a choice for it. --table writes into src/plan/shipped_table.cpp what is
best where the choice with these rates takes more than 0.5% longer, of the shapes of the dense table. --device says
which GPU the sweep was measured on, if not an H200.

--choose fits nothing: of all measured kernels it drops, one at a time, the one that is missed least, until N are left.
"""
import argparse
import json
import math
import re
from pathlib import Path

import numpy as np
from dense_table import DENSE_SHAPES

PLAN = Path(__file__).resolve().parent.parent / "src/plan"
CANDIDATES, SHIPPED = PLAN / "candidates.cpp", PLAN / "shipped_table.cpp"
TABLES = {False: "kCandidates = ", True: "kGrouped = "}   # grouped: where candidates.cpp has them
ROW = re.compile(r"\{\{(\d+), (\d+), (\d+), (\d+), (\d+), k(\w+), (\d+)\}, \{([\d., ]+)\}\},")
NAME = re.compile(r"m(\d+)n(\d+)s(\d+)w(\d+)(?:_(None|[Ss]plitK|[Ss]hare[AB])(\d+))?(?:_[xo](\d+))?")

# As in src/plan/cost.cpp and device_spec.cpp.
LAUNCH_US, OVERLAP = 2.2, 4
BYTES_PER_US = {"h200": 4.2e6, "h100": 2.9e6}
SPREAD, QUARTERS, REREAD = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3), (-1.2, -0.4, 0.4, 1.2), 0.3
L2_BETWEEN_SECTORS, L2_BETWEEN_LINES = 6.6e6, 10.3e6
CLUSTERS = {1: (132, 264), 2: (66, 132), 3: (39, 79), 4: (30, 62), 5: (22, 47), 8: (15, 30)}

# A kernel is fitted where it is a contender: within this factor of the best, and the more so the nearer it is to the
# best. Elsewhere its time does not matter.
CONTENDER, NEARNESS = 1.35, 8
# Weight of a rate's distance (as a logarithm) from what its shape suggests: small, it decides only where few shapes do.
PRIOR_WEIGHT = 0.02


def ceil_div(a, b):
    return -(-a // b)


def key_of(name):
    """Tile, stages, warpgroups, cluster use and size, CTAs per SM: what tells the kernels of a sweep apart."""
    tile_m, tile_n, stages, warpgroups, use, cluster, ctas = NAME.match(name).groups()
    use = "alone" if use in (None, "None") else use.lower()
    return int(tile_m), int(tile_n), int(stages), int(warpgroups), use, int(cluster or 1), int(ctas or 1)


def name_of(key):
    """As in src/plan/candidates.cpp."""
    tile_m, tile_n, stages, warpgroups, use, cluster, ctas = key
    shared = "" if use == "alone" else f"_{use[:-1]}{use[-1].upper()}{cluster}"
    return f"m{tile_m}n{tile_n}s{stages}w{warpgroups}{shared}" + (f"_x{ctas}" if ctas > 1 else "")


def l2_time(key, k):
    tile_m, tile_n, _, _, use, cluster, _ = key
    if k % 64 == 0:
        return 0
    rows = tile_m // (cluster if use == "sharea" else 1) + tile_n // (cluster if use == "shareb" else 1)
    return rows * 128 / (L2_BETWEEN_LINES if k % 32 == 0 else L2_BETWEEN_SECTORS)


def waves_time(key, rates, ctas, blocks, k):
    (*_, cluster, ctas_per_sm), (block, block_alone, tile, *_) = key, rates
    alone, slots = CLUSTERS[cluster][0] * cluster, CLUSTERS[cluster][ctas_per_sm - 1] * cluster
    l2 = l2_time(key, k)

    def wave(size):
        return tile + blocks * max(block_alone if size <= alone else block, size * l2)

    waves, rest = divmod(ctas, slots)
    return waves * wave(slots) + (wave(rest) if rest >= 1 else 0)


def total_time(launch, compute, memory):
    return launch + (compute**OVERLAP + memory**OVERLAP) ** (1 / OVERLAP)


def predict(key, rates, shape, groups=0, expected=0, device="h200"):
    (tile_m, tile_n, _, _, use, cluster, _), (m, n, k) = key, shape
    if groups:
        return predict_grouped(key, rates, shape, groups, expected, device)
    tiles_m = ceil_div(m, tile_m * (cluster if use == "shareb" else 1))
    tiles_n = ceil_div(n, tile_n * (cluster if use == "sharea" else 1))
    blocks = ceil_div(ceil_div(k, 128), cluster if use == "splitk" else 1)
    compute = waves_time(key, rates, tiles_m * tiles_n * cluster, blocks, k)
    return total_time(LAUNCH_US, compute, (m * k + n * k + 2 * m * n) / BYTES_PER_US[device])


def predict_grouped(key, rates, shape, groups, expected, device):
    (tile_m, tile_n, _, warpgroups, _, cluster, _), (m, n, k) = key, shape
    rows, spared = expected or m / groups, rates[3]
    apart = 1 if expected else math.sqrt(1 - 1 / groups)   # else M is known: a group has the more, the less others have
    counts, strays, whole = [], [], 0   # of tiles one below the other, for each spread; what is not known of them
    for spread in SPREAD:
        rows_here = max(1.0, rows * (1 + (spread - 1) * apart))
        full, rest = divmod(rows_here, tile_m)
        unit = tile_m // warpgroups
        used = math.ceil(rest / unit) * unit / tile_m
        counts.append(full + (rest > 0))
        strays.append(counts[-1] - (0 if expected else rows_here / tile_m))
        whole += full + (1 - spared * (1 - used) if rest > 0 else 0)
    below = sum(counts) / len(SPREAD)
    deviation = math.sqrt(groups * np.var(strays))
    across, blocks = ceil_div(n, tile_n * cluster) * cluster, ceil_div(k, 128) * whole / sum(counts)
    ctas = [max(across, (groups * below + place * deviation) * across) for place in QUARTERS]
    compute = sum(waves_time(key, rates, c, blocks, k) for c in ctas) / len(QUARTERS)
    m, weights = groups * rows, groups * n * k * (1 + REREAD * min(below - 1, 1))
    return total_time(LAUNCH_US, compute, (m * k + weights + 2 * m * n) / BYTES_PER_US[device])


def prior(key):
    """A tile's products, its store, and an exchange for split K, as they were on a first kernel of each kind."""
    tile_m, tile_n, _, _, use, _, ctas_per_sm = key
    block = ctas_per_sm * (0.03 + 0.4 * tile_m * tile_n / 16384)
    return np.log([block, block / ctas_per_sm, 2.6 if use == "splitk" else 0.6 + tile_m * tile_n / 32768])


def weights(us):
    """Of the contenders."""
    behind = {key: time / min(us.values()) - 1 for key, time in us.items()}
    return {key: 1 / (1 + NEARNESS * late) for key, late in behind.items() if 1 + late < CONTENDER}


def fit(key, sweep, common, start):
    from scipy.optimize import minimize   # here, so that the model can be had without it

    data = [(case, us[key] / both, of[key]) for (case, us), both in zip(sweep, common) if key in (of := weights(us))]
    expected = np.append(prior(key), [0.0] * (sweep[0][0][1] > 0))   # half of a tile's time is spared

    def rates_of(x):
        block, block_alone, tile = np.exp(x[:3])
        spared = 1 / (1 + np.exp(-x[3:]))
        return block, min(block, block_alone) if key[-1] > 1 else block, tile, *spared   # alone a CTA is not slower

    def loss(x):
        off = [weight * math.log(predict(key, rates_of(x), *case) / us) ** 2 for case, us, weight in data]
        return sum(off) + PRIOR_WEIGHT * sum((x - expected) ** 2)

    def inverse(rates):
        return np.append(np.log(rates[:3]), [math.log(r / (1 - r)) for r in rates[3:]])

    begin = expected if start is None else inverse(start)
    best = minimize(loss, begin, method="Nelder-Mead", options={"maxiter": 4000, "xatol": 1e-4, "fatol": 1e-6})
    return tuple(float(r) for r in rates_of(best.x))


# Rounds of fits: later ones change choices no more.
ROUNDS = 8


def with_rows_known(sweep):
    """The same, as if it were known how many rows the groups of each case had together."""
    return [((shape, groups, 0, device), us) for (shape, groups, _, device), us in sweep]


def common_factors(rates, sweep):
    """Of each case: what its contenders take together of the times that are predicted."""
    factors = []
    for case, us in sweep:
        of = {key: weight for key, weight in weights(us).items() if key in rates}
        off = sum(weight * math.log(us[key] / predict(key, rates[key], *case)) for key, weight in of.items())
        factors.append(math.exp(off / sum(of.values())) if of else 1.0)
    return factors


def fit_all(keys, sweep):
    """Rates that tell kernels apart. What all contenders of a shape take more or less than predicted, as clocks follow
    the power that the shape takes, say, says nothing of a kernel: in each round it is left out as the last one's rates
    have it."""
    known = with_rows_known(sweep)
    rates, common = dict.fromkeys(keys), [1.0] * len(known)
    for _ in range(ROUNDS):
        rates = {key: fit(key, known, common, rates[key]) for key in keys}
        common = common_factors(rates, known)
    return rates


# Of a kernel's block (and block_alone), tile and spared rates: what a step of `refine` multiplies them by.
STEPS = ((0.98, 0.99, 1.01, 1.02), (0.93, 1.07), (0.93, 1.07))
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
    """Rates with one of block, tile and spared times `factor`."""
    block, block_alone, *others = rates
    if part == 0:
        return block * factor, block_alone * factor, *others
    others[part - 1] *= factor
    return block, block_alone, *others


def refine(rates, sweep):
    start, rates = rates, dict(rates)
    predicted = [{key: predict(key, rates[key], *case) for key in rates if key in us} for case, us in sweep]
    losses = [expected_loss(p, us) for p, (_, us) in zip(predicted, sweep)]

    def distance(key, at):
        return sum(math.log(x / y) ** 2 for x, y in zip(at, start[key]))

    better = True
    while better:
        better = False
        for key in rates:
            rows = [i for i, p in enumerate(predicted) if key in p]
            for part, factor in ((part, f) for part in range(len(rates[key]) - 1) for f in STEPS[part]):
                there = moved(rates[key], part, factor)
                if len(there) > 3 and there[3] > 1:
                    continue
                new = {i: predict(key, there, *sweep[i][0]) for i in rows}
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
    return min(measured, key=lambda key: predict(key, rates[key], *case)), min(measured, key=us.get)


def report(rates, sweep):
    lost, least = [], []
    for case, us in sweep:
        choice, candidate = choice_and_best(rates, case, us)
        best = min(us, key=us.get)
        lost.append(us[choice] / us[best])
        least.append(us[candidate] / us[best])
        if lost[-1] > 1.04:
            print(f"{case}: chose {choice} {us[choice]:.1f} us; best {best} {us[best]:.1f} us")

    def mean(ratios):
        return math.exp(np.mean(np.log(ratios)))

    print(f"{len(sweep)} shapes, {len(rates)} candidates of {len({k for _, us in sweep for k in us})} measured kernels")
    print(f"the choice takes {mean(lost):.4f} of the best measured time in geometric mean, {max(lost):.3f} at worst")
    print(f"the best candidate takes {mean(least):.4f}, {max(least):.3f} at worst")


# A choice that takes this much longer than the best candidate has a row in the shipped table: less may be noise.
TABLE_FROM = 1.005


def table_rows(rates, sweep, shapes=DENSE_SHAPES):
    """(shape, name of the best candidate) where the model's choice takes too long."""
    cases = {shape: ((shape, groups, *others), us) for (shape, groups, *others), us in sweep if groups == 0}
    if missing := [shape for shape in shapes if shape not in cases]:
        raise SystemExit(f"--table: the sweep has no times of {missing}; measure these shapes with bench/sweep.py")
    for shape in shapes:
        case, us = cases[shape]
        choice, best = choice_and_best(rates, case, us)
        if us[choice] > TABLE_FROM * us[best]:
            yield shape, name_of(best)


def with_table(text, rows, device="h200"):
    """The text of shipped_table.cpp with these rows in place of the device's own."""
    head = f"kMeasured{device.upper()}[] = {{\n"
    begin = text.index(head) + len(head)
    lines = "".join(f'    {{{{{m}, {n}, {k}}}, "{name}"}},\n' for (m, n, k), name in rows)
    return text[:begin] + lines + text[text.index("};", begin):]


# What a shape loses (as a logarithm) for which no kernel is left: more than any kernel that was measured loses.
UNSERVED = 10


def choose(times, count):
    """Names of the kernels that stay, and (name, loss without it) of the others in the order in which they go. The loss
    is the mean logarithm of what the best one left takes of the best measured time."""
    names = sorted({name for us in times for name in us})
    behind = np.array([[math.log(us[name] / min(us.values())) if name in us else UNSERVED for name in names]
                       for us in times])
    left, dropped = list(range(len(names))), []
    while len(left) > count:
        losses = {one: behind[:, [other for other in left if other != one]].min(axis=1).mean() for one in left}
        least = min(losses, key=losses.get)
        left.remove(least)
        dropped.append((names[least], float(losses[least])))
    return [names[i] for i in left], dropped


def report_chosen(names, dropped):
    left = len(names) + len(dropped)
    for gone, (name, loss) in enumerate(dropped, 1):
        print(f"without {name}: the best of {left - gone} takes {math.exp(loss):.5f} of the best measured time")
    print(f"{len(names)} stay:", *names, sep="\n")


def candidates(text, grouped=False):
    """The rows of a table in candidates.cpp: (match, key, rates)."""
    begin = text.index(TABLES[grouped])
    for row in ROW.finditer(text, begin, text.index("});", begin)):
        tile_m, tile_n, stages, warpgroups, cluster, use, ctas, rates = row.groups()
        key = (int(tile_m), int(tile_n), int(stages), int(warpgroups), use.lower(), int(cluster), int(ctas))
        yield row, key, tuple(float(r) for r in rates.split(","))


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
    grouped = "groups" in measurements[0]
    if args.table and grouped:
        parser.error("--table: the shipped table is of the dense table, and this sweep is of groups; give a dense one")
    if args.choose is not None:
        if args.choose < 1:
            parser.error(f"--choose {args.choose}: at least one kernel stays")
        return report_chosen(*choose([row["us"] for row in measurements], args.choose))
    sweep = [((tuple(row["shape"]), row.get("groups", 0), row.get("expected", 0), args.device),
              {key_of(name): us for name, us in row["us"].items() if NAME.match(name)}) for row in measurements]
    text = CANDIDATES.read_text()
    measured = {key for _, us in sweep for key in us}
    rates, lines = {}, {}
    for row, key, now in candidates(text, grouped):
        if key not in measured:
            print("not measured, keeps its rates:", key)
        rates[key], lines[key] = now, row.group()
    if not args.keep:
        rates |= fit_all([key for key in rates if key in measured], sweep)
    if args.refine:   # how the rows of these groups happened to differ from what was expected is not to be learnt
        rates = refine(rates, sweep + with_rows_known(sweep) if grouped else sweep)
    rows = {}
    for key, old in lines.items():
        numbers = zip(("{:.3f}", "{:.3f}", "{:.2f}", "{:.2f}"), rates[key])
        rows[old] = old.partition("}")[0] + "}, {" + ", ".join(form.format(rate) for form, rate in numbers) + "}},"
    begin = text.index(TABLES[grouped])
    for old, new in rows.items():
        text = text[:begin] + text[begin:].replace(old, new, 1)
    print("\n".join(rows.values()))
    report(rates, sweep)
    if args.write:
        CANDIDATES.write_text(text)
    if args.table:
        rounded = {key: now for _, key, now in candidates(text, grouped)}   # as the planner has them
        SHIPPED.write_text(with_table(SHIPPED.read_text(), table_rows(rounded, sweep), args.device))


if __name__ == "__main__":
    main()
