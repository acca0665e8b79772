"""Products whose d is their SwiGLU, quantised: the arrays that come back, and what they hold."""

import numpy as np
import pytest

import finegemm


def operands(m: int, n: int, k: int, groups: int = 0):
    random = np.random.default_rng(m + n + k)
    a, sfa = finegemm.quantize_rows(random.standard_normal((m, k), dtype=np.float32))
    b, sfb = zip(
        *(finegemm.quantize_blocks(random.standard_normal((n, k), dtype=np.float32)) for _ in range(groups or 1)),
        strict=True,
    )
    return (a, sfa, np.stack(b), np.stack(sfb)) if groups else (a, sfa, b[0], sfb[0])


def apart(product: np.ndarray, weights: np.ndarray | float = 1.0):
    """The SwiGLU of a product in float32, quantised, with the rounding of float64 in between."""
    gates, ups = (x.astype(np.float64) for x in np.split(product, 2, axis=-1))
    return (gates / (1 + np.exp(-gates)) * ups * weights).astype(np.float32)


def values(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Of e4m3: by a product with 1 that keeps each."""
    flat = codes.reshape(-1, codes.shape[-1])
    one = np.zeros((codes.shape[-1], codes.shape[-1]), np.float32)
    np.fill_diagonal(one, 1)
    eye, sfb = finegemm.quantize_blocks(one)
    return finegemm.gemm(flat, scales.reshape(len(flat), -1), eye, sfb, out_dtype="float32", numerics="exact")


@pytest.mark.parametrize("between", [False, True])
def test_d_is_the_quantised_swiglu_of_the_product(between):
    a, sfa, b, sfb = operands(40, 512, 256)
    product = finegemm.gemm(a, sfa, b, sfb, out_dtype="float32")
    sfd = np.empty((2, 40), np.float32).T
    d = finegemm.gemm(a, sfa, b, sfb, sfd=sfd, bf16_between=between)
    wanted = apart(product)
    assert d.shape == (40, 256)
    assert np.abs(values(d, sfd) - wanted).max() <= np.abs(wanted).max() * (2.0**-4 + 2.0**-7)
    q, scales = finegemm.quantize_rows(wanted)
    assert between or (np.abs(scales / sfd - 1).max() < 1e-5 and (q == d).mean() > 0.99)


def test_groups_have_scales_and_weights_of_their_rows():
    a, sfa, b, sfb = operands(48, 256, 128, groups=3)
    offsets = np.array([0, 10, 10, 40], np.int32)
    weights = np.linspace(-1, 2, 48, dtype=np.float32)
    sfd = np.full((48, 1), -1, np.float32)
    d = finegemm.grouped_gemm(a, sfa, b, sfb, offsets=offsets, sfd=sfd, row_weights=weights)
    assert (sfd[40:] == -1).all()
    for g, rows in enumerate([slice(0, 10), slice(10, 10), slice(10, 40)]):
        one = np.empty((rows.stop - rows.start, 1), np.float32)
        alone = finegemm.gemm(a[rows], sfa[rows], b[g], sfb[g], sfd=one, row_weights=weights[rows])
        assert (d[rows] == alone).all()
        assert (sfd[rows] == one).all()


def test_stacks_have_stacks_of_scales_and_weights():
    a, sfa, b, sfb = operands(32, 256, 128, groups=2)
    stacks = a.reshape(2, 16, 128), sfa.reshape(2, 16, 1)
    weights = np.linspace(-1, 2, 32, dtype=np.float32).reshape(2, 16)
    sfd = np.empty((2, 16, 1), np.float32)
    masked_m = np.array([16, 7], np.int32)
    d = finegemm.grouped_gemm(*stacks, b, sfb, masked_m=masked_m, sfd=sfd, row_weights=weights)
    for g, rows in enumerate(masked_m):
        one = np.empty((rows, 1), np.float32)
        alone = finegemm.gemm(
            stacks[0][g, :rows], stacks[1][g, :rows], b[g], sfb[g], sfd=one, row_weights=weights[g, :rows]
        )
        assert (d[g, :rows] == alone).all()
        assert (sfd[g, :rows] == one).all()


def test_scales_that_are_left_out_are_asked_for():
    a, sfa, b, sfb = operands(4, 256, 128)
    with pytest.raises(ValueError, match="sfd: is left out, but d is quantised, as gate_limit is given"):
        finegemm.gemm(a, sfa, b, sfb, gate_limit=7.0)
