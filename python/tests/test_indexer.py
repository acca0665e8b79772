"""examples/python/indexer.py: the best keys with NumPy arrays and with torch tensors, from rows and from pages."""

import numpy as np
import pytest

from support import program


@pytest.fixture(scope="module")
def indexer():
    return program("examples/python/indexer.py")


def test_most_of_the_best_keys_are_found(indexer):
    q, k, w, _ = indexer.problem(3)
    found = indexer.best_keys(indexer.logits_of_rows(indexer.quantised(q, k, w)))
    share = indexer.share_of_best(found, indexer.plain(q, k, w))
    assert indexer.LEAST_SHARE < share < 1, "all of them: that would not be FP8"


def test_no_key_is_found_that_is_not_seen(indexer):
    q, k, w, _ = indexer.problem(4)
    found = indexer.best_keys(indexer.logits_of_rows(indexer.quantised(q, k, w)))
    assert (found.max(axis=1) < np.arange(indexer.KEYS - indexer.QUERIES + 1, indexer.KEYS + 1)).all()


def test_pages_have_the_best_keys_of_rows(indexer):
    q, k, w, pages = indexer.problem(5)
    x = indexer.quantised(q, k, w)
    best = indexer.best_of_rows(x)
    np.testing.assert_array_equal(indexer.best_of_pages(x, indexer.paged(x, pages), pages)[0], best[-1])
    np.testing.assert_array_equal(np.sort(indexer.best_keys(indexer.logits_of_rows(x))), best)


def test_torch_tensors_give_the_same(indexer):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    arrays = indexer.problem(6)
    wanted = indexer.logits_of_rows(indexer.quantised(*arrays[:3]))
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        q, k, w, pages = (torch.from_numpy(x).to(device) for x in arrays)
        x = indexer.quantised(q, k, w)
        rows = indexer.logits_of_rows(x)
        torch.testing.assert_close(rows.cpu().numpy(), wanted, rtol=0, atol=0)
        best = indexer.best_of_rows(x)
        torch.testing.assert_close(indexer.best_of_pages(x, indexer.paged(x, pages), pages)[0], best[-1])
        np.testing.assert_array_equal(best.cpu(), np.sort(indexer.best_keys(wanted)))
        np.testing.assert_array_equal(np.sort(indexer.best_keys(rows).cpu()), np.sort(indexer.best_keys(wanted)))
