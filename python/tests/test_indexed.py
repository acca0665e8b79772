"""Products whose rows of a and of d are found by numbers: what comes back, and where it is."""

import numpy as np

import finegemm


def operands(tokens: int, n: int, k: int, groups: int):
    random = np.random.default_rng(tokens)
    a, sfa = finegemm.quantize_rows(random.standard_normal((tokens, k), dtype=np.float32))
    b, sfb = zip(
        *(finegemm.quantize_blocks(random.standard_normal((n, k), dtype=np.float32)) for _ in range(groups)),
        strict=True,
    )
    return a, sfa, np.stack(b), np.stack(sfb)


OFFSETS = np.array([0, 7, 7, 20], np.int32)


def test_rows_come_from_where_numbers_say_and_go_there():
    a, sfa, b, sfb = operands(9, 256, 384, 3)
    random = np.random.default_rng(1)
    rows_of_a = random.integers(0, 9, 20, np.int32)
    rows_of_d = random.permutation(30)[:20].astype(np.int32)
    rows_of_a[3], rows_of_d[5] = -1, -1
    factors = random.standard_normal(20, dtype=np.float32)
    copied, scales = a[rows_of_a].copy(), sfa[rows_of_a].copy()
    copied.view(np.uint8)[3], scales[3] = 0, 0
    wanted = finegemm.grouped_gemm(copied, scales, b, sfb, d=np.empty((20, 256), np.float32), offsets=OFFSETS)
    gathered = finegemm.grouped_gemm(
        a, sfa, b, sfb, d=np.empty((20, 256), np.float32), offsets=OFFSETS, rows_of_a=rows_of_a
    )
    assert (gathered == wanted).all()
    d = np.full((30, 256), 7, np.float32)
    finegemm.grouped_gemm(
        a, sfa, b, sfb, d=d, offsets=OFFSETS, rows_of_a=rows_of_a, rows_of_d=rows_of_d, factors_of_rows=factors
    )
    rows = np.delete(np.arange(20), 5)
    assert (d[rows_of_d[rows]] == (wanted * factors[:, None])[rows]).all()
    assert (np.delete(d, rows_of_d[rows], 0) == 7).all()


def test_a_new_d_has_a_row_for_each_number():
    a, sfa, b, sfb = operands(9, 256, 384, 3)
    rows_of_a = np.arange(20, dtype=np.int32) % 9
    assert finegemm.grouped_gemm(a, sfa, b, sfb, offsets=OFFSETS, rows_of_a=rows_of_a).shape == (20, 256)


def test_such_products_are_explained():
    account = finegemm.explain(512, 4096, 7168, groups=8, indexed=True)
    assert account["line"].endswith("groups=8 indexed") and account["chosen"]["name"].endswith("_indexed")
