#!/usr/bin/env python3
"""Times layers of few tokens beside themselves with parts of their kernels left out: what bounds them.

Usage: layer_left_out.py BUILD.so bench/results/moe_h200.json [--rounds N] [--draws N] [--below US] [--out FOLDER]

Rows are those of the record of gpu_check.py's moe_speed whose weights are read in less than --below microseconds, or
whose products would take less than half as long as that. What is left out, each in a graph, in turn with the whole
layer:
  no products: every wgmma; kernels load, wait, promote and store as before
  no passes: what launches over rows do, but for waiting for those before them; more than 128 choices are still routed
  neither: both
  launches: what all kernels do, but for setting up and waiting
and what reads weights and does nothing else, or copies as many bytes as passes must move: tokens and their codes, from
memory, and where the activation has a launch of its own what it reads and writes, from L2, where the product before it
leaves it. Of more rows than those whose weights are read also the layer with the activation fused. How many tiles a
rank's products have depends on ids: these are drawn --draws times, and times are means.
A build has its kernels as text, which is compiled at run time where the pack has another: copies of the build get texts
of the same length. Needs torch and a Hopper GPU; what imports torch is imported where it is used, so that help can be
had without it.
"""

import argparse
import dataclasses
import json
import pathlib
import statistics
import tempfile
from functools import partial

NO_PRODUCTS = (('"wgmma.mma_async', '"//gma.mma_async'),)
# Text of the kernels that route, and of those that permute, activate and combine, by another one that returns when it
# has waited.
NO_ROUTE = (
    (
        """auto& shared = ptx::dynamic_shared_object<RouteSharedOf<C>>();
    ptx::grid_launch_dependents();
    expect_totals(p, shared);
    ptx::grid_dependency_wait();""",
        """auto& shared = ptx::dynamic_shared_object<RouteSharedOf<C>>();
ptx::grid_launch_dependents();
ptx::grid_dependency_wait(); return;""",
    ),
)
NO_PASSES = (
    (
        """    if (counted) ptx::grid_launch_dependents();
    const uint32_t* few = nullptr;""",
        "if (counted) ptx::grid_launch_dependents(); return; const uint32_t* few = nullptr;",
    ),
    (
        "if (!C.awaits) ptx::grid_dependency_wait();  // the kernel before this one may still",
        "ptx::grid_dependency_wait(); return; //",
    ),
    (
        """const bool routes = C.routes || (C.biased && p.counts);
    if (routes) few = route_few<C.threads(), false>(p.route).rows;
    ptx::grid_dependency_wait();""",
        "const bool routes = false; ptx::grid_dependency_wait(); return;",
    ),
)
NOTHING_OF_PRODUCTS = (
    (
        "if constexpr (kPlan<C>.waits_before_roles) ptx::grid_dependency_wait();\n    if (is_producer<C>(p)) {",
        "ptx::grid_dependency_wait(); return;\n    if (is_producer<C>(p)) {",
    ),
    ("else begin_first_tile<C>(p, smem, ends, warp);", ""),  # CTAs may not end before loads that they share have
)
LEFT_OUT = {
    "no products": NO_PRODUCTS,
    "no passes": NO_PASSES,
    "neither": NO_PRODUCTS + NO_PASSES,
    "launches": NO_ROUTE + NO_PASSES + NOTHING_OF_PRODUCTS,
}


def without(build: bytes, parts: tuple[tuple[str, str], ...]) -> bytes:
    """The build with other text of kernels."""
    for old, new in parts:
        if old.encode() not in build:
            raise ValueError(f"the build has no such text: {old}")
        build = build.replace(old.encode(), new.ljust(len(old)).encode())
    return build


def copied(us: dict[str, float]) -> float:
    """What copies take, beyond a launch and what is before them."""
    of_activation = us["activation copied"] - us["activation's input written"] if "activation copied" in us else 0.0
    return us["input copied"] - us["nothing copied"] + of_activation


def products_and_copies(us: dict[str, float], fewest: float) -> float:
    """Of the whole: the layer without passes over rows, and copies of what these move. What launches take beyond the
    `fewest` of all layers is CTAs of passes that do nothing."""
    return round((us["no passes"] - us["launches"] + fewest + copied(us)) / us["whole"], 3)


def means(draws: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.mean(us[name] for us in draws), 2) for name in draws[0]}


def record_of(options: argparse.Namespace, rows: list[dict]) -> dict:
    import torch

    from gpu_layer import LAYERS, Layers, captured, replay_us
    from gpu_library import ON, Library
    from weights_read import reader

    layers = Layers(options)
    libraries = {"whole": layers.tested}
    with tempfile.TemporaryDirectory() as folder:
        for name, parts in LEFT_OUT.items():
            copy = pathlib.Path(folder) / f"{name}.so"
            copy.write_bytes(without(pathlib.Path(options.tested).read_bytes(), parts))
            libraries[name] = Library(str(copy))

    def copies(layer, apart: bool) -> dict:
        """Functions that copy as many bytes; of the activation an input that has just been written."""
        x, pairs = layer.x.numel() * 3 // 4, layer.ids.numel() * layer.of_experts[2].shape[2] * 5 // 4
        source = torch.randn(max(x, pairs), dtype=torch.bfloat16, device="cuda")
        between, to = torch.empty_like(source), torch.empty_like(source)

        def copy(count: int, activate: bool = False):
            between[:count].copy_(source[:count])
            if activate:
                to[:count].copy_(between[:count])

        calls = {"nothing copied": partial(copy, 8), "input copied": partial(copy, x)}
        of_activation = {"activation's input written": False, "activation copied": True}
        return calls | {name: partial(copy, pairs, also) for name, also in of_activation.items() if apart}

    def timed(layer, apart: bool) -> dict[str, float]:
        """The whole layer comes first: it leaves in memory where groups end, for those that do not route."""
        out, memory = torch.empty_like(layer.x), layer.workspace(layers.tested).t
        calls = {name: layer.prepare(library, out, memory) for name, library in libraries.items()}
        if layer.ids.numel() <= options.most_rows_of_reads:
            calls["weights read"] = reader(layer.ids.unique(), layer.of_experts[0], layer.of_experts[2])
        else:
            fused = dataclasses.replace(layer, options=layer.options | {"fused": ON})
            calls["whole, fused"] = fused.prepare(layers.tested, out, fused.workspace(layers.tested).t)
        calls |= copies(layer, apart)
        return replay_us({name: captured(call) for name, call in calls.items()}, options.rounds)

    found = []
    for name, hidden, pairs, experts, choices in LAYERS:
        whole = layers.layer_of(1, choices, hidden, pairs, experts)
        for row in (row for row in rows if row["layer"] == name):
            apart = any("swiglu_quantize" in launch for launch in row["plan_us"])
            part = partial(layers.part_of, whole, row["tokens"], choices, row["kind"])
            us = means([timed(part(), apart) for _ in range(options.draws if row["kind"] == "rank" else 1)])
            found.append({key: row[key] for key in ("layer", "kind", "tokens")} | {"us": us})
            found[-1]["no products of whole"] = round(us["no products"] / us["whole"], 3)
            print(found[-1], flush=True)
    fewest = min(row["us"]["launches"] for row in found)
    for row in found:
        row["us"]["copies"] = round(copied(row["us"]), 2)
        row["products and copies of whole"] = products_and_copies(row["us"], fewest)
    method = f"replays of CUDA graphs between events, L2 flushed, in turn, medians of {options.rounds}"
    method += f", of a rank means of {options.draws} draws of ids"
    return layers.machine() | {"method": method, "rows": found}


def parser_of(doc: str, rounds: int, record: bool = True) -> argparse.ArgumentParser:
    """What a script takes that times rows of the record of moe_speed, or others, once more."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("tested", metavar="BUILD.so")
    if record:
        parser.add_argument("record", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--commit", default="", help="of the build; that of this tree without it")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path())
    return parser


def write(record: dict, out: pathlib.Path, name: str) -> None:
    """As one of the card that it is of."""
    from records import write_record

    card = record["machine"]["name"].split()[1].lower()
    write_record(out / f"{name}_{card}.json", record)


def is_bound_by_bytes(row: dict, below: float) -> bool:
    """Are weights read in less than `below` microseconds, or is that what takes longest by far?"""
    return row["weights_us"] < below or 2 * row["products_us"] < row["weights_us"]


def main() -> None:
    parser = parser_of(__doc__, 41)
    parser.add_argument("--below", type=float, default=100, help="microseconds in which weights are read, or more")
    parser.add_argument("--most-rows-of-reads", type=int, default=512, help="rows beside which weights are read")
    parser.add_argument("--draws", type=int, default=5, help="of ids, where layers are a rank's")
    options = parser.parse_args()
    rows = [r for r in json.loads(options.record.read_text())["rows"] if is_bound_by_bytes(r, options.below)]
    write(record_of(options, rows), options.out, "layer_left_out")


if __name__ == "__main__":
    main()
