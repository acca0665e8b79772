#!/usr/bin/env python3
"""Times the CPU's three numerics with one thread: the figures of docs/numerics.md.

Usage: cpu_numerics.py [--repeats N] [--commit TEXT] [--out FILE]

A time is the processor's, the least of some, so that other work on the machine counts as little as it can. Needs the
package, NumPy and ml_dtypes.
"""

import argparse
import os
import pathlib
import time
from typing import Literal

from records import write_record

Numerics = Literal["fast", "exact", "hopper"]
# Four times the rows that B is decoded for at once, and few, for which decoding is most of the work.
CASES: tuple[tuple[Numerics, tuple[int, int, int]], ...] = (
    ("fast", (1008, 1024, 2048)),
    ("fast", (16, 1024, 2048)),
    ("fast", (1, 1024, 2048)),
    ("exact", (1008, 1024, 2048)),
    ("hopper", (252, 512, 2048)),
)
RESULT = pathlib.Path(__file__).resolve().parent / "results/cpu_numerics.json"


def processor() -> dict:
    """What /proc/cpuinfo says of the first one."""
    lines = (line.partition(":") for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines())
    facts: dict[str, str] = {}
    for name, _, value in lines:
        facts.setdefault(name.strip(), value.strip())
    flags = facts.get("flags", "").split()
    return {"name": facts.get("model name", ""), "vectors": [flag for flag in ("avx2", "avx512f") if flag in flags]}


def seconds(call, repeats: int) -> float:
    def once() -> float:
        start = time.process_time()
        call()
        return time.process_time() - start

    call()
    return min(once() for _ in range(repeats))


def timed(numerics: Numerics, shape: tuple, repeats: int) -> dict:
    import ml_dtypes
    import numpy as np

    import finegemm

    random, (m, n, k) = np.random.default_rng(1), shape
    a, b = (random.standard_normal((extent, k)).astype(ml_dtypes.float8_e4m3fn) for extent in (m, n))
    sfa, sfb = (random.uniform(0.5, 2, (extent, k // 128)).astype(np.float32) for extent in (m, n // 128))
    d = np.empty((m, n), ml_dtypes.bfloat16)
    s = seconds(lambda: finegemm.gemm(a, sfa, b, sfb, d, numerics=numerics), repeats)
    rate = 2e-9 * m * n * k / s
    return {"numerics": numerics, "shape": shape, "ms": round(s * 1e3, 2), "gflop_per_s": round(rate, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--commit", default="")
    parser.add_argument("--out", type=pathlib.Path, default=RESULT)
    options = parser.parse_args()
    os.environ["FINEGEMM_CPU_THREADS"] = "1"
    rows = [timed(numerics, shape, options.repeats) for numerics, shape in CASES]
    method = f"one thread, time of the processor, least of {options.repeats}"
    head = {"processor": processor(), "method": method, "commit": options.commit}
    write_record(options.out, head | {"rows": rows})


if __name__ == "__main__":
    main()
