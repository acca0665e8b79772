"""What documents show of records: the text of each part of a document that stands between two marks.

A mark is <!-- measured: NAME -->, and what follows up to <!-- measured: end --> is written by report.py.
"""

import json
import pathlib

from records import dense_rows, geometric_mean, operations, ratios

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results"
MARK, END = "<!-- measured: {} -->\n", "<!-- measured: end -->\n"

ROWS_OF_A = (1, 16, 64, 128, 512, 4096)
CLASSES_OF_M = ((1, 128), (256, 1024), (2048, 8192), (1, 8192))
CLIENTS = ("contig", "psum", "masked", "kgroup", "wgrad", "dense")
PEERS = {
    "deep_gemm": "DeepGEMM",
    "cublas_block": "cuBLASLt with block scales",
    "cublas_tensor": "cuBLASLt with one scale per tensor",
}


def lines_of_table(head: list, rows: list) -> list:
    return [f"| {' | '.join(map(str, row))} |" for row in (head, ["---"] * len(head), *rows)]


def dense(record: dict) -> list:
    """README.md: times of dense products, and what peers take of them."""
    rows = dense_rows(record)
    times = {tuple(row["shape"]): row["us"]["finegemm"] for row in rows}
    layers = list(dict.fromkeys((n, k) for _, n, k in times))
    machine = record["machine"]
    lines = [f"{machine['name']}, driver {machine.get('driver_version', 'unknown')}: time and TFLOP/s of one product."]
    if none := record.get("baselines_us", {}).get("no launch"):
        lines.append(f"Between events; by the same method no launch at all takes {none} us.")
    lines += ["Method and all rows: [dense_h200.json](bench/results/dense_h200.json).", ""]

    def cell(*shape) -> str:
        us = times.get(shape)
        return f"{us:.1f} us, {operations(shape) / us * 1e-6:.0f}" if us else ""

    lines += lines_of_table(
        ["N x K", *(f"M = {m}" for m in ROWS_OF_A)],
        [[f"{n} x {k}", *(cell(m, n, k) for m in ROWS_OF_A)] for n, k in layers],
    )
    return [*lines, "", "Peers' times over FineGEMM's, in geometric mean:", "", *classes(record)]


def better_peer(row: dict) -> float:
    """How many times as long the faster one of the peers takes."""
    return min(us for name, us in row["us"].items() if name != "finegemm") / row["us"]["finegemm"]


def of_class(found: list, low: int, high: int) -> str:
    """Mean, least, and how often FineGEMM is behind; `found`: (M, ratio)."""
    of_m = [ratio for m, ratio in found if low <= m <= high]
    if not of_m:
        return ""
    return (
        f"{geometric_mean(of_m):.2f}, least {min(of_m):.2f}, {sum(ratio < 1 for ratio in of_m)} of {len(of_m)} behind"
    )


def classes(record: dict) -> list:
    """What peers take of dense products, by M: the better one of cuBLASLt's modes, then each."""
    rows = [row for row in dense_rows(record) if len(row["us"]) > 1]
    over = {"the better of cuBLASLt's two modes": [(row["shape"][0], better_peer(row)) for row in rows]}
    for peer, name in PEERS.items():
        if found := [(row["shape"][0], ratio) for row in rows for ratio in ratios([row], peer)]:
            over[name] = found
    cells = [
        [f"{low} to {high}", *(of_class(found, low, high) for found in over.values())] for low, high in CLASSES_OF_M
    ]
    return lines_of_table(["M", *over], [row for row in cells if row[1]])


def span(values, form: str = "{:.0f}") -> str:
    return f"{form.format(min(values))} to {form.format(max(values))}"


def link(record: str) -> str:
    """From a document in docs/."""
    return f"[{record}.json](../bench/results/{record}.json)"


def of_even(case: dict) -> str:
    return f"{case['of_even']:.2f} of the speed of even groups"


def groups(grouped: dict, checks: dict, wgrad: dict, k_grouped: dict) -> list:
    """What groups of rows and of K reach, even ones and others."""
    checks = checks["checks"]
    skew = checks["grouped_skew"]
    few_rows = [case["of_floor"] for name, case in skew.items() if "of 1 to 8 rows" in name]

    def rows_of(*cases):
        return [row for row in grouped["rows"] if (row["groups"], row["expected_m"]) in cases]

    def speeds(*cases) -> str:
        return span([row["tflop_per_s"] for row in rows_of(*cases)]) + " TFLOP/s"

    def traffic(*cases) -> str:
        return span([row["gb_per_s"] / 1000 for row in rows_of(*cases)], "{:.1f}") + " TB/s"

    def rate(row: dict) -> float:
        return row.get("tflop_per_s") or operations(row["shape"]) / row["us"]["finegemm"] * 1e-6

    def rates(record: dict) -> str:
        return span([rate(row) for row in record["rows"]]) + " TFLOP/s"

    return lines_of_table(
        ["experts, rows of each", "reached"],
        [
            ["64 with 64, 64 with 4", traffic((64, 64), (64, 4))],
            ["32 with 20", traffic((32, 20))],
            ["32 with 256", speeds((32, 256))],
            ["4 with 8192, 8 with 4096", speeds((4, 8192), (8, 4096))],
            ["128 to 384 with 1 to 8", span(few_rows, "{:.2f}") + " of what 4.2 TB/s would allow"],
            ["one of 64 has 90% of 4096 rows", of_even(skew["one expert has 90%"])],
            ["sizes by Zipf's law", of_even(skew["zipf"])],
            ["half of them without rows", of_even(skew["half are empty"])],
            ["one of 64 has all of 1,300,000 rows", of_even(checks["grouped_tall"]["in one group"])],
            [f"gradients of weights, dense ({link('wgrad_h200')})", rates(wgrad)],
            [f"gradients of weights, 4 to 16 groups of K ({link('k_grouped_h200')})", rates(k_grouped)],
        ],
    )


def unscaled(record: dict) -> list:
    """docs/performance.md: products of bf16, or of f16, beside cuBLAS."""
    rows = record["rows"]
    over = ratios(rows, "torch")
    lines = lines_of_table(
        ["M x N x K", "FineGEMM", "torch.mm", "torch.mm over FineGEMM"],
        [
            ["x".join(map(str, row["shape"])), f"{us['finegemm']:.1f} us", f"{us['torch']:.1f} us", f"{ratio:.3f}"]
            for row, ratio in zip(rows, over, strict=True)
            for us in [row["us"]]
        ],
    )
    return [*lines, "", f"{geometric_mean(over):.3f} in geometric mean, on an {record['machine']['name']}."]


def gradients(record: dict) -> list:
    """docs/performance.md: gradients of weights, and ways to have them."""
    ways = {"finegemm": "D +=", "row-major scales": "row-major scales", "overwritten": "D =", "bf16": "D in bf16"}
    lines = lines_of_table(
        ["M x N x K", "TFLOP/s", *ways.values()],
        [
            [
                "x".join(map(str, row["shape"])),
                f"{operations(row['shape']) / row['us']['finegemm'] * 1e-6:.0f}",
                *(f"{row['us'][way]:.0f} us" for way in ways),
            ]
            for row in record["rows"]
        ],
    )
    return [*lines, "", f"On an {record['machine']['name']} ({link('wgrad_h200')})."]


def affine(record: dict) -> list:
    """docs/performance.md: what alpha, beta, C and a bias add to a product."""
    names = [name for name in record["rows"][0]["us"] if name != "the product"]
    lines = lines_of_table(
        ["M x N x K", "the product", *names],
        [
            ["x".join(map(str, row["shape"])), f"{us['the product']:.1f} us", *(f"{us[name]:.1f} us" for name in names)]
            for row in record["rows"]
            for us in [row["us"]]
        ],
    )
    return [*lines, "", f"On an {record['machine']['name']}; D in bf16."]


def host(record: dict) -> list:
    """docs/benchmarking.md: what calls cost the host."""
    rows, cpp = record["python_rows"], record["cpp_rows"]
    names = [name for name in rows[0]["us"] if name.startswith(("finegemm", "torch"))]
    medians = {name: [row["us"][name]["median"] for row in rows] for name in names}
    medians |= {
        name: [row[f"{key}_us"]["median"] for row in cpp]
        for key, name in (
            ("gemm", "C++ gemm into d"),
            ("gemm_pdl", "C++ gemm into d, pdl"),
            ("empty_launch", "C++, the launch of an empty kernel"),
        )
    }
    table = lines_of_table(["call", "us"], [[name, span(us, "{:.1f}")] for name, us in medians.items()])
    return [*table, "", f"{record['gpu']}, {record['processor']}, Python {record['python']}, torch {record['torch']}."]


def capacity(checks: dict) -> list:
    """A captured launch with room for more rows than there are, beside launches made for what there is."""
    times = checks["checks"]["grouped_capacity"]["us"]
    return lines_of_table(
        ["rows", "captured with room for 8192", "the same kernel, as many rows", "the kernel planned for them"],
        [[rows, *(f"{us[how]:.1f} us" for how in ("graph", "exact", "planned"))] for rows, us in times.items()],
    )


def dependent_launch(checks: dict) -> list:
    times = checks["checks"]["dependent_launch"]["m"]
    ways = ("us_without", "us_with", "us_with_prefetch")
    return lines_of_table(
        ["M", "without", "`pdl`", "`pdl` and `prefetch_weights`"],
        [[m, *(f"{us[way]:.1f} us" for way in ways)] for m, us in times.items()],
    )


def sm_budget(checks: dict) -> list:
    times = checks["checks"]["num_sms"]["time_over_132_sms"]
    counts = list(next(iter(times.values())))
    return lines_of_table(
        ["SMs", *counts], [[shape, *(f"{of[count]:.2f}" for count in counts)] for shape, of in times.items()]
    )


def left_out(record: dict) -> list:
    """docs/moe.md: layers of few tokens beside themselves with parts left out."""
    parts = ("whole", "no products", "no passes", "neither", "launches", "weights read", "copies")
    shares = ("no products of whole", "products and copies of whole")
    rows = [
        [
            f"{row['layer']}, {row['kind']}, {row['tokens']}",
            *(f"{row['us'][part]:.1f}" if part in row["us"] else "" for part in parts),
            *(f"{row[share]:.3f}" for share in shares),
        ]
        for row in record["rows"]
    ]
    return lines_of_table(["layer, ids, tokens", *parts, *shares], rows)


def batch_invariance(checks: dict) -> list:
    """What kernels that may be taken for all M cost, by layer and M."""
    over = checks["checks"]["batch_invariant"]["time_over_default"]
    cells: dict[str, dict[str, str]] = {}
    for shape, ratio in over.items():
        m, layer = shape.split("x", 1)
        cells.setdefault(layer, {})[m] = f"{ratio:.2f}"
    rows_of_a = list(next(iter(cells.values())))
    return lines_of_table(
        ["N x K", *(f"M = {m}" for m in rows_of_a)],
        [[layer.replace("x", " x "), *(of.get(m, "") for m in rows_of_a)] for layer, of in cells.items()],
    )


def layouts(checks: dict) -> list:
    ratio, shapes = checks["checks"]["layouts"]["row_over_mn"], len(checks["checks"]["layouts"]["each"])
    mean = f"in geometric mean over {shapes} shapes"
    return [
        f"Row-major scales of A take {ratio:.3f} of the time of MN-major ones, {mean}",
        f"({link('h200_checks')}, `layouts`).",
    ]


def clients(*records: dict) -> list:
    """docs/performance.md: calls of DeepGEMM's clients, what it takes over ours, and layouts of scales."""
    calls = {
        "contig": "groups of rows by index",
        "psum": "groups of rows by prefix sums",
        "masked": "masked groups of rows",
        "kgroup": "groups of K, added to D",
        "wgrad": "gradients of weights, added to D",
        "dense": "one product",
    }

    def line(record: dict) -> list:
        rows = record["rows"]
        ratio = [row["ratio"]["finegemm"] for row in rows]
        passed = "row" if "finegemm_mn_major" in rows[0]["us"] else "MN"
        one, other = ("finegemm", "finegemm_mn_major") if passed == "row" else ("finegemm_row_major", "finegemm")
        over = [row["us"][one] / row["us"][other] for row in rows]
        name = f"{calls[rows[0]['kind']]} ({link('clients_' + rows[0]['kind'] + '_h200')})"
        shares = f"{geometric_mean(over):.3f}, {max(over):.2f}"
        return [name, len(rows), f"{passed}-major", f"{geometric_mean(ratio):.3f}", f"{min(ratio):.2f}", shares]

    head = ["call", "shapes", "scales", "DeepGEMM over FineGEMM", "lowest", "row-major over MN-major, most"]
    return lines_of_table(head, [line(record) for record in records])


def experts(record: dict) -> list:
    """docs/performance.md: layers of models' experts by rows of each, and parts of them on several devices."""
    floor = 4.2e6  # bytes in a microsecond

    def share(row: dict) -> float:
        groups, rows, n, k = row["shape"]
        return groups * (rows * k + n * k + 2 * rows * n) / floor / row["us"]["finegemm"]

    whole: dict[tuple, dict] = {}
    parts: dict[int, list] = {}
    for row in record["rows"]:
        _, rows, n, k = row["shape"]
        if row["source"].endswith("part of N"):
            parts.setdefault(n, []).append(share(row))
        else:
            whole.setdefault((row["source"], n, k), {})[rows] = f"{row['us']['finegemm']:.1f} us, {share(row):.2f}"
    of_rows = list(next(iter(whole.values())))
    lines = lines_of_table(
        ["experts of", "N x K", *(f"{rows} rows" if rows > 1 else "1 row" for rows in of_rows)],
        [[model, f"{n} x {k}", *(cells[rows] for rows in of_rows)] for (model, n, k), cells in whole.items()],
    )
    of_parts = ", ".join(f"{n} columns {span(shares, '{:.2f}')}" for n, shares in sorted(parts.items()))
    return [*lines, "", "Parts of N, as several GPUs share them:", of_parts, f"({link('clients_experts_h200')})."]


# Document, name of its part, what makes the text, and of which records.
PARTS = (
    ("README.md", "dense", dense, ("dense_h200",)),
    ("docs/performance.md", "classes", classes, ("dense_h200",)),
    ("docs/performance.md", "gradients", gradients, ("wgrad_h200",)),
    ("docs/performance.md", "groups", groups, ("grouped_h200", "h200_checks", "wgrad_h200", "k_grouped_h200")),
    ("docs/performance.md", "clients", clients, tuple(f"clients_{kind}_h200" for kind in CLIENTS)),
    ("docs/performance.md", "experts", experts, ("clients_experts_h200",)),
    ("docs/performance.md", "bf16", unscaled, ("h200_bf16",)),
    ("docs/performance.md", "f16", unscaled, ("h200_f16",)),
    ("docs/performance.md", "affine", affine, ("h200_affine",)),
    ("docs/performance.md", "capacity", capacity, ("h200_checks",)),
    ("docs/benchmarking.md", "host", host, ("host_h200",)),
    ("docs/scheduling.md", "dependent launch", dependent_launch, ("h200_checks",)),
    ("docs/scheduling.md", "num_sms", sm_budget, ("h200_checks",)),
    ("docs/moe.md", "left out", left_out, ("layer_left_out_h200",)),
    ("docs/numerics.md", "batch_invariant", batch_invariance, ("h200_checks",)),
    ("docs/scales.md", "layouts", layouts, ("h200_checks",)),
)


def written(text: str, name: str, lines: list) -> str:
    """The text of a document with these lines in its part of that name."""
    before, mark, rest = text.partition(MARK.format(name))
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"there is no part between {MARK.format(name).strip()} and {END.strip()}")
    return before + mark + "\n".join(lines) + "\n" + end + after


def documents() -> dict:
    """Each document that has such parts: its path, and its text as the records have it."""
    texts: dict[pathlib.Path, str] = {}
    for document, name, make, records in PARTS:
        path = ROOT / document
        found = [json.loads((RESULTS / f"{record}.json").read_text()) for record in records]
        texts[path] = written(texts.get(path) or path.read_text(), name, make(*found))
    return texts
