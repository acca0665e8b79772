"""finegemm.ep on threads: bits, capacity, ranks that do not come."""

import concurrent.futures

import numpy as np
import pytest

import finegemm
from finegemm import ep
from support import BF16

HIDDEN, PAIRS, EXPERTS, CHOICES = 128, 128, 2, 3


def weights(ranks):
    random = np.random.default_rng(3)
    shapes = ((ranks * EXPERTS, 2 * PAIRS, HIDDEN), (ranks * EXPERTS, HIDDEN, PAIRS))
    parts = [random.standard_normal(s).astype(np.float32) / s[-1] ** 0.5 for s in shapes]
    return [part for w in parts for part in finegemm.quantize_weights(w)[:2]]


def tokens(count, ranks, seed):
    random = np.random.default_rng(seed)
    ids = random.integers(-1, ranks * EXPERTS, (count, CHOICES))
    return random.standard_normal((count, HIDDEN)).astype(BF16), ids, random.random((count, CHOICES), np.float32)


def on_ranks(call, communicators):
    with concurrent.futures.ThreadPoolExecutor(len(communicators)) as threads:
        return list(threads.map(call, communicators))


@pytest.mark.parametrize("capacity", [0, 5 * CHOICES])
def test_each_rank_has_the_bits_of_one_that_has_all_experts(capacity):
    every = weights(3)

    def one(c):
        x, ids, odds = tokens((5, 0, 2)[c.rank], 3, c.rank)
        mine = [w[c.rank * EXPERTS : (c.rank + 1) * EXPERTS] for w in every]
        counts = np.empty(3, np.int32)
        out = ep.moe(c, x, ids, *mine, odds, capacity=capacity, counts=counts)
        np.testing.assert_array_equal(counts, [np.sum((ids >= 0) & (ids // EXPERTS == r)) for r in range(3)])
        return out, finegemm.moe(x, ids, *every, odds)

    communicators = ep.Communicator.of_threads(3)
    assert [(c.rank, c.ranks, c.device) for c in communicators] == [(r, 3, -1) for r in range(3)]
    for out, wanted in on_ranks(one, communicators):
        np.testing.assert_array_equal(out.view(np.uint16), wanted.view(np.uint16))


def test_memory_of_all_ranks_takes_the_place_of_messages():
    every = weights(3)

    def one(c):
        x, ids, odds = tokens((5, 0, 2)[c.rank], 3, c.rank)
        memory = ep.PeerMemory(c, 6, CHOICES, HIDDEN, PAIRS, EXPERTS)
        assert memory.reached and memory.bytes > 6 * CHOICES * HIDDEN * 2
        mine = [w[c.rank * EXPERTS : (c.rank + 1) * EXPERTS] for w in every]
        outs = [ep.moe(c, x, ids, *mine, odds, capacity=15, memory=memory) for _ in range(3)]
        more = np.zeros((7, HIDDEN), BF16)
        with pytest.raises(finegemm.InvalidArgument, match="x: has 7 tokens, but memory was made for at most 6"):
            ep.moe(c, more, np.zeros((7, CHOICES), int), *mine, capacity=15, memory=memory)
        return [*outs, finegemm.moe(x, ids, *every, odds)]

    for *outs, wanted in on_ranks(one, ep.Communicator.of_threads(3)):
        for out in outs:
            np.testing.assert_array_equal(out.view(np.uint16), wanted.view(np.uint16))


def test_weights_of_4_bits_give_each_rank_the_bits_of_their_fp8():
    shapes = ((2 * EXPERTS, 2 * PAIRS, HIDDEN), (2 * EXPERTS, HIDDEN, PAIRS))

    def packed(rows):
        drawn = np.random.default_rng(5)
        for g, n, k in shapes:
            codes = drawn.integers(0, 256, (g, n, k // 2), dtype=np.uint8)
            exponents = drawn.integers(116, 122, (g, n, k // 32), dtype=np.uint8)
            yield finegemm.pack_mxfp4(codes[rows], exponents[rows])

    every = [t for w in packed(slice(None)) for t in (w.with_fp8().fp8, w.with_fp8().fp8_scales)]

    def one(c):
        x, ids, odds = tokens((5, 3)[c.rank], 2, c.rank)
        gate_up, down = packed(slice(c.rank * EXPERTS, (c.rank + 1) * EXPERTS))
        return ep.moe(c, x, ids, gate_up, None, down, None, odds), finegemm.moe(x, ids, *every, odds)

    for out, wanted in on_ranks(one, ep.Communicator.of_threads(2)):
        np.testing.assert_array_equal(out.view(np.uint16), wanted.view(np.uint16))
        assert np.unique(out.view(np.uint16)).size > 100


def test_tokens_that_do_not_fit_are_nan_and_named_when_values_are_checked():
    every = weights(1)
    x, ids, odds = tokens(4, 1, 0)
    ids[:] = [0, -1, -1]
    (c,) = ep.Communicator.of_threads(1)
    out = ep.moe(c, x, ids, *every, odds, capacity=3)
    assert np.isnan(out[3].astype(np.float32)).all() and not np.isnan(out[:3].astype(np.float32)).any()
    with pytest.raises(finegemm.InvalidArgument, match=r"capacity: is 3, .* rank 0 \(experts 0 to 1\) 4 times"):
        ep.moe(c, x, ids, *every, odds, capacity=3, check_values=True)


def test_a_workspace_is_as_large_as_is_said():
    every = weights(1)
    x, ids, odds = tokens(4, 1, 0)
    (c,) = ep.Communicator.of_threads(1)
    size = ep.workspace_bytes(4, CHOICES, HIDDEN, PAIRS, EXPERTS, ranks=1, capacity=12)
    memory = np.zeros(size, np.uint8)
    ep.moe(c, x, ids, *every, odds, capacity=12, workspace=memory)
    assert memory.any()
    with pytest.raises(finegemm.InvalidArgument, match=f"workspace: has {size - 1} bytes, must have {size}"):
        ep.moe(c, x, ids, *every, odds, capacity=12, workspace=memory[1:])


def test_a_rank_that_does_not_come_is_named():
    every = weights(2)
    x, ids, odds = tokens(4, 2, 0)
    one, _other = ep.Communicator.of_threads(2, timeout=0.1)
    with pytest.raises(finegemm.PeerError, match=r"rank 1 \(experts 2 to 3\) has not come within 0.1 s"):
        ep.moe(one, x, ids, *(w[:EXPERTS] for w in every), odds)


def test_what_is_no_communicator_is_refused():
    with pytest.raises(finegemm.InvalidArgument, match="id: has 3 bytes, must have 128"):
        ep.Communicator(b"abc", 0, 1, 0)
    with pytest.raises(finegemm.InvalidArgument, match="ranks: is 0, must be from 1 to 1024"):
        ep.Communicator.of_threads(0)
    with pytest.raises(finegemm.InvalidArgument, match="timeout_s: is 0, must be above 0"):
        ep.Communicator.of_threads(2, timeout=0)
