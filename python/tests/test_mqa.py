"""finegemm.mqa_logits and its neighbours on NumPy arrays: shapes, forms, pages, schedules and what is refused."""

import numpy as np
import pytest

import finegemm
from support import BF16, E4M3

RANDOM = np.random.default_rng(38)


def problem(s=6, h=32, d=64, keys=300):
    q, k = (RANDOM.standard_normal(shape).astype(E4M3) for shape in ((s, h, d), (keys, d)))
    w, sfk = RANDOM.standard_normal((s, h)).astype(np.float32), RANDOM.uniform(0.1, 1, keys).astype(np.float32)
    starts = RANDOM.integers(0, keys, s, np.int32)
    return q, k, sfk, w, starts, (starts + RANDOM.integers(-5, 99, s)).astype(np.int32)


def scores(q, k, sfk, w):
    """Of every query and key, in double."""
    x = np.einsum("shd,kd->shk", q.astype(np.float64), k.astype(np.float64))
    return np.einsum("shk,sh->sk", np.maximum(x, 0), w.astype(np.float64)) * sfk


def seen(starts, ends, keys):
    j = np.arange(keys)
    return (starts[:, None] <= j) & (j < ends[:, None])


@pytest.mark.parametrize("relu", ("exact", "abs"))
@pytest.mark.parametrize("h, d", ((8, 32), (32, 64), (64, 128)))
def test_logits_are_scores_where_a_query_sees_a_key(relu, h, d):
    p = problem(h=h, d=d)
    out = finegemm.mqa_logits(*p, relu=relu)
    mask = seen(*p[4:], 300)
    assert out.dtype == np.float32 and out.shape == (6, 300)
    assert np.all(np.isneginf(out) == ~mask)
    size = np.sqrt(h * d)
    np.testing.assert_allclose(out[mask], scores(*p[:4])[mask], atol=0.02 * size)


def test_forms_hold_the_same_logits():
    p = problem()
    filled, mask = finegemm.mqa_logits(*p), seen(*p[4:], 300)
    d = np.full((6, 300), 7, np.float32)
    assert finegemm.mqa_logits(*p, d, form="untouched") is d
    np.testing.assert_array_equal(d, np.where(mask, filled, 7))
    narrow = np.full((6, 50), 7, np.float32)
    finegemm.mqa_logits(*p, narrow, form="compressed")
    for i, (start, end) in enumerate(zip(*p[4:], strict=True)):
        row = filled[i, start : min(end, 300)][:50]
        np.testing.assert_array_equal(narrow[i], np.r_[row, np.full(50 - len(row), 7)])
    new = finegemm.mqa_logits(*p, form="compressed", width=50, out_dtype="bfloat16")
    assert new.shape == (6, 50) and new.dtype == BF16
    both = np.where(narrow == 7, 0, narrow).astype(BF16)
    np.testing.assert_array_equal(np.where(narrow == 7, 0, new), both)


def test_bits_of_e4m3_and_parts_of_arrays_are_taken():
    q, k, sfk, w, starts, ends = problem()
    wide = np.zeros((6, 2, 32, 64), E4M3)
    wide[:, 1] = q
    whole = np.full((9, 400), 7, np.float32)
    finegemm.mqa_logits(wide[:, 1].view(np.uint8), k.view(np.uint8), sfk, w, starts, ends, whole[2:8, 5:305])
    np.testing.assert_array_equal(whole[2:8, 5:305], finegemm.mqa_logits(q, k, sfk, w, starts, ends))
    whole[2:8, 5:305] = 7
    assert np.all(whole == 7)


def test_without_queries_or_keys_there_is_nothing():
    for s, keys in ((0, 300), (6, 0), (0, 0)):
        q, k, sfk, w, starts, ends = problem()
        out = finegemm.mqa_logits(q[:s], k[:keys], sfk[:keys], w[:s], starts[:s], ends[:s])
        assert out.shape == (s, keys)


def cache_of(k, sfk, page_size, pages):
    """Pages of keys, in the order of `pages`, with NaN in all that holds no key."""
    d = k.shape[1]
    cache = np.full((max(pages) + 3, page_size * (d + 4)), 0xFF, np.uint8)
    for p, page in enumerate(pages):
        part = slice(p * page_size, (p + 1) * page_size)
        codes, scales = k[part].view(np.uint8).reshape(-1), sfk[part].view(np.uint8)
        cache[page, : codes.size] = codes
        cache[page, page_size * d : page_size * d + scales.size] = scales
    return cache.reshape(-1, page_size, 1, d + 4)


@pytest.mark.parametrize("page_size", (4, 16, 32, 64))
@pytest.mark.parametrize("own_lengths", (False, True))
def test_keys_of_pages_have_the_logits_that_they_have_in_rows(page_size, own_lengths):
    q, k, sfk, w, *_ = problem(s=4)
    pages = list(RANDOM.permutation(100)[: -(-300 // page_size)])
    cache = cache_of(k, sfk, page_size, pages)
    table = np.full((2, len(pages) + 1), -1, np.int32)
    table[:, : len(pages)] = pages
    ends = np.array((298, 299, 100, 101), np.int32)  # two queries of two requests
    lengths = ends.reshape(2, 2) if own_lengths else ends[1::2]
    wanted = finegemm.mqa_logits(q, k, sfk, w, np.zeros(4, np.int32), ends)
    schedule = finegemm.paged_mqa_schedule(lengths, 7, queries_each=2)
    for given in (cache, cache[:, :, 0], cache.reshape(len(cache), -1)):
        out = finegemm.paged_mqa_logits(
            q.reshape(2, 2, 32, 64), given, w, lengths, table, schedule, width=320, check_values=True
        )
        np.testing.assert_array_equal(out[:, :300], wanted)
        assert np.all(np.isneginf(out[:, 300:]))
    assert finegemm.paged_mqa_logits(q.reshape(2, 2, 32, 64), cache, w, lengths, table).shape == (
        4,
        table.shape[1] * page_size,
    )


def test_a_schedule_says_where_slots_begin():
    lengths = np.array((0, 257, 1), np.int32)
    schedule = finegemm.paged_mqa_schedule(lengths, 4)
    np.testing.assert_array_equal(schedule, [(1, 0), (1, 0), (1, 1), (2, 0), (3, 0)])
    given = np.empty((5, 2), np.int32)
    assert finegemm.paged_mqa_schedule(lengths, schedule=given) is given
    np.testing.assert_array_equal(given, schedule)
    np.testing.assert_array_equal(finegemm.paged_mqa_schedule(np.zeros((3, 4), np.int32), 2), [(6, 0)] * 3)


REFUSED = {
    "starts: has dtype int64, must be int32; convert it": lambda p: {"starts": p["starts"].astype(np.int64)},
    "form: 'full' is none of 'filled', 'untouched' and 'compressed'; pass one of them": lambda p: {"form": "full"},
    "relu: 'max' is neither 'exact' nor 'abs'; pass one of them": lambda p: {"relu": "max"},
    "width: is given, but only compressed rows have another": lambda p: {"width": 300},
    "width: is not given, nor d; of compressed rows": lambda p: {"form": "compressed"},
    "width: is -1, must not be negative": lambda p: {"form": "compressed", "width": -1},
    "out_dtype: is 'bfloat16', must be the dtype of d": lambda p: {
        "out_dtype": "bfloat16",
        "d": np.empty((6, 300), np.float32),
    },
    "d: has dtype f16, must be f32 or bf16": lambda p: {"out_dtype": "float16"},
    "ends: [2] is 301, must be at most Skv = 300": lambda p: {
        "check_values": True,
        "starts": np.zeros(6, np.int32),
        "ends": np.array((0, 300, 301, 302, 0, 0), np.int32),
    },
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_is_wrong_is_named(sentence):
    p = dict(zip(("q", "k", "sfk", "w", "starts", "ends"), problem(), strict=True))
    with pytest.raises(finegemm.InvalidArgument) as error:
        finegemm.mqa_logits(**{**p, **REFUSED[sentence](p)})
    assert sentence in str(error.value)


def test_caches_of_other_shapes_are_refused():
    q, w, table = np.zeros((1, 1, 8, 32), np.uint8), np.zeros((1, 8), np.float32), np.zeros((1, 1), np.int32)
    lengths = np.ones(1, np.int32)
    for shape, sentence in (
        ((3, 16, 1, 32), "cache: has 32 bytes for a key, must have D + 4 = 36"),
        ((3, 8, 1, 36), "cache: has pages of 288 bytes, must be of P * (D + 4) = P * 36"),
        ((576,), "cache: has 1 dimensions, must have 4, 3 or 2"),
    ):
        with pytest.raises(finegemm.InvalidArgument) as error:
            finegemm.paged_mqa_logits(q, np.zeros(shape, np.uint8), w, lengths, table)
        assert sentence in str(error.value)
    keys_apart = np.zeros((3, 32, 1, 36), np.uint8)[:, ::2]
    with pytest.raises(finegemm.InvalidArgument, match=r"cache: has stride 72 in dimension 1, must be 36"):
        finegemm.paged_mqa_logits(q, keys_apart, w, lengths, table)


def test_explain_names_the_kernel_and_says_why():
    told = finegemm.explain_mqa(2048, 8192, 32, 64, relu="abs", out_dtype="bfloat16")
    assert told["kernel"] == "FineGEMM_mqa_logits_h32_d64_abs" and told["config"]["columns"] == 136
    assert any("as asked for" in sentence for sentence in told["why"])
    assert finegemm.explain_mqa(2, 8192, 64, 128, requests=256)["kernel"] == "FineGEMM_paged_mqa_logits_h64_d128"
    with pytest.raises(finegemm.InvalidArgument, match="q: has H = 7 heads, must be 8, 16, 32 or 64"):
        finegemm.explain_mqa(1, 1, 7, 64)
    with pytest.raises(finegemm.InvalidArgument, match="d: has dtype f16, must be f32 or bf16"):
        finegemm.explain_mqa(1, 1, 8, 64, out_dtype="float16")
