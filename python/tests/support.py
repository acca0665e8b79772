"""Matrices for the tests, and what their product is; programs of the repository as modules."""

import importlib.util
import pathlib
import sys

import ml_dtypes
import numpy as np

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
BF16 = np.dtype(ml_dtypes.bfloat16)
BLOCK = 128


ROOT = pathlib.Path(__file__).parents[2]


def program(path):
    """A Python program, by its path from the repository's root, as a module. It finds what lies beside it."""
    path = ROOT / path
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(extent):
    return -(-extent // BLOCK)


def operands(m, n, k, seed=7, row_b_scales=False):
    """a, sfa, b, sfb: random, with scales between 0.5 and 2; sfb for each row of b or for 128x128 blocks."""
    random = np.random.default_rng(seed)
    a = random.standard_normal((m, k)).astype(E4M3)
    b = random.standard_normal((n, k)).astype(E4M3)
    sfa = random.uniform(0.5, 2, (m, blocks(k))).astype(np.float32)
    sfb = random.uniform(0.5, 2, (n if row_b_scales else blocks(n), blocks(k))).astype(np.float32)
    return a, sfa, b, sfb


def product(a, sfa, b, sfb):
    """The same in double precision."""
    k, n = a.shape[1], b.shape[0]
    scaled_a = a.astype(np.float64) * np.repeat(sfa.astype(np.float64), BLOCK, axis=1)[:, :k]
    rows_b = sfb if sfb.shape[0] == n else np.repeat(sfb, BLOCK, axis=0)[:n]
    scales_b = np.repeat(rows_b.astype(np.float64), BLOCK, axis=1)[:, :k]
    return scaled_a @ (b.astype(np.float64) * scales_b).T


def assert_rounded(out, exact):
    """`out` is `exact` rounded to bf16: half a unit in the last of 8 bits, and a little for the sum in doubles."""
    assert out.shape == exact.shape
    np.testing.assert_array_less(np.abs(out.astype(np.float64) - exact), 2.0**-8 * 1.001 * np.abs(exact) + 1e-12)
