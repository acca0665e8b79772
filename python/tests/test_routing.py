"""finegemm.route, permute_quantize and combine on NumPy arrays and torch tensors, and layouts of dispatchers."""

import numpy as np
import pytest

import finegemm
from finegemm import routing
from support import BF16, E4M3

RANDOM = np.random.default_rng(43)


def routed(tokens=40, k=3, experts=7, **options):
    ids = RANDOM.integers(-1, experts + 3, (tokens, k))
    return ids, finegemm.route(ids, experts, **options)


def test_groups_are_those_that_grouped_gemm_takes():
    for form in ("offsets", "prefix_sums", "m_indices", "masked_m"):
        ids, (inverse, numbers, permutation) = routed(form=form, alignment=64)
        assert inverse.dtype == numbers.dtype == permutation.dtype == np.int32
        stacked = form == "masked_m"
        rows = permutation.size
        x = RANDOM.standard_normal((40, 256)).astype(np.float32).astype(BF16)
        shape = {"groups": 7, "rows": permutation.shape[1]} if stacked else {"rows": rows}
        q, scales = finegemm.permute_quantize(x, inverse, **shape)
        weights = RANDOM.standard_normal((7, 128, 256)).astype(np.float32)
        b, sfb = finegemm.quantize_blocks(weights.reshape(7 * 128, 256))
        options = {form: numbers} | ({"alignment": 64} if form in ("prefix_sums", "m_indices") else {})
        d = finegemm.grouped_gemm(q, scales, b.reshape(7, 128, 256), sfb.reshape(7, 1, 2), **options)
        d = d.reshape(rows, 128)
        codes, of_codes = finegemm.quantize_rows(x)
        for t, c in np.argwhere(inverse >= 0):
            e = ids[t, c]
            alone = finegemm.gemm(codes[t : t + 1], of_codes[t : t + 1], b[e * 128 : (e + 1) * 128], sfb[e : e + 1])
            assert np.array_equal(d[inverse[t, c]].view(np.uint16), alone[0].view(np.uint16)), form


def test_rows_of_other_types_are_copied_with_their_scales():
    _, (inverse, _, permutation) = routed(form="offsets")
    x = RANDOM.standard_normal((40, 256)).astype(np.float32).astype(BF16)
    q, scales = finegemm.quantize_rows(x)
    rows, of_rows = finegemm.permute_quantize(q, inverse, x_scales=scales, rows=permutation.size)
    by_quantising, of_quantised = finegemm.permute_quantize(x, inverse, rows=permutation.size)
    used = permutation >= 0
    assert np.array_equal(rows[used].view(np.uint8), by_quantising[used].view(np.uint8))
    assert np.array_equal(of_rows[used], of_quantised[used])
    halves, none = finegemm.permute_quantize(x, inverse, np.zeros((permutation.size, 256), BF16))
    assert none is None
    assert np.array_equal(halves[used], x[permutation[used] // 3])


def test_sums_are_in_the_order_of_choices_and_see_no_other_row():
    _, (inverse, _, permutation) = routed(form="prefix_sums", alignment=8)
    y = np.full((permutation.size, 64), np.nan, np.float32)
    y[permutation >= 0] = RANDOM.standard_normal((np.count_nonzero(permutation >= 0), 64))
    y, weights = y.astype(BF16), RANDOM.random((40, 3)).astype(np.float32)
    wanted = np.zeros((40, 64), np.float32)
    for c in range(3):
        with_row = inverse[:, c] >= 0
        wanted[with_row] += weights[with_row, c : c + 1] * y[inverse[with_row, c]].astype(np.float32)
    out = finegemm.combine(y, inverse, weights)
    assert out.dtype == BF16 and np.array_equal(out, wanted.astype(BF16))
    assert finegemm.combine(y, inverse, out=out) is out


def test_what_does_not_fit_is_named():
    ids = np.zeros((5, 2), np.int32)
    with pytest.raises(finegemm.InvalidArgument, match="choose expert 0 10 times, but there are 5 rows"):
        finegemm.route(ids, 1, form="masked_m", check_values=True)
    inverse, numbers, _ = finegemm.route(ids, 1, form="masked_m")
    assert numbers.tolist() == [5] and np.count_nonzero(inverse < 0) == 5
    with pytest.raises(finegemm.InvalidArgument, match="rows: is not given, nor q"):
        finegemm.permute_quantize(np.zeros((5, 16), BF16), inverse)
    with pytest.raises(finegemm.InvalidArgument, match="ids: has dtype float64, must be int32 or int64"):
        finegemm.route(ids.astype(np.float64), 1)


def test_what_dispatchers_deliver_is_taken_as_it_is():
    ids = np.array([[0, -1], [1, 0], [-1, -1]])
    normal = routing.from_deepep_normal(ids, 2, alignment=4)
    assert normal.form == "prefix_sums" and normal.numbers.tolist() == [2, 5] and normal.rows == 12
    assert normal.inverse.tolist() == [[0, -1], [4, 1], [-1, -1]]
    x, count = np.zeros((2, 6, 256), E4M3), np.array([6, 0], np.int32)
    assert routing.from_deepep_low_latency((x, np.zeros((2, 6, 2))), count) == ("masked_m", count, None, 6)
    expanded = routing.from_deepep_expanded(count, 12)
    assert expanded.form == "prefix_sums" and expanded.rows == 12 and expanded.inverse is None


def test_what_a_dispatcher_would_not_take_is_named():
    count, y = np.array([6, 0], np.int32), np.zeros((2, 6, 128), BF16)
    masked = routing.from_deepep_low_latency(np.zeros((2, 6, 256), E4M3), count)
    expanded = routing.from_deepep_expanded(count, 12)
    assert routing.to_deepep(y, masked) is y
    for rows, routed, wanted in ((y[:, :5], masked, "2, 6, H"), (y, expanded, "12, H")):
        with pytest.raises(finegemm.InvalidArgument, match=rf"^y: has shape .*, must be \[{wanted}\], .*; pass D of"):
            routing.to_deepep(rows, routed)
    with pytest.raises(finegemm.InvalidArgument, match=r"^recv_topk_weights: is given, but DeepEP's combine adds up"):
        routing.to_deepep(y, masked, np.ones((2, 6), np.float32))
    with pytest.raises(finegemm.InvalidArgument, match=r"^pdl: is given, but"):
        routing.to_deepep(y.reshape(12, 128), expanded, pdl=True)


def test_torch_tensors_give_the_same():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    ids = RANDOM.integers(0, 9, (30, 4))
    x = RANDOM.standard_normal((30, 128)).astype(np.float32)
    inverse, numbers, permutation = finegemm.route(ids, 9)
    q, scales = finegemm.permute_quantize(x.astype(BF16), inverse, rows=permutation.size)
    by_torch = finegemm.route(torch.from_numpy(ids), 9)
    for found, wanted in zip(by_torch, (inverse, numbers, permutation), strict=True):
        assert np.array_equal(found.numpy(), wanted)
    codes, of_codes = finegemm.permute_quantize(torch.from_numpy(x).bfloat16(), by_torch[0], rows=permutation.size)
    used = permutation >= 0
    assert codes.dtype == torch.float8_e4m3fn
    assert np.array_equal(codes.view(torch.uint8).numpy()[used], q[used].view(np.uint8))
    assert np.array_equal(of_codes.numpy()[used], scales[used])
