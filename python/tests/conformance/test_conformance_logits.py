"""DeepGEMM's interface, logits of an indexer and their schedule: section 13 of its specification."""

import pytest

from finegemm import deep_gemm
from reference import BF16, F32, FP8, align, calc_diff, cases, ceil, integers, randn
from torch_support import DEVICES, torch

NAN, INF = float("nan"), float("inf")
MOST = {F32: 5e-6, BF16: 3e-5}
SPLIT_KEYS = 256  # of a unit of a schedule


def keys_of(n, dim, device, seed=3):
    """Codes, and a scale for each."""
    x = randn(n, dim, device=device, dtype=F32, seed=seed)
    sf = x.abs().amax(1).clamp(1e-4) / 448
    return (x / sf[:, None]).to(FP8), sf


def exact_logits(q, k, sf, w):
    """[S, Skv] of q [S, H, D]. Sums of a head are added up in float64, in parts that fit."""
    k, out = k.double(), []
    for some, weights in zip(q.split(64), w.split(64), strict=True):
        scores = torch.einsum("shd,nd->shn", some.double(), k).relu_()
        out.append(torch.einsum("shn,sh->sn", scores, weights.double()) * sf.double())
    return torch.cat(out)


def windows(queries, keys, device, kind):
    row = torch.arange(queries, device=device)
    if kind == "causal":
        start, end = torch.zeros_like(row), row + keys - queries
    elif kind == "ranks":  # two parts of a sequence that ranks share evenly, one from each end
        part, ranks = ceil(queries, 2), max(keys // queries, 1)
        rank = ranks // 3
        behind = (2 * ranks - 1 - rank) * part + row - part
        start, end = torch.zeros_like(row), torch.where(row < part, rank * part + row, behind)
    else:  # in any order, empty ones, and ends behind the keys
        start, end = (row * 37) % keys, (row * 53) % (keys + 40)
    return start.int(), end.int()


def seen(start, end, keys):
    column = torch.arange(keys, device=start.device)[None]
    return (column >= start[:, None]) & (column < end[:, None])


PREFILL = [(2048, 8192, 32, 128), (2048, 8192, 64, 64), (1024, 16384, 64, 128), (333, 8192, 64, 32)]


@pytest.mark.parametrize("kind", ("causal", "ranks", "any"))
@pytest.mark.parametrize("dtype", (F32, BF16))
@pytest.mark.parametrize("device, shape", cases([(5, 300, 32, 64), (3, 70, 64, 32), (9, 140, 16, 128)], PREFILL))
def test_logits_of_windows(device, shape, dtype, kind):
    queries, keys, heads, dim = shape
    q = randn(queries, heads, dim, device=device).to(FP8)
    k, sf = keys_of(keys, dim, device)
    w = randn(queries, heads + 8, device=device, dtype=F32)[:, :heads]
    start, end = windows(queries, keys, device, kind)
    mask, exact = seen(start, end, keys), exact_logits(q, k, sf, w)
    options = {"clean_logits": True, "max_seqlen_k": 0, "logits_dtype": dtype, "schedule_meta": None}
    named = {"weights": w, "cu_seq_len_k_start": start, "cu_seq_len_k_end": end}
    d = deep_gemm.fp8_fp4_mqa_logits(q=(q, None), kv=(k, sf), **named, **options)
    assert d.shape == (queries, keys)
    assert d.dtype == dtype
    assert d.stride(0) == align(keys + 256, 1024 // d.element_size())
    assert torch.equal(d == -INF, ~mask)
    assert calc_diff(d.masked_fill(~mask, 0), exact.masked_fill(~mask, 0)) < MOST[dtype]
    for _ in range(20 if device == "cuda" else 2):
        again = deep_gemm.fp8_fp4_mqa_logits(q=(q, None), kv=(k, sf), **named, **options)
        assert torch.equal(again, d)
    untouched = deep_gemm.fp8_fp4_mqa_logits((q, None), (k, sf), w, start, end, False, logits_dtype=dtype)
    assert torch.equal(untouched[mask], d[mask])
    width = max(int((end.clamp(max=keys) - start).max()), 1)
    packed = deep_gemm.fp8_fp4_mqa_logits((q, None), (k, sf), w, start, end, False, width, logits_dtype=dtype)
    assert packed.shape == (queries, width)
    assert packed.stride(0) == align(align(width, 256), 1024 // packed.element_size())
    lengths = (end.clamp(max=keys) - start).clamp(min=0)
    inside = torch.arange(width, device=device)[None] < lengths[:, None]
    assert torch.equal(packed[inside], d[mask])
    if dtype == F32:
        assert torch.equal(deep_gemm.fp8_mqa_logits(q, (k, sf), w, start, end), d)
        assert torch.equal(deep_gemm.fp8_mqa_logits(q, (k, sf), w, start, end, clean_logits=False)[mask], d[mask])


@pytest.mark.parametrize("device", DEVICES)
def test_keys_that_no_window_sees_may_be_nan(device):
    q, w = randn(4, 32, 64, device=device).to(FP8), randn(4, 32, device=device, dtype=F32)
    k, sf = keys_of(200, 64, device)
    start, end = integers([0, 20, 90, 0], device), integers([30, 20, 150, 150], device)
    want = deep_gemm.fp8_mqa_logits(q, (k, sf), w, start, end)
    k.view(torch.uint8)[150:] = 0x7F
    sf[150:] = NAN
    assert torch.equal(deep_gemm.fp8_mqa_logits(q, (k, sf), w, start, end), want)


@pytest.mark.parametrize("device", DEVICES)
def test_no_query_and_no_key_are_no_errors_and_what_is_refused(device):
    q, w = randn(4, 32, 64, device=device).to(FP8), randn(4, 32, device=device, dtype=F32)
    kv = keys_of(10, 64, device)
    start, end = integers([0] * 4, device), integers([10] * 4, device)
    call = deep_gemm.fp8_fp4_mqa_logits
    assert call((q[:0], None), kv, w[:0], start[:0], end[:0]).shape == (0, 10)
    assert call((q, None), (kv[0][:0], kv[1][:0]), w, start, end).shape == (4, 0)
    packed = (q[..., :32].view(torch.int8), w.int())
    for arguments, options in (
        ((packed, kv, w, start, end), {}),
        (((q, None), kv, w.bfloat16(), start, end), {}),
        (((q, None), kv, w, start, end), {"max_seqlen_k": 10}),
        (((q, None), kv, w, start, end), {"schedule_meta": start}),
        (((q, None), kv, w, start.long(), end), {}),
        (((q[:, :24], None), kv, w[:, :24], start, end), {}),
        (((q, None), kv, w, start, end), {"logits_dtype": torch.float16}),
    ):
        with pytest.raises(RuntimeError):
            call(*arguments, **options)
    with pytest.raises(TypeError):
        call((q, None), kv, w, start, end, ceiling=3)


def schedule_of(lengths, next_n, slots):
    """Section 13.2, by its words."""
    atoms = ceil(next_n, 2 if next_n >= 2 else 1)
    segs = [ceil(n, SPLIT_KEYS) for n in lengths]
    ends = [sum(segs[: b + 1]) for b in range(len(segs))]
    each, rest = divmod(ends[-1] * atoms, slots)
    rows = []
    for slot in range(slots):
        unit = slot * each + max(0, slot - (slots - rest))
        b = next((b for b in range(len(segs)) if ends[b] * atoms > unit), None)
        if b is None:
            rows.append([len(segs) * atoms, 0])
            continue
        offset = unit - (ends[b] - segs[b]) * atoms
        rows.append([b * atoms + offset // segs[b], offset % segs[b]])
    return [*rows, [len(segs) * atoms, 0]]


@pytest.mark.parametrize("next_n", (1, 2, 3, 4, 8))
@pytest.mark.parametrize("device", DEVICES)
def test_a_schedule_is_what_others_make_themselves(device, next_n):
    for lengths in ([700, 0, 256, 257, 3], [0, 0], [40000], [1] * 70):
        last = integers(lengths, device)
        lens = torch.stack([*[torch.zeros_like(last)] * (next_n - 1), last], 1)
        for slots in (1, 66, 132):
            want = schedule_of(lengths, next_n, slots)
            for block_kv in (4, 16, 32, 64):
                made = deep_gemm.get_paged_mqa_logits_metadata(lens, block_kv, slots)
                assert made.tolist() == want
            if next_n == 1:
                assert deep_gemm.get_paged_mqa_logits_metadata(last, 64, slots, indices=None).tolist() == want
    with pytest.raises(RuntimeError):
        deep_gemm.get_paged_mqa_logits_metadata(lens, 64, 132, indices=last)


PAGED = [
    (64, 4, 1, 16, 128, 900), (64, 16, 2, 32, 128, 900), (32, 64, 1, 64, 128, 8192), (256, 32, 4, 64, 128, 2000),
    (16, 64, 8, 8, 64, 1500),
]  # fmt: skip


@pytest.mark.parametrize("dtype", (F32, BF16))
@pytest.mark.parametrize(
    "device, shape",
    cases([(3, 4, 2, 32, 64, 70), (2, 16, 3, 16, 128, 300), (4, 32, 4, 64, 32, 90), (2, 64, 1, 32, 128, 130),
           (1, 64, 8, 8, 128, 200)], PAGED),
)  # fmt: skip
def test_logits_of_pages(device, shape, dtype):
    batch, page, next_n, heads, dim, average = shape
    q = randn(batch, next_n, heads, dim, device=device).to(FP8)
    w = randn(batch * next_n, heads, device=device, dtype=F32)
    last = integers([0 if b == 1 else int(average * (0.7 + 0.1 * (b % 7))) + 1 for b in range(batch)], device)
    drop = integers(range(next_n - 1, -1, -1), device)
    lens = (last[:, None] - drop[None]).clamp(min=0)
    pages_each = ceil(int(last.max()), page)
    order = torch.randperm(batch * pages_each, generator=torch.Generator().manual_seed(5)).to(device)
    table = torch.full((batch, pages_each + 3), -1, dtype=torch.int32, device=device)
    used = torch.arange(pages_each, device=device)[None] < (last[:, None] + page - 1) // page
    table[:, :pages_each] = torch.where(used, order.view(batch, pages_each), 10**9)  # beyond the pool: never followed
    k, sf = keys_of(batch * pages_each * page, dim, device)
    memory = torch.full((batch * pages_each, page * (dim + 4) + 16), 0xFF, dtype=torch.uint8, device=device)
    position = torch.arange(pages_each * page, device=device)[None].expand(batch, -1)
    unused = torch.empty(batch * pages_each, page, dtype=torch.bool, device=device)
    unused[order.view(batch, pages_each)] = (position >= last[:, None]).view(batch, pages_each, page)
    memory[:, : page * dim] = k.view(torch.uint8).view(-1, page * dim)
    memory[:, page * dim : page * (dim + 4)] = sf.view(torch.uint8).view(-1, page * 4)
    cache = memory.as_strided((memory.shape[0], page, 1, dim + 4), (memory.shape[1], dim + 4, dim + 4, 1))
    memory[:, : page * dim].view(-1, page, dim)[unused] = 0x7F  # unused slots hold NaN
    memory.view(torch.int32)[:, page * dim // 4 : page * (dim + 4) // 4][unused] = 0x7FC00000
    slots = (132, 66, 7)[batch % 3]
    schedule = deep_gemm.get_paged_mqa_logits_metadata(lens if next_n > 1 else last, page, slots)
    width = pages_each * page
    arguments = ((q, None), cache, w, lens, table, schedule, width)
    d = deep_gemm.fp8_fp4_paged_mqa_logits(*arguments, clean_logits=False, logits_dtype=dtype, histogram=None)
    assert d.shape == (batch * next_n, width)
    assert d.stride(0) == align(align(width, 256), 1024 // d.element_size())
    clean = deep_gemm.fp8_fp4_paged_mqa_logits(*arguments, True, dtype, indices=None)
    inside = torch.arange(width, device=device)[None] < lens.reshape(-1)[:, None]
    assert torch.equal(clean == -INF, ~inside)
    assert torch.equal(clean[inside], d[inside])
    for b in range(batch):
        of = order.view(batch, pages_each)[b]
        keys = (k.view(-1, page, dim)[of].view(-1, dim), sf.view(-1, page)[of].view(-1))
        rows = slice(b * next_n, (b + 1) * next_n)
        mask = ~inside[rows]
        exact = exact_logits(q[b], *keys, w[rows]).masked_fill(mask, 0)
        assert calc_diff(d[rows].masked_fill(mask, 0), exact) < MOST[dtype]
    if dtype == F32:
        old = deep_gemm.fp8_paged_mqa_logits(q, cache, w, lens, table, schedule, width, clean_logits=True)
        assert torch.equal(old, clean)
        if next_n == 1:
            of_vector = deep_gemm.fp8_paged_mqa_logits(q, cache, w, last, table, schedule, width, True)
            assert torch.equal(of_vector, clean)
    for name in ("indices", "histogram"):
        with pytest.raises(RuntimeError):
            deep_gemm.fp8_fp4_paged_mqa_logits(*arguments, **{name: last})
    for malformed in (schedule.long(), schedule[:, 0], schedule[:, :1], schedule.t()):
        with pytest.raises(RuntimeError, match=r"^schedule_meta: "):
            deep_gemm.fp8_fp4_paged_mqa_logits((q, None), cache, w, lens, table, malformed, width)
