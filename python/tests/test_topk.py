"""finegemm.topk and its neighbours on NumPy arrays: order, ties, windows, pages, histograms and what is refused."""

import numpy as np
import pytest

import finegemm
from test_mqa import cache_of, problem, seen

RANDOM = np.random.default_rng(46)


def best(row, k, keys):
    """By numbers, the largest first: NaN before all, lower columns before equal ones."""
    order = sorted(keys, key=lambda j: (not np.isnan(row[j]), 0 if np.isnan(row[j]) else -row[j], j))[:k]
    return np.r_[order, np.full(k - len(order), -1)].astype(np.int32)


def logits_with_ties(rows=5, cols=400):
    x = np.round(RANDOM.standard_normal((rows, cols)) * 4).astype(np.float32)
    x[0, ::7], x[1, ::9], x[2, 3] = np.nan, -0.0, np.inf
    return x


@pytest.mark.parametrize("k", (1, 37, 400, 410))
def test_the_largest_are_selected_and_of_equal_ones_the_lowest_columns(k):
    x = logits_with_ties()
    found, values = finegemm.topk(x, k, sorted=True), np.empty((5, k), np.float32)
    np.testing.assert_array_equal(found, [best(row, k, range(400)) for row in x])
    plain = finegemm.topk(x, k, values=values)
    np.testing.assert_array_equal(np.sort(plain, 1), np.sort(np.where(found < 0, -1, found), 1))
    assert np.all(np.diff(np.where(plain < 0, 999, plain).astype(np.int64), axis=1)[:, : min(k, 400) - 1] > 0)
    rows = np.arange(5)[:, None]
    np.testing.assert_array_equal(values, np.where(plain < 0, -np.inf, x[rows, plain]))


def test_windows_leave_columns_out_and_short_ones_end_with_minus_one():
    x = logits_with_ties()
    starts, ends = (np.array(n, np.int32) for n in ((-3, 20, 390, 10, 0), (5, 60, 999, 10, 400)))
    found = finegemm.topk(x, 30, starts=starts, ends=ends, sorted=True)
    keys = [range(max(s, 0), min(e, 400)) for s, e in zip(starts, ends, strict=True)]
    np.testing.assert_array_equal(found, [best(row, 30, j) for row, j in zip(x, keys, strict=True)])


def test_a_histogram_counts_all_numbers_by_power_of_two():
    x = np.array([[0, -0.0, 1, 1.3, 2, -1, np.nan, np.inf, -np.inf, 1e-30]], np.float32)
    bins = np.full((1, 256), -1, np.int32)
    assert finegemm.topk(x, 0, histogram=bins) is bins
    wanted = np.zeros((1, 256), np.int32)
    for b in (128, 128, 188, 189, 192, 67, 255, 255, 0, 128):
        wanted[0, b] += 1
    np.testing.assert_array_equal(bins, wanted)


@pytest.mark.parametrize("relu", ("exact", "abs"))
def test_keys_are_those_of_the_largest_logits(relu):
    p = problem()
    logits, mask = finegemm.mqa_logits(*p, relu=relu), seen(*p[4:], 300)
    found = finegemm.mqa_topk(*p, 20, relu=relu, sorted=True)
    wanted = [best(row, 20, np.flatnonzero(keys)) for row, keys in zip(logits, mask, strict=True)]
    np.testing.assert_array_equal(found, wanted)
    given, bins = np.full_like(logits, 7), np.empty((6, 256), np.int32)
    indices = np.empty((6, 20), np.int32)
    assert finegemm.mqa_topk(*p, indices=indices, logits=given, histogram=bins, relu=relu, sorted=True) is indices
    np.testing.assert_array_equal(given, logits)
    np.testing.assert_array_equal(indices, found)
    np.testing.assert_array_equal(bins.sum(1), mask.sum(1))


def test_keys_of_pages_are_those_of_the_largest_logits():
    q, k, sfk, w, *_ = problem(s=6)
    q, table = q.reshape(3, 2, 32, 64), RANDOM.permutation(30)[:30].reshape(3, 10).astype(np.int32)
    cache = cache_of(np.tile(k[:160], (3, 1)), np.tile(sfk[:160], 3), 16, table.ravel())
    lengths = np.array([0, 25, 155], np.int32)
    logits = finegemm.paged_mqa_logits(q, cache, w, lengths, table)
    found = finegemm.paged_mqa_topk(q, cache, w, lengths, table, 12, sorted=True)
    ends = np.maximum(lengths[:, None] - [1, 0], 0).ravel()
    np.testing.assert_array_equal(found, [best(row, 12, range(e)) for row, e in zip(logits, ends, strict=True)])
    cut = finegemm.paged_mqa_topk(q, cache, w, lengths, table, 12, keys=20, sorted=True)
    wanted = [best(row, 12, range(min(e, 20))) for row, e in zip(logits, ends, strict=True)]
    np.testing.assert_array_equal(cut, wanted)


def test_a_row_depends_on_no_other():
    x, p = logits_with_ties(), problem()
    whole = finegemm.topk(x, 37), finegemm.mqa_topk(*p, 20, sorted=True)
    for i in range(5):
        np.testing.assert_array_equal(finegemm.topk(x[i : i + 1], 37)[0], whole[0][i])
        q, k, sfk, *others = p
        alone = finegemm.mqa_topk(q[i : i + 1], k, sfk, *(t[i : i + 1] for t in others), 20, sorted=True)
        np.testing.assert_array_equal(alone[0], whole[1][i])


def test_what_is_not_asked_for_is_refused():
    x = logits_with_ties()
    for arguments, what in (
        ({}, "k: must be given"),
        ({"k": 3, "indices": np.empty((5, 3), np.int32)}, "k: must be given"),
        ({"k": 0}, "indices: is left out"),
        ({"k": -1}, "k: is -1"),
        ({"k": 2049}, "has k = 2049 columns, must be from 1 to 2048"),
    ):
        with pytest.raises(finegemm.InvalidArgument, match=what):
            finegemm.topk(x, **arguments)


def test_explain_names_the_kernel_and_says_why():
    told = finegemm.explain_topk(1000, 20000, 2048, device="h200")
    assert told["kernel"] == "FineGEMM_topk_c1" and "logits" not in told
    assert told["why"] == [
        "a CTA keeps 8192 columns in shared memory; of 20000 it looks at a sample, and then lists what may be selected"
    ]
    told = finegemm.explain_topk(8192, 131072, 2048, 64, 128, relu="abs", device="h100")
    assert told["logits"]["kernel"] == "FineGEMM_mqa_logits_h64_d128_abs"
    assert told["steps"] == {"count": 16, "rows": 512, "bytes": 512 * 131072 * 4}
    asked = finegemm.explain_topk(8192, 131072, 0, 64, 128, logits=True, histogram=True)
    assert asked["steps"] == {"count": 1, "rows": 8192, "bytes": 0}
    pages = finegemm.explain_topk(1, 8192, 2048, 64, 128, requests=1)
    assert pages["kernel"] == "FineGEMM_topk_c1"
    assert pages["logits"]["kernel"] == "FineGEMM_paged_mqa_logits_h64_d128"
    with pytest.raises(finegemm.InvalidArgument, match=r"^q: has H = 7 heads"):
        finegemm.explain_topk(1, 1, 1, 7, 64)
    with pytest.raises(finegemm.InvalidArgument, match=r"^k: is 0, and histograms are not asked for"):
        finegemm.explain_topk(1, 1, 0)
