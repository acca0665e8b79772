#!/usr/bin/env python3
"""Times what a call costs a program of JAX by each way that there is, and writes a record.

Usage: jax_calls.py [--device cpu|cuda] [--out FILE] [--rounds N]

finegemm.jax is an instruction of the compiled program, by XLA's foreign function interface; finegemm.gemm takes JAX's
arrays by DLPack, outside of programs; jax.pure_callback goes back to Python from within. The product is small, so that
what is timed is the way to it. Per call: the time of a program with 17 calls, each with the result of the one before,
less that of one with 1, over 16.
"""

import argparse
import functools
import pathlib
import statistics
import sys
import time

from records import cpu_name, write_record

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZE, CALLS, BATCH = 16, 17, 20
METHOD = "host time until the last result is there, median of rounds, in microseconds"


def median_us(call, rounds: int) -> float:
    """Of one call, in rounds of BATCH of them; the first round does not count."""
    times = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        for _ in range(BATCH):
            result = call()
        result.block_until_ready()
        times.append((time.perf_counter() - begin) / BATCH * 1e6)
    return round(statistics.median(times[1:]), 2)


def ways(device) -> dict:
    """Functions codes, scales -> the product with itself as codes of e4m3, and whether jax.jit compiles them."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import finegemm
    import finegemm.jax

    result = jax.ShapeDtypeStruct((SIZE, SIZE), jnp.bfloat16)

    def on_host(*operands):
        return np.asarray(finegemm.gemm(*map(np.asarray, operands)))

    callback = functools.partial(jax.pure_callback, on_host, result, vmap_method="sequential")
    found = {
        "finegemm.jax": (lambda q, s: finegemm.jax.gemm(q, s, q, s), True),
        "jax.pure_callback": (lambda q, s: callback(q, s, q, s), True),
    }
    if device.platform == "cpu":  # arrays on GPUs cannot be made so
        found["finegemm.gemm by DLPack"] = (lambda q, s: finegemm.gemm(q, s, q, s), False)
    return found


def chain(product, calls: int):
    import jax.numpy as jnp

    def run(q, s):
        for _ in range(calls):
            last = product(q, s)
            s = s + last[:1, :1].astype(jnp.float32) * 0 if calls > 1 else s
        return last

    return run


def rows(device, rounds: int) -> list[dict]:
    import jax
    import numpy as np

    import finegemm

    values = np.random.default_rng(0).standard_normal((SIZE, SIZE), dtype=np.float32)
    host = finegemm.quantize_rows(values)
    operands = [jax.device_put(x, device) for x in host]
    found = []
    for name, (product, compiles) in ways(device).items():
        compiled = jax.jit if compiles else lambda f: f
        one, many = (compiled(chain(product, calls)) for calls in (1, CALLS))
        row = {"way": name, "inside_jit": compiles, "one_us": median_us(lambda one=one: one(*operands), rounds)}
        if compiles:
            whole = median_us(lambda many=many: many(*operands), rounds)
            row["more_us"] = round((whole - row["one_us"]) / (CALLS - 1), 2)
        found.append(row)
    if device.platform == "cpu":
        finegemm.gemm(*host, *host)
        begin = time.perf_counter()
        for _ in range(rounds * BATCH):
            finegemm.gemm(*host, *host)
        us = round((time.perf_counter() - begin) / (rounds * BATCH) * 1e6, 2)
        found.append({"way": "finegemm.gemm of NumPy's arrays", "inside_jit": False, "one_us": us})
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=pathlib.Path, help="bench/results/jax_calls_cpu.json or _h200.json")
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    try:
        import jax
    except ImportError:
        sys.exit("jax_calls: needs jax, which is not installed (python/requirements-torch.txt)")
    import finegemm

    device = jax.devices(options.device)[0]
    name = cpu_name() if options.device == "cpu" else device.device_kind
    record = {"bench": "jax_calls", "method": METHOD, "machine": {"name": name}, "jax": jax.__version__}
    found = rows(device, options.rounds)
    for row in found:
        print(row)
    out = options.out or ROOT / f"bench/results/jax_calls_{'cpu' if options.device == 'cpu' else 'h200'}.json"
    write_record(out, record | {"finegemm": finegemm.__version__, "size": SIZE, "rows": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
