"""finegemm.deep_gemm's logits of multi-query attention: values, storage, and what is refused. Skipped without torch."""

import pytest

from finegemm import deep_gemm
from finegemm.deep_gemm import envs
from torch_support import DEVICES, torch

S, H, D, KEYS = 5, 32, 64, 700


@pytest.fixture(autouse=True, params=DEVICES)
def device(request):
    """Where tensors are made that say nothing of it."""
    torch.set_default_device(request.param)
    yield request.param
    torch.set_default_device(None)


def problem(seed=3):
    torch.manual_seed(seed)
    q, k = (torch.randn(shape).to(torch.float8_e4m3fn) for shape in ((S, H, D), (KEYS, D)))
    starts = torch.tensor((0, 650, 300, 300, 10), dtype=torch.int32)
    ends = torch.tensor((700, 900, 300, 290, 400), dtype=torch.int32)
    return q, (k, torch.rand(KEYS)), torch.randn(S, H), starts, ends


def scores(q, kv, weights, *_):
    x = torch.einsum("shd,kd->shk", q.double(), kv[0].double()).relu()
    return torch.einsum("shk,sh->sk", x, weights.double()) * kv[1].double()


def seen(starts, ends):
    j = torch.arange(KEYS)
    return (starts[:, None] <= j) & (j < ends[:, None])


def test_clean_logits_are_minus_infinity_outside_of_windows():
    p = problem()
    for out in (
        deep_gemm.fp8_mqa_logits(*p),
        deep_gemm.fp8_fp4_mqa_logits((p[0], None), *p[1:], logits_dtype=torch.bfloat16),
    ):
        mask = seen(*p[3:])
        assert torch.equal(out == -torch.inf, ~mask)
        assert deep_gemm.testing.calc_diff(out[mask].double(), scores(*p)[mask]) < 1e-4


def test_logits_that_are_not_cleaned_are_the_same_in_windows():
    p = problem()
    mask = seen(*p[3:])
    out = deep_gemm.fp8_mqa_logits(*p, clean_logits=False)
    assert torch.equal(out[mask], deep_gemm.fp8_mqa_logits(*p)[mask])


def test_compressed_rows_begin_with_the_first_key():
    p = problem()
    whole = deep_gemm.fp8_mqa_logits(*p)
    out = deep_gemm.fp8_mqa_logits(*p, clean_logits=False, max_seqlen_k=700)
    assert out.shape == (S, 700)
    for i, (start, end) in enumerate(zip(p[3].tolist(), p[4].tolist(), strict=True)):
        count = max(min(end, KEYS) - start, 0)
        assert torch.equal(out[i, :count], whole[i, start : start + count])


@pytest.mark.parametrize("dtype, pitch", ((torch.float32, 1024), (torch.bfloat16, 1024)))
def test_rows_of_storage_are_whole_kilobytes(dtype, pitch):
    p = problem()
    out = deep_gemm.fp8_fp4_mqa_logits((p[0], None), *p[1:], logits_dtype=dtype)
    assert out.shape == (S, KEYS) and out.stride() == (pitch, 1)
    assert out.untyped_storage().nbytes() == 8 * pitch * dtype.itemsize, "rows for whole products of four queries"
    compressed = deep_gemm.fp8_fp4_mqa_logits((p[0], None), *p[1:], False, 300, dtype)
    assert compressed.stride(0) == 512


def test_without_keys_or_queries_logits_are_empty():
    q, (k, sf), weights, starts, ends = problem()
    assert deep_gemm.fp8_mqa_logits(q[:0], (k, sf), weights[:0], starts[:0], ends[:0]).shape == (0, KEYS)
    assert deep_gemm.fp8_mqa_logits(q, (k[:0], sf[:0]), weights, starts, ends).shape == (S, 0)


def pages_of(k, sf, page_size, order):
    """kv_cache with one page more than are used, and a gap behind each page."""
    page_bytes = page_size * (D + 4)
    storage = torch.full((len(order) + 1, page_bytes + 16), 255, dtype=torch.uint8)
    for p, page in enumerate(order):
        part = slice(p * page_size, (p + 1) * page_size)
        codes, scales = k[part].view(torch.uint8).flatten(), sf[part].view(torch.uint8)
        storage[page, : len(codes)] = codes
        storage[page, page_size * D : page_size * D + len(scales)] = scales
    return storage[:, :page_bytes].unflatten(1, (page_size, 1, D + 4))


@pytest.mark.parametrize("page_size", (4, 16, 32, 64))
@pytest.mark.parametrize("next_n", (1, 2, 4))
@pytest.mark.parametrize("own", (False, True))
def test_paged_logits_are_those_of_keys_in_rows(page_size, next_n, own):
    torch.manual_seed(page_size)
    batch = 3
    q = torch.randn(batch * next_n, H, D).to(torch.float8_e4m3fn)
    k, sf, weights = torch.randn(KEYS, D).to(torch.float8_e4m3fn), torch.rand(KEYS), torch.randn(batch * next_n, H)
    last = torch.tensor((0, 690, 257), dtype=torch.int32)
    each = (last[:, None] - next_n + 1 + torch.arange(next_n, dtype=torch.int32)).clamp(min=0).int()
    order = torch.randperm(-(-KEYS // page_size)).tolist()
    cache = pages_of(k, sf, page_size, order)
    table = torch.full((2 * batch, len(order) + 2), -1, dtype=torch.int32)
    table[:, : len(order)] = torch.tensor(order, dtype=torch.int32)
    lens = each if own else last
    meta = deep_gemm.get_paged_mqa_logits_metadata(lens, 64, 66)
    assert meta.shape == (67, 2) and meta.dtype == torch.int32
    arguments = (cache, weights, lens, table[::2], meta, 720)
    out = deep_gemm.fp8_paged_mqa_logits(q.view(batch, next_n, H, D), *arguments, clean_logits=True)
    assert out.shape == (batch * next_n, 720) and out.stride(0) == 768
    zeros = torch.zeros(batch * next_n, dtype=torch.int32)
    wanted = deep_gemm.fp8_mqa_logits(q, (k, sf), weights, zeros, each.flatten())
    assert torch.equal(out[:, :KEYS], wanted) and torch.all(out[:, KEYS:] == -torch.inf)
    raw = deep_gemm.fp8_fp4_paged_mqa_logits((q.view(batch, next_n, H, D), None), *arguments)
    mask = wanted > -torch.inf
    assert torch.equal(raw[:, :KEYS][mask], wanted[mask])


def test_metadata_is_split_as_clients_expect():
    lens = torch.tensor([[257], [0], [1]], dtype=torch.int32)
    assert deep_gemm.get_paged_mqa_logits_metadata(lens, 64, 2).tolist() == [[0, 0], [0, 1], [3, 0]]
    assert deep_gemm.get_paged_mqa_logits_metadata(torch.zeros(4, dtype=torch.int32), 32, 2).tolist() == [[4, 0]] * 3


def test_arguments_are_named_as_they_were_written():
    q, kv, weights, starts, ends = problem()
    cases = (
        ("cu_seq_len_k_start: has dtype int64", lambda: deep_gemm.fp8_mqa_logits(q, kv, weights, starts.long(), ends)),
        (
            "weights: has shape [5, 16], must be [5, 32]",
            lambda: deep_gemm.fp8_mqa_logits(q, kv, weights[:, :16], starts, ends),
        ),
        (
            "kv[1]: has shape [1, 699], must be [1, 700]",
            lambda: deep_gemm.fp8_mqa_logits(q, (kv[0], kv[1][:-1]), weights, starts, ends),
        ),
        ("clean_logits: is set", lambda: deep_gemm.fp8_mqa_logits(q, kv, weights, starts, ends, max_seqlen_k=9)),
        ("q[1]: is given, but FP4", lambda: deep_gemm.fp8_fp4_mqa_logits((q, starts), kv, weights, starts, ends)),
        (
            "logits_dtype: is torch.float16",
            lambda: deep_gemm.fp8_fp4_mqa_logits((q, None), kv, weights, starts, ends, logits_dtype=torch.float16),
        ),
        (
            "schedule_meta: is given",
            lambda: deep_gemm.fp8_fp4_mqa_logits((q, None), kv, weights, starts, ends, schedule_meta=starts),
        ),
        ("block_kv: is 8", lambda: deep_gemm.get_paged_mqa_logits_metadata(starts, 8, 4)),
        ("indices: is given", lambda: deep_gemm.get_paged_mqa_logits_metadata(starts, 64, 4, starts)),
    )
    for sentence, call in cases:
        with pytest.raises(RuntimeError) as error:
            call()
        assert str(error.value).startswith(sentence), error.value


def test_kernels_are_printed_on_demand(monkeypatch, capsys):
    monkeypatch.setattr(envs, "settings", lambda: envs.Settings(context=None, prints_configs=True))
    monkeypatch.setattr(envs, "_printed", set())
    for _ in range(2):
        deep_gemm.fp8_mqa_logits(*problem())
    q, (k, sf), weights, *_ = problem()
    cache, table = pages_of(k, sf, 64, list(range(11))), torch.arange(11, dtype=torch.int32).repeat(S, 1)
    lengths = torch.full((S,), 700, dtype=torch.int32)
    deep_gemm.fp8_paged_mqa_logits(q.view(S, 1, H, D), cache, weights, lengths, table, None, 704)
    assert capsys.readouterr().out == (
        "mqa_logits queries=5 keys=700 heads=32 dim=64 form=filled out_dtype=float32: FineGEMM_mqa_logits_h32_d64\n"
        "paged_mqa_logits queries=1 keys=704 heads=32 dim=64 requests=5 page_size=64 form=untouched out_dtype=float32: "
        "FineGEMM_paged_mqa_logits_h32_d64\n"
    )
