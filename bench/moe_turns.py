#!/usr/bin/env python3
"""Times layers that were slower than a call for each step once more, in many turns, beside themselves: is it noise?

Usage: moe_turns.py BUILD.so bench/results/moe_h200.json [--rounds N] [--commit HASH] [--out FOLDER]

Rows are those of the record of gpu_check.py's moe_speed of which the faster call for each step took less time than the
layer as one call, which is timed twice here: what its two times differ by is noise. Of many tokens also as the GPU
replays the layer, and the faster call for each step, again and again: what it draws, of what limit, and its clock.
Needs torch and a Hopper GPU; what imports torch is imported where it is used, so that help can be had without it.
"""

import argparse
import json

from layer_left_out import parser_of, write
from power import at_work

MANY = 4096  # tokens, from which power bounds


def chain_of(us: dict[str, float]) -> float:
    """The faster call for each step: overlapping or not."""
    return min(us["chain"], us["chain, pdl"])


def slower(rows: list[dict]) -> list[dict]:
    return [row for row in rows if chain_of(row["us"]) < row["us"]["moe"]]


def over_moe(us: dict[str, float]) -> dict[str, float]:
    """The chain's time, and the layer's second one, over the layer's."""
    return {"chain of moe": round(chain_of(us) / us["moe"], 3), "again of moe": round(us["moe, again"] / us["moe"], 3)}


def record_of(options: argparse.Namespace, rows: list[dict]) -> dict:
    import torch

    from gpu_layer import LAYERS, Layers, captured, replay_us

    layers = Layers(options)
    library, found = layers.tested, []

    def timed(layer, tokens: int) -> dict:
        out, memory = torch.empty_like(layer.x), layer.workspace(library).t
        calls = {"moe": layer.prepare(library, out, memory), "moe, again": layer.prepare(library, out, memory)}
        calls |= {"chain": layer.chain(library, out, False), "chain, pdl": layer.chain(library, out, True)}
        graphs = {name: captured(call) for name, call in calls.items()}
        us = replay_us(graphs, options.rounds)
        row = {"us": us} | over_moe(us)
        if tokens < MANY:
            return row
        chain = min("chain", "chain, pdl", key=lambda name: us[name])
        drawn = {"moe": at_work(graphs["moe"]), "chain": at_work(graphs[chain])}
        return row | {"at work": drawn, "watts of limit": round(drawn["moe"]["watts"] / drawn["moe"]["limit"], 3)}

    for name, hidden, pairs, experts, choices in LAYERS:
        whole = layers.layer_of(1, choices, hidden, pairs, experts)
        for row in (row for row in rows if row["layer"] == name):
            layer = layers.part_of(whole, row["tokens"], choices, row["kind"])
            found.append({key: row[key] for key in ("layer", "kind", "tokens")} | timed(layer, row["tokens"]))
            print(found[-1], flush=True)
    method = f"replays of CUDA graphs between events, L2 flushed, in turn, medians of {options.rounds}"
    return layers.machine() | {"method": f"{method}; at work: replayed all the time, nvidia-smi", "rows": found}


def main() -> None:
    options = parser_of(__doc__, 61).parse_args()
    rows = slower(json.loads(options.record.read_text())["rows"])
    write(record_of(options, rows), options.out, "moe_turns")


if __name__ == "__main__":
    main()
