#!/usr/bin/env python3
"""Layers of experts over 2, 4 and 8 GPUs of one host: what they should take, written down before a run, and after it.

    ep_ranks.py predict [RECORD ...] [--out predicted.json]     without records: ep_h100.json, which has two ranks
    gpu_ep.py --ranks 8 --out measured.json                     the run
    ep_ranks.py compare predicted.json measured.json

The experts of a rank compute as many rows, whatever the ranks: their time alone is that of the records at as many rows.
Messages take what bench/ep_model.py says. A layer takes beside its experts a constant and a multiple of its messages,
or of what these would take where it goes through memory that ranks reach: both are fitted to the records.
"""

import argparse
import json
import pathlib
from typing import Any, NamedTuple

import numpy as np

import ep_model
from records import write_record

RECORD = pathlib.Path(__file__).parent / "results" / "ep_h100.json"
WAYS = ("capacity", "peers")  # messages of a capacity that is chosen; memory that ranks reach
NOISE = 0.05  # of what a layer takes, by which two runs of it differ
LAYERS = {"DeepSeek-V4-Flash": (4096, 6), "DeepSeek-V3": (7168, 8)}
EXPERTS = 32  # of a rank
ZIPF = {"even": 0.0, "zipf": 1.0}
RANKS = (2, 4, 8)
PUBLISHED = {64: 266, 1024: 637, 8192: 3269}  # us of DeepSeek-V4-Flash on 8 H200, sums of experts in bf16
Rows = list[dict[str, Any]]


class Case(NamedTuple):
    layer: str
    kind: str
    tokens: int
    ranks: int


def slowest_of(record: dict[str, Any]) -> dict[Case, dict[str, Any]]:
    """Of each case the largest times and rows of all ranks."""
    cases: dict[Case, dict[str, Any]] = {}
    for row in record["rows"]:
        case = Case(row["layer"], row["kind"], row["tokens"], record["ranks"])
        seen = cases.setdefault(case, {"rows": 0, "us": {}})
        seen["rows"] = max(seen["rows"], row["rows"])
        for name, us in row["us"].items():
            seen["us"][name] = max(seen["us"].get(name, 0.0), us)
    return cases


def messages_us(case: Case, links: ep_model.Links) -> tuple[tuple[float, float], float]:
    """Microseconds of messages there and back, and rows of the rank that has most."""
    hidden, choices = LAYERS[case.layer]
    layer = ep_model.Layer(hidden, choices, EXPERTS * case.ranks)
    flows = ep_model.flows_of(layer, case.ranks, 8, case.tokens, ZIPF[case.kind])
    return ep_model.exchange_us(links, layer, flows, 8, "flat"), float(flows.rows.sum(0).max())


def fitted_links(cases: dict[Case, dict[str, Any]]) -> ep_model.Links:
    """NVLink's speed and what an exchange takes without a byte, of messages alone, evenly routed."""
    bytes_, us = [], []
    for case, seen in cases.items():
        if case.kind != "even":
            continue
        hidden, choices = LAYERS[case.layer]
        layer = ep_model.Layer(hidden, choices)
        rows = case.tokens * choices * (case.ranks - 1) / case.ranks
        bytes_ += [rows * layer.sent, rows * layer.returned]
        us += [seen["us"]["bare dispatch"], seen["us"]["bare combine"]]
    weights = 1 / np.array(us)  # relative errors
    columns = np.stack([np.array(bytes_), np.ones(len(us))], 1)
    (slope, constant), *_ = np.linalg.lstsq(columns * weights[:, None], np.ones(len(us)), rcond=None)
    return ep_model.Links(nvlink=float(1 / slope), nvlink_us=float(constant))


class Beside(NamedTuple):
    """What a layer takes beside its experts: a constant, and a multiple of its messages alone."""

    us: float
    messages: float


class Model:
    """What records say of layers with other numbers of ranks."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self.cases = {case: seen for record in records for case, seen in slowest_of(record).items()}
        self.links = fitted_links(self.cases)
        ways = [way for way in WAYS if all(way in seen["us"] for seen in self.cases.values())]
        self.beside = {way: self.fitted_beside(way) for way in ways}

    def fitted_beside(self, way: str) -> Beside:
        """By least squares of errors over what is exposed, or over NOISE of the layer where that is more."""
        us = [seen["us"] for seen in self.cases.values()]
        exposed = np.array([of[way] - of["local"] for of in us])
        weights = 1 / np.maximum(exposed, NOISE * np.array([of[way] for of in us]))
        columns = np.stack([np.ones(len(us)), np.array([of["bare places"] for of in us])], 1)
        fit, *_ = np.linalg.lstsq(columns * weights[:, None], exposed * weights, rcond=None)
        return Beside(float(fit[0]), float(fit[1]))

    def local_us(self, layer: str, rows: float) -> float:
        """Of experts alone at so many rows: a line between those that were measured, of logarithms."""
        points = sorted((seen["rows"], seen["us"]["local"]) for case, seen in self.cases.items() if case.layer == layer)
        x, y = (np.log([p[i] for p in points]) for i in range(2))
        last = (y[-1] - y[-2]) / (x[-1] - x[-2]) if x[-1] > x[-2] else 1.0
        at = float(np.log(max(rows, 1.0)))
        if at > x[-1]:
            return float(np.exp(y[-1] + max(last, 1.0) * (at - x[-1])))
        return float(np.exp(np.interp(at, x, y)))

    def predicted(self, case: Case) -> dict[str, float]:
        (there, back), rows = messages_us(case, self.links)
        local = self.local_us(case.layer, rows)
        us = {"bare dispatch": there, "bare combine": back, "local": local}
        us |= {way: local + beside.us + beside.messages * (there + back) for way, beside in self.beside.items()}
        return {name: round(value, 1) for name, value in us.items()}


def predictions(records: list[dict[str, Any]], names: str) -> dict[str, Any]:
    model = Model(records)
    tokens = sorted({case.tokens for case in model.cases})
    cases = [Case(layer, kind, t, ranks) for ranks in RANKS for layer in LAYERS for kind in ZIPF for t in tokens]
    return {
        "gpu": records[0]["gpu"],
        "method": f"bench/ep_ranks.py predict, from {names}: a model, not measured",
        "links": {"gb_per_s": round(model.links.nvlink / 1e3, 1), "us": round(model.links.nvlink_us, 2)},
        "exposed": {
            way: {"us": round(beside.us, 1), "times messages": round(beside.messages, 3)}
            for way, beside in model.beside.items()
        },
        "rows": [case._asdict() | {"us": model.predicted(case)} for case in cases],
    }


def compared(predicted: dict[str, Any], record: dict[str, Any]) -> list[str]:
    """Lines of a table: of each time what was predicted, and what was measured over it."""
    measured = slowest_of(record)
    names = [name for name in predicted["rows"][0]["us"] if all(name in seen["us"] for seen in measured.values())]
    best = next(way for way in reversed(WAYS) if way in names)
    lines = [f"| ranks | layer | ids | tokens | {' | '.join(names)} | published |", "| --- " * (len(names) + 5) + "|"]
    for row in predicted["rows"]:
        case = Case(row["layer"], row["kind"], row["tokens"], row["ranks"])
        if case not in measured:
            continue
        us = measured[case]["us"]
        cells = [f"{row['us'][name]:.0f}, measured {us[name]:.0f}: {us[name] / row['us'][name]:.2f}" for name in names]
        known = PUBLISHED.get(case.tokens) if case == Case("DeepSeek-V4-Flash", "even", case.tokens, 8) else None
        cells.append(f"{us[best] / known:.2f} of {known}" if known else "")
        lines.append(f"| {case.ranks} | {case.layer} | {case.kind} | {case.tokens} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    predict = commands.add_parser("predict")
    predict.add_argument("records", nargs="*", type=pathlib.Path, default=[RECORD], metavar="RECORD")
    predict.add_argument("--out", type=pathlib.Path)
    compare = commands.add_parser("compare")
    compare.add_argument("predicted", type=pathlib.Path)
    compare.add_argument("measured", type=pathlib.Path)
    options = parser.parse_args()
    if options.command == "compare":
        record = json.loads(options.measured.read_text())
        print(*compared(json.loads(options.predicted.read_text()), record), sep="\n")
        links = fitted_links(slowest_of(record))
        print(f"NVLink by this record: {links.nvlink / 1e3:.0f} GB/s, {links.nvlink_us:.1f} us")
        return
    records = [json.loads(path.read_text()) for path in options.records]
    said = predictions(records, " and ".join(f"bench/results/{path.name}" for path in options.records))
    if options.out:
        write_record(options.out, said)
    for row in said["rows"]:
        print(*row.values())


if __name__ == "__main__":
    main()
