#!/usr/bin/env python3
"""What bounds one call of a product and its SwiGLU, on the rows of gpu_check.py's gated_speed.

Usage: gated_bounds.py BUILD.so [--rounds N] [--commit HASH] [--out FOLDER]

"one" and "two" are timed in turn as there. Few rows also without products: every wgmma left out, kernels load, wait,
promote, activate and store as before (layer_left_out.py). Many rows also as the GPU replays one thing again and again:
what it draws on average, of what limit, and the clock of its SMs then. Needs torch and a Hopper GPU; what imports torch
is imported where it is used, so that help can be had without it.
"""

import argparse
import pathlib
import tempfile

from layer_left_out import NO_PRODUCTS, parser_of, without, write
from power import at_work

MANY = 1000  # rows, from which power bounds


def record_of(options: argparse.Namespace) -> dict:
    from gpu_gated import Gated
    from gpu_layer import captured, replay_us
    from gpu_library import Library

    gated = Gated(options)
    rows: list[dict] = []
    whole = gated.tested
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "no_products.so"
        copy.write_bytes(without(pathlib.Path(options.tested).read_bytes(), NO_PRODUCTS))
        no_products = Library(str(copy))

    def calls_of(library, groups: int, typical: int) -> dict:
        """Of the same numbers of rows, whichever library."""
        gated.reseed()
        gated.tested = library
        return gated.both_ways(groups, typical)

    for groups, typical, _ in Gated.GATED_ROWS:
        graphs = {name: captured(call) for name, call in calls_of(whole, groups, typical).items()}
        if typical < MANY:
            graphs["no products"] = captured(calls_of(no_products, groups, typical)["one"])
        us = replay_us(graphs, options.rounds)
        rows.append({"groups": groups, "rows": typical, "us": us})
        if typical < MANY:
            rows[-1]["no products of one"] = round(us["no products"] / us["one"], 3)
        else:
            drawn = {name: at_work(graphs[name]) for name in ("one", "two")}
            rows[-1] |= {"at work": drawn, "watts of limit": round(drawn["one"]["watts"] / drawn["one"]["limit"], 3)}
        print(rows[-1], flush=True)
    gated.tested = whole
    method = f"replays of CUDA graphs between events, L2 flushed, in turn, medians of {options.rounds}"
    return gated.machine() | {"method": f"{method}; at work: replayed all the time, nvidia-smi", "rows": rows}


def main() -> None:
    options = parser_of(__doc__, 41, record=False).parse_args()
    write(record_of(options), options.out, "gated_bounds")


if __name__ == "__main__":
    main()
