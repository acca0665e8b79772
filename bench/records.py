"""What is computed from a record of `finegemm bench` or gpu_check.py, and how the programs here write theirs."""

import json
import math
import pathlib
from collections.abc import Sequence


def dense_rows(record: dict) -> list[dict]:
    return [row for row in record["rows"] if row["kind"] == "dense" and "finegemm" in row["us"]]


def operations(shape: Sequence[int]) -> int:
    return 2 * math.prod(shape)


def traffic(shape: Sequence[int]) -> int:
    """Bytes, each matrix and its scales once."""
    m, n, k = shape
    k_blocks, n_blocks = -(-k // 128), -(-n // 128)
    return m * k + n * k + 2 * m * n + 4 * (m + n_blocks) * k_blocks


def ceilings(record: dict) -> tuple[float, float]:
    """FLOP and bytes in a microsecond: cuBLASLt at 8192^3, and a copy of 4 GB; 0 where it was not measured."""
    us = record.get("ceilings_us", {})
    product, copy = us.get("cublas_tensor fp8 8192^3"), us.get("read+write of 4 GB each")
    return (operations([8192] * 3) / product if product else 0.0), (2 * 2**32 / copy if copy else 0.0)


def ratios(rows: list[dict], peer: str) -> list[float]:
    """How many times as long the peer takes, where it has a time."""
    return [row["us"][peer] / row["us"]["finegemm"] for row in rows if peer in row["us"]]


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def cpu_name() -> str:
    models = [line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    return models[0].partition(": ")[2] if models else "CPU"


def write_record(path: pathlib.Path, record: dict) -> None:
    """JSON with a line for each of its rows."""
    head = json.dumps({name: value for name, value in record.items() if name != "rows"}, indent=1)[:-2]
    rows = ",\n  ".join(json.dumps(row) for row in record["rows"])
    path.write_text(head + ',\n "rows": [\n  ' + rows + "\n ]\n}\n")
