#!/usr/bin/env python3
"""Random products of the installed Python package on the CPU, each against sums in doubles.

Usage: products.py [--count N] [--seed S]

Every product has random extents, layouts of scales, paddings of rows and options. D lies inside a larger array whose
other elements must stay, and what no group owns is NaN. Exit code 77: the package is not installed.
"""

import argparse
import itertools
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python/tests"))
try:
    import finegemm
    from support import BF16, assert_rounded, operands, product
except ImportError as e:
    print(f"{sys.executable}: {e}")
    sys.exit(77)

CANARY = 7


def padded(x, random):
    """The same values in rows that are up to 48 bytes longer, or, for scales, with rows and columns the other way."""
    if x.dtype == np.float32 and random.random() < 0.5:
        return np.asfortranarray(x)
    room = np.zeros((x.shape[0], x.shape[1] + 16 * int(random.integers(4))), x.dtype)
    room[:, : x.shape[1]] = x
    return room[:, : x.shape[1]]


def guarded(rows, cols, dtype, random):
    """A view of rows x cols, and a function that says whether what lies around it is untouched."""
    above, right = int(random.integers(3)), 8 * int(random.integers(1, 4))
    room = np.full((rows + above + 1, cols + right), CANARY, dtype)
    view = room[above : above + rows, :cols]

    def intact():
        inside = np.zeros(room.shape, bool)
        inside[above : above + rows, :cols] = True
        return bool((room[~inside] == CANARY).all())

    return view, intact


def extents(random):
    m, n = int(random.integers(1, 260)), 8 * int(random.integers(1, 40))
    return m, n, 16 * int(random.integers(1, 60))


def dense(random):
    m, n, k = extents(random)
    rows, f32 = bool(random.integers(2)), bool(random.integers(2))
    args = [padded(x, random) for x in operands(m, n, k, seed=int(random.integers(1 << 30)), row_b_scales=rows)]
    d, intact = guarded(m, n, np.float32 if rows and f32 else BF16, random)
    finegemm.gemm(*args, d, numerics="exact")
    exact = product(*args)
    if d.dtype == np.float32:
        np.testing.assert_allclose(d, exact, rtol=2.0**-23, atol=1e-10)
    else:
        assert_rounded(d, exact)
    assert intact(), "wrote outside of D"


def ragged(random):
    m, n, k = extents(random)
    groups = int(random.integers(1, 9))
    a, sfa, _, _ = operands(m, n, k, seed=int(random.integers(1 << 30)))
    stack = [operands(1, n, k, seed=int(random.integers(1 << 30)))[2:] for _ in range(groups)]
    b, sfb = (np.stack(x) for x in zip(*stack, strict=True))
    offsets = np.sort(random.integers(0, m + 1, groups + 1)).astype(np.int32)
    owned = np.zeros(m, bool)
    owned[offsets[0] : offsets[-1]] = True
    sfa[~owned] = np.nan
    d, intact = guarded(m, n, BF16, random)
    d[:] = CANARY
    finegemm.grouped_gemm(a, sfa, b, sfb, d, offsets=offsets, numerics="exact")
    for g in range(groups):
        mine = slice(offsets[g], offsets[g + 1])
        assert_rounded(d[mine], product(a[mine], sfa[mine], b[g], sfb[g]))
    assert (d[~owned] == CANARY).all(), "wrote rows of no group"
    assert intact(), "wrote outside of D"


def groups_of_k(random):
    m, n, _ = extents(random)
    blocks = np.sort(random.integers(0, 8, int(random.integers(2, 6))))
    a, sfa, b, sfb = operands(m, n, 128 * 8, seed=int(random.integers(1 << 30)), row_b_scales=True)
    owned = np.zeros(8, bool)
    owned[blocks[0] : blocks[-1]] = True
    sfa[:, ~owned] = np.nan
    d = finegemm.k_grouped_gemm(a, sfa, b, sfb, None, offsets=(128 * blocks).astype(np.int32), numerics="exact")
    for g, (i, j) in enumerate(itertools.pairwise(blocks)):
        k = slice(128 * i, 128 * j)
        exact = product(a[:, k], sfa[:, i:j], b[:, k], sfb[:, i:j]) if j > i else np.zeros((m, n))
        np.testing.assert_allclose(d[g], exact, rtol=2.0**-23, atol=1e-10)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    kinds = (dense, ragged, groups_of_k)
    for i in range(options.count):
        kind = kinds[i % len(kinds)]
        try:
            kind(np.random.default_rng((options.seed, i)))
        except AssertionError as e:
            print(f"product {i} of seed {options.seed}, {kind.__name__}: {e}")
            return 1
    print(f"{options.count} products are right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
