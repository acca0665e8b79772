"""Drawings of scales and of groups for the documents, in the manner of figures.py: the same bytes each time.

Groups differ by colour (Okabe and Ito's palette) and by letter.
"""

import pathlib

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

import figures

BLUE, ORANGE, GREEN = "#0072B2", "#E69F00", "#009E73"
PALE, LINE = "#f2f2f2", "#999999"
GROUPS = {"A": BLUE, "B": ORANGE, "C": GREEN}
WIDTH = 6.4  # inches: the width of a page's text, and letters that a narrow screen can still show
SETTINGS = figures.SETTINGS | {"font.size": 10.5}


def canvas(height: float):
    """A figure whose coordinates are inches from the upper left corner."""
    figure = plt.figure(figsize=(WIDTH, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(height, 0))
    axes.axis("off")
    return figure, axes


def box(axes, x: float, y: float, width: float, height: float, fill: str = "white", text: str = "") -> None:
    axes.add_patch(Rectangle((x, y), width, height, facecolor=fill, edgecolor=LINE, lw=0.7))
    if text:
        ink = "white" if fill == BLUE else figures.INK
        axes.text(x + width / 2, y + height / 2, text, ha="center", va="center_baseline", color=ink)


def note(axes, x: float, y: float, text: str, **style) -> None:
    axes.text(x, y, text, **({"va": "center_baseline"} | style))


def grid(axes, x: float, y: float, shape: tuple[int, int], cell: tuple[float, float], one: tuple[int, int], fill: str):
    """A matrix of blocks that have a scale each; `one` of them is filled."""
    for row in range(shape[0]):
        for col in range(shape[1]):
            at = (x + col * cell[0], y + row * cell[1])
            box(axes, *at, *cell, fill if (row, col) == one else PALE)


def scales():
    figure, axes = canvas(5.0)
    ways = (
        ("Forward, gradient of the input: 1 x 128 and 128 x 128", (2, 3), (0.42, 0.6), "128 rows x 128 columns"),
        ("Gradient of the weights: 1 x 128 and 1 x 128", (8, 3), (0.42, 0.15), "1 row x 128 columns"),
    )
    for top, (title, of_b, cell_b, serves) in zip((0.0, 2.5), ways, strict=True):
        note(axes, 0.15, top + 0.2, title, weight="bold")
        for x, name in ((0.15, "A [M, K]"), (2.35, "B [N, K]"), (4.75, "D [M, N]")):
            note(axes, x, top + 0.5, name)
        grid(axes, 0.15, top + 0.65, (8, 3), (0.42, 0.15), (4, 1), BLUE)
        grid(axes, 2.35, top + 0.65, of_b, cell_b, (0 if of_b[0] == 2 else 5, 1), ORANGE)
        box(axes, 4.75, top + 0.65, 1.2, 1.2, PALE)
        if of_b[0] == 2:
            box(axes, 4.75, top + 1.25, 0.6, 0.15, GREEN)
        else:
            box(axes, 5.5, top + 1.25, 0.15, 0.15, GREEN)
        note(axes, 0.15, top + 2.05, "a scale serves\n1 row x 128 columns", color=BLUE, va="top")
        note(axes, 2.35, top + 2.05, f"a scale serves\n{serves}", color="#8a5f00", va="top")
        note(axes, 4.75, top + 2.05, "where the two\nmeet", color="#00694d", va="top")
    return figure


def strip(axes, x: float, y: float, letters: str, cell: float = 0.26) -> None:
    for i, letter in enumerate(letters):
        box(axes, x + i * cell, y, cell, cell, GROUPS.get(letter, "white"), letter)


def row_groups():
    figure, axes = canvas(4.35)
    forms = (
        ("offsets", "..AAABCCCC..", "2 5 6 10"),
        ("m_indices", "AAA.BBBBB...", "0 0 0 -1 1 1 1 1 1 -1 -1 -1"),
        ("prefix_sums", "AAA.BBBBB...", "3 9"),
    )
    for i, (name, letters, numbers) in enumerate(forms):
        y = 0.2 + 0.72 * i
        note(axes, 0.15, y + 0.13, name)
        strip(axes, 1.35, y, letters)
        places = numbers.split() if name == "m_indices" else [numbers]  # a number for each row, or for each group
        for at, number in enumerate(places):
            x, ha = (1.48 + 0.26 * at, "center") if len(places) > 1 else (1.35, "left")
            note(axes, x, y + 0.42, number, color="#555555", ha=ha)
        if name != "offsets":  # where groups may begin
            for at in (0, 4, 8):
                axes.plot([1.35 + at * 0.26] * 2, [y - 0.06, y + 0.32], color=figures.INK, lw=1.6)
    for x, name, rows, numbers in (
        (1.35, "masked_m", "AAA...  ......  CCCCC.", "3 0 5"),
        (4.35, "heads", "AABBCC", ""),
    ):
        y = 2.5
        note(axes, 0.15 if numbers else x - 0.85, y + 0.13, name)
        for i, letters in enumerate(rows.split() if numbers else ("AAAAAA", "BBBBBB", "CCCCCC")):
            strip(axes, x, y + 0.34 * i, letters)
        note(axes, x, y + 1.16, f"{numbers}" if numbers else "no numbers", color="#555555")
    note(axes, 0.15, 4.1, "A row of no group is white. Strokes: multiples of the alignment, here 4.", color="#555555")
    return figure


def k_groups():
    figure, axes = canvas(3.3)
    sizes = {"A": 2, "B": 3, "C": 1}
    cell, x = 0.26, 0.15
    note(axes, x, 0.2, "columns: side by side", weight="bold")
    for row in range(2):
        strip(axes, x, 0.75 + row * cell, "".join(letter * k for letter, k in sizes.items()))
    note(axes, x, 0.53, "A [M, K], B [N, K]")
    note(axes, x, 1.5, "offsets  0 256 640 768", color="#555555")

    note(axes, 2.35, 0.2, "blocks: one behind the other", weight="bold")
    note(axes, 2.35, 0.53, "A [M k], B [N k]")
    for i, (letter, k) in enumerate(sizes.items()):
        for row in range(2):
            strip(axes, 2.35, 0.75 + (2 * i + row) * cell + 0.1 * i, letter * k)
    note(axes, 5.1, 0.2, "D [G, M, N]", weight="bold")
    for i, letter in enumerate(sizes):
        box(axes, 5.1 + 0.16 * i, 0.75 + 0.42 * i, 0.8, 0.5, GROUPS[letter], letter)
    note(axes, 0.15, 3.05, "A square is 128 of K. Each group's product has a matrix of its own in D.", color="#555555")
    return figure


DRAWINGS = {"scales": scales, "row_groups": row_groups, "k_groups": k_groups}


def draw(folder: pathlib.Path) -> list[pathlib.Path]:
    written = []
    with plt.rc_context(SETTINGS):
        for name, make in DRAWINGS.items():
            figure = make()
            written.append(folder / f"{name}.svg")
            figure.savefig(written[-1], metadata={"Date": None, "Creator": None})
            plt.close(figure)
    return written
