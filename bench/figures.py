"""The figures of a record: its rows under the roofline, and how many times as fast as each peer. Needs matplotlib.

The same record gives the same bytes: no dates, no random ids, and letters are drawn as outlines.
"""

import collections
import math
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from records import ceilings, dense_rows, geometric_mean, operations, ratios, traffic

# Colours of Okabe and Ito's palette, which people with any colour vision tell apart; markers differ in shape, too.
STYLES = {
    "finegemm": ("FineGEMM", "#0072B2", "o"),
    "cublas_tensor": ("cuBLASLt, one scale per tensor", "#E69F00", "s"),
    "cublas_block": ("cuBLASLt, block scales", "#009E73", "^"),
    "deep_gemm": ("DeepGEMM", "#CC79A7", "D"),
}
INK = "#222222"
HEAD = 1.0  # inches above the axes
SETTINGS = {
    "svg.hashsalt": "finegemm",
    "font.size": 9.5,
    "axes.edgecolor": "#888888",
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#ececec",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "figure.facecolor": "white",
}


def plain(value: float, _=None) -> str:
    return f"{value:g}"


def peers_of(rows: list[dict]) -> list[str]:
    return [name for name in STYLES if name != "finegemm" and any(name in row["us"] for row in rows)]


def head(figure, record: dict, title: str, note: str, handles: list, labels: list[str]) -> None:
    """Title, machine and legend above the axes: HEAD inches."""
    left, height = figure.subplotpars.left, figure.get_figheight()
    machine, driver = record["machine"]["name"], record["machine"].get("driver_version", "unknown")
    place = {"va": "top", "ha": "left"}
    figure.text(left, 1 - 0.14 / height, title, fontsize=12.5, weight="bold", **place)
    figure.text(left, 1 - 0.41 / height, f"{machine}, driver {driver}. {note}", color="#555555", **place)
    figure.legend(
        handles,
        labels,
        loc="upper left",
        bbox_to_anchor=(left, 1 - 0.62 / height),
        ncols=len(labels),
        frameon=False,
        borderaxespad=0,
        borderpad=0,
        handletextpad=0.4,
        columnspacing=1.8,
    )


def draw_roofs(axes, flop_per_us: float, bytes_per_us: float, low: float, high: float, top: float) -> None:
    """The two measured ceilings, labelled along them; above `top` there are no points."""
    peak, ridge = flop_per_us * 1e-6, flop_per_us / bytes_per_us
    axes.plot([low, ridge, high], [low * bytes_per_us * 1e-6, peak, peak], color=INK, lw=1.4, zorder=1)
    axes.text(high, top * 1.1, f"{peak:,.0f} TFLOP/s: cuBLASLt, one scale per tensor, 8192³", ha="right", va="bottom")
    at = math.sqrt(low * ridge)
    axes.annotate(
        f"{bytes_per_us * 1e-6:.2f} TB/s: copy of 4 GB",
        (at, at * bytes_per_us * 1e-6),
        xytext=(-4, 5),
        textcoords="offset points",
        rotation=math.degrees(math.atan(slope_on_paper(axes))),
        rotation_mode="anchor",
        ha="center",
        va="bottom",
    )


def slope_on_paper(axes) -> float:
    """The steepness, as drawn, of a line that doubles as x doubles."""
    (x0, y0), (x1, y1) = axes.transData.transform([(1, 1), (10, 10)])
    return (y1 - y0) / (x1 - x0)


def roofline(record: dict):
    rows = dense_rows(record)
    names = [*peers_of(rows), "finegemm"]
    points = {
        n: [
            (operations(r["shape"]) / traffic(r["shape"]), operations(r["shape"]) / r["us"][n] * 1e-6)
            for r in rows
            if n in r["us"]
        ]
        for n in names
    }
    everything = [p for of_one in points.values() for p in of_one]
    flop_per_us, bytes_per_us = ceilings(record)
    top = max([y for _, y in everything] + [flop_per_us * 1e-6])
    low, high = min(x for x, _ in everything) / 1.4, max(x for x, _ in everything) * 1.4
    figure, axes = plt.subplots(figsize=(8.2, 5.4))
    figure.subplots_adjust(left=0.085, right=0.975, top=1 - HEAD / 5.4, bottom=0.105)
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(low, high),
        ylim=(min(y for _, y in everything) / 1.6, top * 1.7),
        xlabel="arithmetic intensity, FLOP per byte (each matrix and its scales moved once)",
        ylabel="TFLOP/s",
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
        axis.set_minor_formatter(NullFormatter())
    if flop_per_us and bytes_per_us:
        draw_roofs(axes, flop_per_us, bytes_per_us, low, high, top)
    size = 26 if len(rows) < 200 else 12
    for name in names:
        _, colour, marker = STYLES[name]
        ours = name == "finegemm"
        x, y = zip(*points[name], strict=True)
        axes.scatter(
            x,
            y,
            s=size,
            marker=marker,
            facecolor=colour if ours else "white",
            edgecolor="white" if ours else colour,
            lw=0.5 if ours else 1.1,
            zorder=4 if ours else 3,
        )
    names = ["finegemm", *peers_of(rows)]
    handles = [
        plt.Line2D(
            [],
            [],
            color=STYLES[n][1],
            marker=STYLES[n][2],
            ls="",
            ms=6,
            mfc=STYLES[n][1] if n == "finegemm" else "white",
        )
        for n in names
    ]
    head(figure, record, "Roofline", "A point for each row of the record.", handles, [STYLES[n][0] for n in names])
    return figure


def log2_axis(axes, values: list[float]) -> None:
    """Speed-ups: a factor is as far from 1 as its inverse."""
    low, high = min([*values, 0.9]) / 1.05, max([*values, 1.1]) * 1.05
    ticks = [t for t in (0.25, 0.5, 0.7, 0.8, 0.9, 1, 1.2, 1.5, 2, 2.5, 3, 4, 6, 8) if low <= t <= high]
    axes.set(yscale="log", ylim=(low, high))
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(plain))
    axes.axhline(1, color=INK, lw=1, zorder=1)


def mean_text(rows: list[dict], peer: str) -> str:
    found = ratios(rows, peer)
    return f"geometric mean {geometric_mean(found):.2f}, {len(found)} rows"


def panels(rows: list[dict], layers: dict):
    """A panel for each layer, N x K: speed-up over M."""
    peers = peers_of(rows)
    values = [v for peer in peers for v in ratios(rows, peer)]
    across = min(4, len(layers))
    down = -(-len(layers) // across)
    figure, grid = plt.subplots(
        down, across, figsize=(2.55 * across + 0.6, 2.25 * down + 1.5), sharey=True, squeeze=False
    )
    height = figure.get_figheight()
    figure.subplots_adjust(
        left=0.06, right=0.985, top=1 - (HEAD + 0.25) / height, bottom=0.55 / height, hspace=0.4, wspace=0.1
    )
    for axes, ((n, k), of_layer) in zip(grid.flat, layers.items(), strict=False):
        of_layer = sorted(of_layer, key=lambda row: row["shape"][0])
        for peer in peers:
            timed = [row for row in of_layer if peer in row["us"]]
            _, colour, marker = STYLES[peer]
            axes.plot(
                [row["shape"][0] for row in timed], ratios(timed, peer), color=colour, marker=marker, ms=4, lw=1.3
            )
        axes.set_title(f"N {n}, K {k}", fontsize=9.5, loc="left")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator([1, 16, 128, 1024, 8192]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(plain))
        log2_axis(axes, values)
    for axes in list(grid.flat)[len(layers) :]:
        axes.axis("off")
    figure.supxlabel("M", fontsize=9.5, y=0.12 / height)
    return figure


def sorted_rows(rows: list[dict]):
    """A dot for each row, slowest against the peer first."""
    peers = peers_of(rows)
    figure, axes = plt.subplots(figsize=(9.8, 4.6))
    figure.subplots_adjust(left=0.07, right=0.975, top=1 - HEAD / 4.6, bottom=0.12)
    for peer in peers:
        found = sorted(ratios(rows, peer))
        _, colour, marker = STYLES[peer]
        share = [100 * (i + 0.5) / len(found) for i in range(len(found))]
        axes.scatter(share, found, s=14, color=colour, marker=marker, lw=0)
    axes.set(xlim=(0, 100), xlabel="rows of the record, sorted by speed-up, in percent")
    log2_axis(axes, [v for peer in peers for v in ratios(rows, peer)])
    return figure


def speedup(record: dict):
    rows = dense_rows(record)
    peers = peers_of(rows)
    if not peers:
        return None
    layers = collections.defaultdict(list)
    for row in rows:
        layers[tuple(row["shape"][1:])].append(row)
    figure = panels(rows, layers) if len(rows) >= 4 * len(layers) else sorted_rows(rows)
    handles = [plt.Line2D([], [], color=STYLES[p][1], marker=STYLES[p][2], lw=1.3, ms=5) for p in peers]
    head(
        figure,
        record,
        "Speed-up: the peers' times over FineGEMM's",
        "Above 1 FineGEMM is faster.",
        handles,
        [f"{STYLES[p][0]}: {mean_text(rows, p)}" for p in peers],
    )
    return figure


def draw(record: dict, name: str, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes the figures of `record`; what is not in it is not drawn."""
    if not dense_rows(record):
        raise SystemExit(f"{name}: holds no dense row with a time of FineGEMM, so there is nothing to draw")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with plt.rc_context(SETTINGS):
        for kind, figure in (("roofline", roofline(record)), ("speedup", speedup(record))):
            if figure is None:
                continue
            for suffix, metadata in (("svg", {"Date": None, "Creator": None}), ("png", {"Software": None})):
                written.append(folder / f"{name}_{kind}.{suffix}")
                figure.savefig(written[-1], metadata=metadata, dpi=160)
            plt.close(figure)
    return written
