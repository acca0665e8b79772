"""finegemm.scale_layout on NumPy arrays: the CPU backend, by values, shapes, strides and bits."""

import numpy as np
import pytest

import finegemm

RANDOM = np.random.default_rng(3)
SHAPES = ((5, 3), (130, 9), (1, 1), (300, 57), (2, 5, 6), (1, 4, 3))


def scales(shape):
    """Any bits, with zeros, infinities, NaN and subnormal numbers among them."""
    bits = RANDOM.integers(0, 2**32, shape, np.uint32)
    special = np.array((0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00001, 1, 0x7FFFFF), np.uint32)
    return np.where(RANDOM.random(shape) < 0.3, RANDOM.choice(special, shape), bits).view(np.float32)


def forms(x):
    wider = np.zeros((*x.shape[:-1], x.shape[-1] + 3), x.dtype)
    wider[..., : x.shape[-1]] = x
    mn_major = np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    return {"row-major": x, "MN-major": mn_major, "a part": wider[..., : x.shape[-1]]}


def exponents(x, power_of_two=False):
    bits = x.view(np.uint32) & 0x7FFFFFFF
    return np.clip((bits >> 23) + (bits & 0x7FFFFF != 0), 1, 254) if power_of_two else bits >> 23


def packed(exponents):
    fill = -exponents.shape[-1] % 4
    filled = np.pad(exponents, [(0, 0)] * (exponents.ndim - 1) + [(0, fill)])
    return np.ascontiguousarray(filled.astype(np.uint8)).view(np.int32)


def assert_laid_out(out, wanted):
    pitch = -(-wanted.shape[-2] // 4) * 4
    assert out.shape == wanted.shape and out.dtype == wanted.dtype
    assert wanted.shape[-1] == 1 or out.strides[-1] == 4 * pitch
    assert wanted.shape[-2] == 1 or out.strides[-2] == 4
    assert wanted.ndim == 2 or wanted.shape[0] == 1 or out.strides[0] == 4 * pitch * wanted.shape[-1]
    np.testing.assert_array_equal(
        np.ascontiguousarray(out).view(np.uint32), np.ascontiguousarray(wanted).view(np.uint32)
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_become_contiguous_at_strides_of_16_bytes(shape):
    x = scales(shape)
    for form in forms(x).values():
        assert_laid_out(finegemm.scale_layout(form), x)
        rounded = (exponents(x, True) << 23).astype(np.uint32).view(np.float32)
        assert_laid_out(finegemm.scale_layout(form, power_of_two_scales=True), rounded)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("power_of_two", (False, True))
def test_exponents_are_packed_and_unpacked(shape, power_of_two):
    x = scales(shape)
    for form in forms(x).values():
        out = finegemm.scale_layout(form, packed=True, power_of_two_scales=power_of_two)
        assert_laid_out(out, packed(exponents(x, power_of_two)))
    back = finegemm.scale_layout(out)
    wanted = np.zeros(back.shape, np.float32)
    wanted[..., : shape[-1]] = (exponents(x, power_of_two) << 23).astype(np.uint32).view(np.float32)
    assert_laid_out(back, wanted)
    fewer = np.empty(shape, np.float32)
    assert finegemm.scale_layout(out, fewer) is fewer
    np.testing.assert_array_equal(fewer, wanted[..., : shape[-1]])
    assert_laid_out(finegemm.scale_layout(np.ascontiguousarray(out), packed=True), out)


def test_scales_of_blocks_are_repeated_for_128_rows():
    x = scales((3, 5))
    rows = np.repeat(x, 128, 0)[:300]
    assert_laid_out(finegemm.scale_layout(x, rows=300), rows)
    assert_laid_out(finegemm.scale_layout(x, rows=300, packed=True), packed(exponents(rows)))


@pytest.mark.parametrize("alignment", (1, 16, 24))
def test_rows_of_no_group_become_zero(alignment):
    x, ends, grouped = scales((90, 6)), np.array((5, 5, 40, 77), np.int32), np.zeros(90, bool)
    for begin, end in zip((0, *ends), ends, strict=False):
        grouped[-(-begin // alignment) * alignment : end] = True
    groups = {"prefix_sums": ends, "alignment": alignment}
    assert_laid_out(finegemm.scale_layout(x, **groups), np.where(grouped[:, None], x, np.float32(0)))
    words = np.where(grouped[:, None], packed(exponents(x)), 0)
    assert_laid_out(finegemm.scale_layout(x, packed=True, **groups), words)


@pytest.mark.parametrize("ks", ([256, 1024, 0, 640], [1], [128] * 9, [5000]))
@pytest.mark.parametrize("scale_k", (32, 128))
def test_each_group_of_k_begins_a_word(ks, scale_k):
    counts = [-(-k // scale_k) for k in ks]
    x = scales((7, sum(counts)))
    parts = np.split(x, np.cumsum(counts)[:-1], 1)
    words = np.concatenate([packed(exponents(part)) for part in parts if part.shape[1]], 1)
    most = (sum(counts) + 3 * len(ks)) // 4
    wanted = np.pad(words, ((0, 0), (0, most - words.shape[1])))
    sizes = np.array(ks, np.int32)
    assert_laid_out(finegemm.scale_layout(x, packed=True, k_sizes=sizes, scale_k=scale_k), wanted)
    ends, end = [], 0
    for k in ks:
        end = -(-end // 32) * 32 + k
        ends.append(end)
    sums = {"k_prefix_sums": np.array(ends, np.int32), "alignment": 32, "scale_k": scale_k}
    assert_laid_out(finegemm.scale_layout(x, packed=True, **sums), wanted)
    exact = np.full((7, words.shape[1]), 7, np.int32)
    finegemm.scale_layout(x, exact, **sums)
    np.testing.assert_array_equal(exact, words)


def test_nothing_between_the_elements_is_written():
    x, whole = scales((6, 5)), np.full((9, 11), 7, np.int32)
    finegemm.scale_layout(x, whole[1:7, 2:4])
    assert (whole == 7).sum() >= whole.size - 12
    whole[1:7, 2:4] = 7
    assert np.all(whole == 7)


def test_nothing_is_done_without_elements():
    assert finegemm.scale_layout(np.empty((0, 4), np.float32)).shape == (0, 4)
    assert finegemm.scale_layout(np.empty((4, 0), np.float32), packed=True).shape == (4, 0)
