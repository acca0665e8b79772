#!/usr/bin/env python3
"""Trains a small transformer and a small mixture of experts in BF16 and with FP8 layers, and compares the losses.

Usage: torch_curves.py [--steps N] [--batch N] [--device cpu|cuda] [--out RECORD] [--figures DIR]

Same start, same tokens, same optimizer; the FP8 runs differ in finegemm.torch's layers alone. Writes a record with the
curves, draws it, and fails when a mean over a window of steps is further apart than the bound.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

from records import cpu_name, write_record

ROOT = pathlib.Path(__file__).resolve().parent.parent
WINDOW = 25  # steps whose losses are averaged: between neighbours a loss varies by some percent, as tokens do
BOUND = 0.01  # of the mean of a window, relative
MODELS = {"transformer": {}, "mixture of experts": {"experts": 8, "hidden": 256}}
LABELS = {"bf16": ("BF16", "#E69F00"), "fp8": ("FineGEMM, FP8", "#0072B2")}  # of Okabe and Ito's palette


def machine(device: str) -> dict:
    import torch

    import finegemm

    name = torch.cuda.get_device_name() if device == "cuda" else cpu_name()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return {"machine": {"name": name}, "torch": torch.__version__, "finegemm": finegemm.__version__, "commit": commit}


def curve(options: argparse.Namespace, sizes: dict, precision: str) -> dict:
    import torch

    import finegemm.torch
    import torch_models

    is_fp8 = precision == "fp8"
    grouped = finegemm.torch.GroupedLinear if is_fp8 else torch_models.PlainExperts
    torch.manual_seed(0)
    model = torch_models.Model(**sizes, grouped=grouped).to(options.device)
    began = time.perf_counter()
    losses = torch_models.train(
        torch_models.in_fp8(model) if is_fp8 else model, options.steps, options.batch, options.device
    )
    seconds = (time.perf_counter() - began) / options.steps
    print(f"{precision} {sizes}: loss {losses[-1]:.4f}, {seconds:.2f} s per step", file=sys.stderr, flush=True)
    return {"precision": precision, "seconds_per_step": round(seconds, 3), "losses": [round(x, 4) for x in losses]}


def windows(losses: list[float]) -> list[float]:
    """Means over whole windows of steps."""
    return [sum(losses[i : i + WINDOW]) / WINDOW for i in range(0, len(losses) - WINDOW + 1, WINDOW)]


def furthest(rows: list[dict]) -> float:
    """How far means of FP8 are from those of BF16, relative, at most."""
    bf16, fp8 = (windows(row["losses"]) for row in rows)
    return max(abs(x / y - 1) for x, y in zip(fp8, bf16, strict=True))


def draw(record: dict, name: str, folder: pathlib.Path) -> list[pathlib.Path]:
    from figures import INK, SETTINGS, plt

    with plt.rc_context(SETTINGS):
        figure, axes = plt.subplots(1, len(MODELS), figsize=(9, 3.4), sharey=True, layout="constrained")
        for axis, model in zip(axes, MODELS, strict=True):
            rows = [row for row in record["rows"] if row["model"] == model]
            for row in rows:
                label, colour = LABELS[row["precision"]]
                axis.plot(row["losses"], color=colour, linewidth=1.2, alpha=0.85, label=label)
            apart = f"means of {WINDOW} steps are at most {furthest(rows):.2%} apart"
            axis.set_title(f"{model}\n{apart}", fontsize=9.5, color=INK, loc="left")
            axis.set_xlabel("step")
        axes[0].set_ylabel("loss, nats per token")
        axes[0].legend(frameon=False)
        paths = [folder / f"{name}.{kind}" for kind in ("svg", "png")]
        figure.savefig(paths[0], metadata={"Date": None})
        figure.savefig(paths[1], dpi=120, metadata={"Software": None})
        plt.close(figure)
    return paths


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=8, help="sequences of 128 tokens (8)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=pathlib.Path, help="bench/results/torch_curves_DEVICE.json")
    parser.add_argument("--figures", type=pathlib.Path, default=ROOT / "docs/figures", metavar="DIR")
    parser.add_argument("--draw", action="store_true", help="draw the record, and train nothing")
    options = parser.parse_args()
    options.out = options.out or ROOT / f"bench/results/torch_curves_{options.device}.json"
    if options.steps < WINDOW:
        parser.error(f"--steps: is {options.steps}, must be {WINDOW} or more, which are averaged; train longer")
    if not options.draw:
        try:
            import torch  # noqa: F401
        except ImportError:
            sys.exit("torch_curves: needs torch, which is not installed (python/requirements-torch.txt)")
        record = {"bench": "torch_curves"} | machine(options.device)
        rows = [
            {"model": name} | curve(options, sizes, precision) for name, sizes in MODELS.items() for precision in LABELS
        ]
        record |= {"steps": options.steps, "batch": options.batch, "window": WINDOW, "bound": BOUND, "rows": rows}
        write_record(options.out, record)
    record = json.loads(options.out.read_text())
    for path in draw(record, options.out.stem, options.figures):
        print(path)
    wrong = 0
    for name in MODELS:
        apart = furthest([row for row in record["rows"] if row["model"] == name])
        print(f"{name}: means of {WINDOW} steps at most {apart:.2%} apart, bound {BOUND:.0%}")
        wrong += apart > BOUND
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
