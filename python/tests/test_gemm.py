"""finegemm.gemm and finegemm.quantize_* on NumPy arrays: the CPU backend."""

import json
import sys
import threading
import time

import ml_dtypes
import numpy as np
import pytest

import finegemm
from support import BF16, E4M3, assert_rounded, blocks, operands, product


@pytest.mark.parametrize("shape", [(1, 8, 16), (3, 136, 272), (128, 256, 512), (65, 24, 1040)])
def test_exact_products_are_the_double_product_rounded(shape):
    args = operands(*shape)
    out = finegemm.gemm(*args, numerics="exact")
    assert out.dtype == BF16
    assert_rounded(out, product(*args))


@pytest.mark.parametrize("numerics", ["fast", "hopper"])
def test_other_numerics_stay_close_to_the_exact_product(numerics):
    a, sfa, b, sfb = operands(33, 136, 528)
    out = finegemm.gemm(a, sfa, b, sfb, numerics=numerics).astype(np.float64)
    magnitude = product(np.abs(a), sfa, np.abs(b), sfb)
    # 2^-10: 14 bits of products aligned to the largest; 2^-8 of the result: bf16.
    assert np.all(np.abs(out - product(a, sfa, b, sfb)) <= magnitude * 2.0**-10 + np.abs(out) * 2.0**-8)


@pytest.mark.parametrize("numerics", ["fast", "exact", "hopper"])
def test_scales_for_each_row_of_b_make_float32_that_may_be_added_to(numerics):
    args = operands(33, 136, 528, row_b_scales=True)
    exact = product(*args)
    out = finegemm.gemm(*args, numerics=numerics, out_dtype="float32")
    assert out.dtype == np.float32
    a, sfa, b, sfb = args
    limit = product(np.abs(a), sfa, np.abs(b), sfb) * 2.0**-10
    assert np.all(np.abs(out - exact) <= limit)
    total = np.full((33, 136), 1000, np.float32)
    assert finegemm.gemm(*args, total, numerics=numerics, accumulate=True) is total
    np.testing.assert_array_equal(total, np.float32(1000) + out if numerics != "exact" else total)
    assert np.all(np.abs(total - 1000 - exact) <= limit + 2.0**-13)
    assert finegemm.gemm(*args, numerics=numerics).dtype == BF16


@pytest.mark.parametrize("numerics", ["fast", "exact", "hopper"])
def test_zeros_make_zeros(numerics):
    a, sfa, b, sfb = operands(4, 8, 272)
    for args in ((a * 0, sfa, b, sfb), (a, sfa, b * 0, sfb)):
        np.testing.assert_array_equal(finegemm.gemm(*args, numerics=numerics), np.zeros((4, 8), BF16))


@pytest.mark.parametrize("context", [None, finegemm.Context(batch_invariant=True)])
def test_batch_invariant_rows_do_not_depend_on_the_others(context):
    a, sfa, b, sfb = operands(33, 64, 4096)
    call = {"numerics": "hopper"} | ({"context": context} if context else {"batch_invariant": True})
    whole = finegemm.gemm(a, sfa, b, sfb, **call)
    for rows in (1, 5):
        np.testing.assert_array_equal(finegemm.gemm(a[:rows], sfa[:rows], b, sfb, **call), whole[:rows])


def test_out_is_written_and_returned():
    args = operands(16, 32, 128)
    out = np.empty((16, 32), BF16)
    assert finegemm.gemm(*args, out) is out
    np.testing.assert_array_equal(out, finegemm.gemm(*args))


def test_the_cpu_takes_any_address():
    """As loaders of files have them: a tensor begins where the one before it ended."""

    def moved(x, shift):
        to = np.empty(x.nbytes + shift, np.uint8)[shift:].view(x.dtype).reshape(x.shape)
        to[...] = x
        return to

    args = operands(16, 32, 256)
    expected = finegemm.gemm(*args)
    for shift in (1, 2, 4, 8):
        out = moved(np.zeros((16, 32), BF16), shift)
        assert finegemm.gemm(*(moved(x, shift) for x in args), out) is out
        np.testing.assert_array_equal(out, expected)


def test_scales_of_checkpoints_are_what_the_errors_say():
    a, sfa, b, sfb = operands(16, 32, 256, row_b_scales=True)
    exponents = np.random.default_rng(3).integers(120, 134, sfa.shape, np.uint8)
    scales = np.ldexp(np.float32(1), exponents.astype(np.int32) - 127)
    np.testing.assert_array_equal(scales, exponents.view(ml_dtypes.float8_e8m0fnu).astype(np.float32))
    np.testing.assert_array_equal(scales, scales.astype(BF16).astype(np.float32))
    packed = np.pad(exponents, ((0, 0), (0, 2))).view(np.int32)
    np.testing.assert_array_equal(packed.view(np.uint8)[:, :2], exponents)
    of_rows = np.ascontiguousarray(sfb[:, :1])
    out = finegemm.gemm(a, scales, b, np.broadcast_to(of_rows, sfb.shape), numerics="exact")
    assert_rounded(out, product(a, scales, b, np.repeat(of_rows, 2, axis=1)))


@pytest.mark.parametrize("of_a", [(16, 1), (1, 1)])
@pytest.mark.parametrize("of_b", [(136, 1), (1, 1)])
def test_one_scale_serves_a_row_or_the_matrix(of_a, of_b):
    a, _, b, _ = operands(16, 136, 400)
    random = np.random.default_rng(6)
    sfa, sfb = (random.uniform(0.5, 2, shape).astype(np.float32) for shape in (of_a, of_b))
    all_of_b = np.broadcast_to(sfb, (136 if of_b[0] > 1 else 2, 4))
    expected = finegemm.gemm(a, np.broadcast_to(sfa, (16, 4)).copy(), b, all_of_b.copy())
    np.testing.assert_array_equal(finegemm.gemm(a, sfa, b, sfb), expected)
    exact = finegemm.gemm(a, sfa, b, sfb, numerics="exact")
    assert_rounded(exact, product(a, np.broadcast_to(sfa, (16, 4)), b, all_of_b))


def test_one_scale_serves_each_row_or_matrix_of_groups():
    a, _, b, _ = operands(48, 136, 256)
    random = np.random.default_rng(7)
    sfa, of_rows, of_matrices = (
        random.uniform(0.5, 2, shape).astype(np.float32) for shape in ((48, 1), (2, 136, 1), (2, 1, 1))
    )
    weights, offsets = np.stack([b, b[::-1]]), np.array([0, 20, 48], np.int32)
    for sfb, rows in ((of_rows, 136), (of_matrices, 2)):
        whole = np.repeat(sfa, 2, axis=1), np.broadcast_to(sfb, (2, rows, 2)).copy()
        expected = finegemm.grouped_gemm(a, whole[0], weights, whole[1], offsets=offsets)
        np.testing.assert_array_equal(finegemm.grouped_gemm(a, sfa, weights, sfb, offsets=offsets), expected)
    expected = finegemm.k_grouped_gemm(a, np.repeat(sfa, 2, axis=1), b, np.ones((136, 2), np.float32), sizes=[128, 128])
    one = np.ones((1, 1), np.float32)
    np.testing.assert_array_equal(finegemm.k_grouped_gemm(a, sfa, b, one, sizes=[128, 128]), expected)


def test_without_ml_dtypes_only_formats_that_numpy_lacks_are_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)  # importing it raises ImportError
    a, sfa, b, sfb = (x.view(np.uint8) if x.dtype == E4M3 else x for x in operands(16, 32, 256, row_b_scales=True))
    assert finegemm.gemm(a, sfa, b, sfb, out_dtype="float32").dtype == np.float32
    assert finegemm.k_grouped_gemm(a, sfa, b, sfb, None, offsets=[0, 128, 256]).dtype == np.float32
    x = np.ones((4, 128), np.float32)
    assert finegemm.quantize_rows(x, np.empty((4, 128), np.uint8))[1].dtype == np.float32
    with pytest.raises(finegemm.Unsupported, match="d: NumPy has no bfloat16 of its own; pip install ml_dtypes"):
        finegemm.gemm(a, sfa, b, sfb)
    with pytest.raises(finegemm.Unsupported, match="q: NumPy has no float8_e4m3fn of its own"):
        finegemm.quantize_rows(x)


def test_out_dtype_may_say_what_d_is():
    args, bits = operands(16, 32, 128, row_b_scales=True), np.empty((16, 32), np.uint16)
    assert finegemm.gemm(*args, bits, out_dtype="bfloat16") is bits
    with pytest.raises(finegemm.InvalidArgument, match="out_dtype: is 'bfloat16', must be the dtype of d"):
        finegemm.gemm(*args, np.empty((16, 32), np.float32), out_dtype="bfloat16")


def test_integers_stand_for_the_bits_of_floats():
    a, sfa, b, sfb = operands(16, 32, 128)
    out = np.empty((16, 32), np.uint16)
    finegemm.gemm(a.view(np.uint8), sfa, b.view(np.uint8), sfb, out)
    np.testing.assert_array_equal(out.view(BF16), finegemm.gemm(a, sfa, b, sfb))


def test_scales_may_have_any_strides():
    a, sfa, b, sfb = operands(40, 256, 384)
    wide = np.zeros((40, 9), np.float32)
    wide[:, ::3] = sfa
    want = finegemm.gemm(a, sfa, b, sfb)
    np.testing.assert_array_equal(finegemm.gemm(a, np.asfortranarray(sfa), b, np.asfortranarray(sfb)), want)
    np.testing.assert_array_equal(finegemm.gemm(a, wide[:, ::3], b, sfb), want)


def test_rows_may_be_part_of_wider_rows_and_nothing_beside_them_is_written():
    a, sfa, b, sfb = operands(20, 64, 256)
    wide_a, wide_out = np.zeros((20, 512), E4M3), np.full((20, 128), 7, BF16)
    wide_a[:, 128:384] = a
    finegemm.gemm(wide_a[:, 128:384], sfa, b, sfb, wide_out[:, 32:96])
    np.testing.assert_array_equal(wide_out[:, 32:96], finegemm.gemm(a, sfa, b, sfb))
    assert np.all(wide_out[:, :32] == 7) and np.all(wide_out[:, 96:] == 7)


def test_read_only_inputs_are_read():
    args = operands(16, 32, 128)
    want = finegemm.gemm(*args)
    for array in args:
        array.flags.writeable = False
    np.testing.assert_array_equal(finegemm.gemm(*args), want)


class Producer:
    """An array of a library that offers nothing but __dlpack__."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)


class OldProducer(Producer):
    """One from before DLPack had versions."""

    def __dlpack__(self, *, stream=None):
        return self.array.__dlpack__()


@pytest.mark.parametrize("producer", [Producer, OldProducer])
def test_any_producer_of_dlpack_will_do(producer):
    a, sfa, b, sfb = operands(16, 32, 128)
    out = np.empty((16, 32), np.uint16)
    finegemm.gemm(*map(producer, (a.view(np.uint8), sfa, b.view(np.uint8), sfb, out)))
    np.testing.assert_array_equal(out.view(BF16), finegemm.gemm(a, sfa, b, sfb))


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy before 2.1 has no versions of DLPack")
def test_producers_say_what_is_read_only():
    a, sfa, b, sfb = operands(16, 32, 128)
    out = np.empty((16, 32), np.uint16)
    out.flags.writeable = False
    with pytest.raises(finegemm.InvalidArgument, match=r"d: .*read-only"):
        finegemm.gemm(a, sfa, b, sfb, Producer(out))


def test_arrays_are_given_back():
    args = operands(16, 32, 128)
    counts = [sys.getrefcount(x) for x in args]
    for _ in range(3):
        finegemm.gemm(*args)
        with pytest.raises(finegemm.InvalidArgument):
            finegemm.gemm(*args[:3], args[0])
    assert [sys.getrefcount(x) for x in args] == counts


def test_other_threads_run_during_a_call():
    args, out = operands(256, 512, 4096), np.empty((256, 512), BF16)
    context = finegemm.Context(cpu_threads=1)
    thread = threading.Thread(target=lambda: finegemm.gemm(*args, out, numerics="exact", context=context))
    ticks = [time.perf_counter()]
    thread.start()
    while thread.is_alive():
        ticks.append(time.perf_counter())
    assert max(np.diff(ticks)) < (ticks[-1] - ticks[0]) / 2


def test_empty_extents():
    a, sfa, b, sfb = operands(4, 8, 128)
    assert finegemm.gemm(a[:0], sfa[:0], b, sfb).shape == (0, 8)
    zeros = finegemm.gemm(a[:, :0], sfa[:, :0], b[:, :0], sfb[:, :0])
    np.testing.assert_array_equal(zeros, np.zeros((4, 8), BF16))


def test_threads_may_share_a_context():
    args = operands(64, 128, 512)
    want, got = finegemm.gemm(*args), {}
    context = finegemm.Context(cpu_threads=2)

    def work(i):
        got[i] = [finegemm.gemm(*args, context=context) for _ in range(10)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(got) == 4
    for outs in got.values():
        for out in outs:
            np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16])
def test_rows_quantised_lie_within_half_a_step(dtype):
    x = np.random.default_rng(3).standard_normal((37, 272)).astype(dtype)
    x[5, 128:256] = 0
    q, scales = finegemm.quantize_rows(x)
    assert (q.dtype, scales.dtype, scales.shape) == (E4M3, np.float32, (37, 3))
    wide = np.repeat(scales, 128, axis=1)[:, :272].astype(np.float64)
    back, want = q.astype(np.float64) * wide, x.astype(np.float64)
    # Half a unit in the last of 4 bits; the smallest step of e4m3 is 2^-9. A little for the rounding of the scale.
    assert np.all(np.abs(back - want) <= np.maximum(np.abs(want) * 2.0**-4, wide * 2.0**-10) * 1.0001)
    np.testing.assert_allclose(scales[:, 0], np.abs(want[:, :128]).max(axis=1) / 448, rtol=1e-6)
    assert scales[5, 1] == 1 and np.all(back[5, 128:256] == 0)


def test_blocks_quantised_have_one_scale_for_128_rows():
    w = np.random.default_rng(4).standard_normal((200, 272)).astype(np.float32)
    q, scales = finegemm.quantize_blocks(w)
    assert scales.shape == (blocks(200), blocks(272))
    np.testing.assert_allclose(scales[1, 2], np.abs(w[128:, 256:]).max() / 448, rtol=1e-6)
    assert np.abs(q[128:, 256:].astype(np.float32)).max() == 448


@pytest.mark.parametrize("groups", ((), (3,)))
def test_weights_quantised_are_blocks_of_each_matrix_and_their_transpose(groups):
    w = np.random.default_rng(4).standard_normal((*groups, 144, 272)).astype(np.float32)
    results = finegemm.quantize_weights(w)
    for matrix, *got in zip(w.reshape(-1, 144, 272), *(x.reshape(-1, *x.shape[-2:]) for x in results), strict=True):
        q, scales = finegemm.quantize_blocks(matrix)
        for one, wanted in zip(got, (q, scales, q.T), strict=True):
            np.testing.assert_array_equal(one, wanted)
    transposed = np.zeros((*groups, 272, 144), np.uint8)
    assert finegemm.quantize_weights(w, None, None, transposed)[2] is transposed
    np.testing.assert_array_equal(transposed, results[2].view(np.uint8))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16])
def test_columns_quantised_are_rows_of_the_transpose(dtype):
    x = np.random.default_rng(5).standard_normal((150, 272)).astype(dtype)
    q, scales = finegemm.quantize_columns(x)
    padded = np.zeros((272, 160), dtype)
    padded[:, :150] = x.T
    want, want_scales = finegemm.quantize_rows(padded)
    rows = finegemm.quantize_columns(x, rows=True)[2:]
    assert q.dtype == E4M3 and scales.strides[0] == rows[1].strides[0] == 4  # side by side
    all_wanted = (want, want_scales, *finegemm.quantize_rows(x))
    for got, wanted in zip((q, scales, *rows), all_wanted, strict=True):
        np.testing.assert_array_equal(got, wanted)
    for got, wanted in zip(finegemm.quantize_columns(x, rows=True)[:2], all_wanted, strict=False):
        np.testing.assert_array_equal(got, wanted)


def test_columns_of_groups_begin_at_blocks_and_go_into_what_is_given():
    x, offsets = np.random.default_rng(6).standard_normal((150, 32)).astype(np.float32), (3, 13, 13, 145)
    numbers, begins = np.array(offsets, np.int32), np.empty(4, np.int32)
    q, scales, row_q = np.empty((32, 512), np.uint8), np.empty((32, 4), np.float32), np.zeros((150, 32), np.uint8)
    results = finegemm.quantize_columns(x, q, scales, offsets=numbers, begins=begins, row_q=row_q)
    assert results[0] is q and results[1] is scales and results[2] is begins and results[3] is row_q
    assert begins.tolist() == [0, 128, 128, 384] and not q[:, 10:128].any() and not q[:, 128 + 132 :].any()
    for begin, (i, j) in ((0, offsets[:2]), (128, offsets[2:])):
        want = finegemm.quantize_columns(x[i:j], np.empty((32, -(-(j - i) // 16) * 16), np.uint8))
        np.testing.assert_array_equal(q[:, begin : begin + want[0].shape[1]], want[0])
    rows = finegemm.quantize_rows(x, np.empty((150, 32), np.uint8))
    np.testing.assert_array_equal(row_q[3:145], rows[0][3:145])
    np.testing.assert_array_equal(results[4][3:145], rows[1][3:145])
    assert not row_q[:3].any() and not row_q[145:].any()  # of no group


def test_power_of_two_scales_are_rounded_up():
    x = np.random.default_rng(5).standard_normal((16, 256)).astype(np.float32)
    _, plain = finegemm.quantize_rows(x)
    _, powers = finegemm.quantize_rows(x, power_of_two_scales=True)
    np.testing.assert_array_equal(powers, 2.0 ** np.ceil(np.log2(plain.astype(np.float64))))


def test_what_quantize_returns_goes_into_gemm():
    random = np.random.default_rng(6)
    x, w = random.standard_normal((32, 256)).astype(BF16), random.standard_normal((64, 256)).astype(BF16)
    out = finegemm.gemm(*finegemm.quantize_rows(x), *finegemm.quantize_blocks(w))
    want = x.astype(np.float64) @ w.astype(np.float64).T
    # Two roundings to e4m3, of 2^-4 at most each.
    assert np.linalg.norm(out.astype(np.float64) - want) < 0.06 * np.linalg.norm(want)


def test_explain_names_the_kernel_and_the_others():
    plan = finegemm.explain(64, 576, 7168, device="h200")
    assert plan["problem"] == {"m": 64, "n": 576, "k": 7168}
    assert plan["chosen"]["name"] in [row["name"] for row in plan["candidates"]]
    assert len(plan["candidates"]) > 10
    budgeted = finegemm.explain(64, 576, 7168, device="h200", num_sms=8)
    assert budgeted["problem"]["num_sms"] == 8 and budgeted["chosen"]["us"] > plan["chosen"]["us"]
    unsplit = finegemm.explain(64, 576, 7168, device="h200", batch_invariant=True)
    assert "splitK" in plan["chosen"]["name"] and "splitK" not in unsplit["chosen"]["name"]


@pytest.mark.parametrize("out_dtype, end", [("float32", "_1d1d_f32"), ("bfloat16", "_1d1d")])
def test_explain_names_the_kernel_that_scales_for_each_row_of_b_take(out_dtype, end):
    shape = (384, 1024, 16)  # in tiles of 128 and 136 columns the tensor cores multiply scales: other bits
    plan = finegemm.explain(*shape, device="h200", row_b_scales=True, out_dtype=out_dtype)
    assert plan["chosen"]["name"].endswith(end)
    args = operands(*shape, row_b_scales=True)
    call = {"numerics": "hopper", "out_dtype": out_dtype}
    out = finegemm.gemm(*args, **call).tobytes()
    names = [row["name"] for row in plan["candidates"] if "us" in row]
    alike = [name for name in names if finegemm.gemm(*args, config=name, **call).tobytes() == out]
    tensor_cores = {name: name.startswith(("m128n128s", "m128n136s")) for name in names}
    assert alike == [name for name in names if tensor_cores[name] == tensor_cores[plan["chosen"]["name"]]]


def test_explain_takes_a_table_of_measured_choices(tmp_path):
    names = [row["name"] for row in finegemm.explain(64, 4096, 4096, device="h200")["candidates"] if "us" in row]
    entry = {"problem": "gemm 64x4096x4096", "kernel": names[-1], "us": 8.5, "usual": names[0], "usual_us": 9.25}
    table = tmp_path / "table.json"
    table.write_text(json.dumps({"format": 2, "device": "h200", "sms": 132, "version": "", "entries": [entry]}))
    chosen = finegemm.explain(64, 4096, 4096, device="h200", plan_table=str(table))["chosen"]
    assert (chosen["name"], chosen["source"]) == (names[-1], "user table")
    with pytest.raises(finegemm.InvalidArgument, match="measured on device 'h200'"):
        finegemm.explain(64, 4096, 4096, device="h100", plan_table=str(table))


def test_a_plan_table_is_an_option_of_a_context():
    finegemm.Context(plan_table="/nonexistent/table.json")  # read when a GPU is first used
