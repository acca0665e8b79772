"""DeepGEMM's interface, groups of K, equations, the product before a norm, cuBLASLt: sections 8, 11, 12 and 14."""

import pytest

from finegemm import deep_gemm
from reference import (
    BF16,
    F32,
    FP8,
    MOST_OF_BF16,
    assert_close,
    blocks_to_fp8,
    calc_diff,
    cases,
    integers,
    randn,
    rows_to_fp8,
    value,
)
from torch_support import DEVICES, torch


def refuses(call, *arguments, kind=RuntimeError, **options):
    with pytest.raises(kind):
        call(*arguments, **options)


def groups_of_k(device, sizes, m, n):
    """a, b of each group one behind the other, and the exact products."""
    total = sum(sizes)
    x, y = randn(m, total, device=device), randn(n, total, device=device, seed=1)
    (qa, sfa), (qb, sfb) = rows_to_fp8(x), rows_to_fp8(y)
    va, vb = value(qa, sfa), value(qb, sfb)
    flat, products, begin = ([], []), [], 0
    for size in sizes:
        of = slice(begin, begin + size)
        for out, q in zip(flat, (qa, qb), strict=True):
            out.append(q[:, of].reshape(-1).view(torch.uint8))
        products.append((va[:, of] @ vb[:, of].t(), x[:, of].double() @ y[:, of].double().t()))
        begin += size
    a, b = ((torch.cat(q).view(FP8), sf.t().contiguous().t()) for q, sf in zip(flat, (sfa, sfb), strict=True))
    return a, b, (x, y), torch.stack([p for p, _ in products]), torch.stack([p for _, p in products])


K_GROUPS = [(4, 4096, 7168, 2048), (8, 7168, 2048, 1024)]


@pytest.mark.parametrize("device, shape", cases([(3, 40, 136, 256)], K_GROUPS))
def test_groups_of_k_are_added_in_float32(device, shape):
    groups, m, n, k = shape
    sizes = [0 if g == 1 else 128 * max(1, k // 128 + (g * 5) % 4 - 1) for g in range(groups)]
    a, b, (x, y), exact, of_x = groups_of_k(device, sizes, m, n)
    layout = integers(sizes, device)
    start = randn(groups, m, n, device=device, dtype=F32)
    kept = start.clone()
    for c in (None, start, "d"):
        d = kept.clone() if c == "d" else torch.full_like(start, float("nan"))
        added = 0 if c is None else kept.double()
        assert deep_gemm.k_grouped_fp8_gemm_nt_contiguous(a, b, d, sizes, layout, d if c == "d" else c) is None
        assert_close(d, exact + added, unquantised=of_x + added)
        d = kept.clone() if c == "d" else torch.full_like(start, float("nan"))
        deep_gemm.k_grouped_bf16_gemm_tn_contiguous(
            x.t().contiguous(), y.t().contiguous(), d, sizes, layout, d if c == "d" else c
        )
        assert_close(d, of_x + added, MOST_OF_BF16)
        assert torch.equal(start, kept)


@pytest.mark.parametrize("device", DEVICES)
def test_groups_of_k_by_older_names_and_with_rows_of_scales(device):
    sizes = [128, 384]
    a, b, _, exact, _ = groups_of_k(device, sizes, 24, 40)
    d = torch.zeros(2, 24, 40, device=device)
    call = deep_gemm.k_grouped_fp8_gemm_nt_contiguous
    rows = [(q.view(-1, 8), sf.contiguous()) for q, sf in (a, b)]
    call(*rows, d, ks=tuple(sizes), ks_tensor=integers(sizes, device), c=d, recipe=[1, 1, 128], use_psum_layout=False)
    assert_close(d, exact)
    nothing = [(q[:0], sf[:, :0]) for q, sf in (a, b)]
    call(*nothing, d.fill_(7), [0, 0], None, d)
    assert bool((d == 7).all())
    for arguments, options in (
        (([100, 412], None, d), {}),
        ((sizes, None, d), {"recipe": (1, 128, 128)}),
        ((sizes, None, d), {"use_psum_layout": True}),
        ((sizes, None, d.bfloat16()), {}),
        ((sizes[:1], None, d), {}),
        ((None, integers(sizes, device), d), {}),
    ):
        refuses(call, a, b, d, *arguments, **options)
    refuses(call, a, b, d, 128, kind=TypeError)
    x, y = randn(512, 24, device=device), randn(512, 40, device=device)
    for arguments, options in (
        (([100, 412], None, d), {}),
        ((sizes, None, d), {"use_psum_layout": True}),
        ((None, integers(sizes, device), d), {}),
    ):
        refuses(deep_gemm.k_grouped_bf16_gemm_tn_contiguous, x, y, d, *arguments, **options)


BATCHES = [(b, h, r, d) for h, r, d in ((128, 512, 128), (8, 4096, 1024)) for b in (4, 32, 128, 4096, 8192)]


@pytest.mark.parametrize("device, shape", cases([(1, 2, 64, 136), (5, 3, 136, 64)], BATCHES))
def test_a_product_for_each_head(device, shape):
    b, h, r, d = shape
    x, w = randn(b, h, r, device=device), randn(h, d, r + 128, device=device, seed=1)[..., :r]
    exact = torch.einsum("bhr,hdr->bhd", x.double(), w.double())
    out = torch.full((b, h, d + 8), 7, dtype=BF16, device=device)
    deep_gemm.einsum("bhr,hdr->bhd", x, w, out[..., :d], use_cublaslt=True)
    assert_close(out[..., :d], exact, MOST_OF_BF16)
    assert bool((out[..., d:] == 7).all())
    y, back = randn(b, h, d, device=device), torch.empty(b, h, r, dtype=BF16, device=device)
    deep_gemm.einsum("bhd,hdr->bhr", y, w, back)
    assert_close(back, torch.einsum("bhd,hdr->bhr", y.double(), w.double()), MOST_OF_BF16)
    if device == "cuda":
        assert calc_diff(out[..., :d], torch.einsum("bhr,hdr->bhd", x, w)) < 1e-10
        assert calc_diff(back, torch.einsum("bhd,hdr->bhr", y, w)) < 1e-10


@pytest.mark.parametrize("added", (False, True))
@pytest.mark.parametrize("device, shape", cases([(2, 3, 16, 24), (9, 2, 64, 40)], [(4096, 8, 512, 1024)]))
def test_gradients_of_the_weights_of_heads(device, shape, added):
    b, h, d, r = shape
    x, y = randn(b, h, d, device=device), randn(b, h, r, device=device, seed=1)
    exact = torch.einsum("bhd,bhr->hdr", x.double(), y.double())
    out = randn(h, d, r, device=device, dtype=F32)
    c, start = (out, out.double()) if added else (None, 0)
    deep_gemm.einsum("bhd,bhr->hdr", x, y, out, c)
    assert_close(out, exact + start, MOST_OF_BF16)
    other = randn(h, d, r, device=device, dtype=F32)
    deep_gemm.einsum("bhd,bhr->hdr", x, y, out, other)
    assert_close(out, exact + other.double(), MOST_OF_BF16)


SUMS = [(s, *mnk) for s in (129, 4096, 8192) for mnk in ((128, 384, 128), (256, 256, 256), (384, 128, 384))]


@pytest.mark.parametrize("device, shape", cases([(3, 64, 128, 64)], SUMS))
def test_sums_of_products(device, shape):
    s, m, n, k = shape
    a, b = randn(s, m, k, device=device), randn(s, n, k, device=device, seed=1)
    exact = torch.einsum("smk,snk->mn", a.double(), b.double())
    d = randn(m, n, device=device, dtype=F32)
    start = d.double()
    most = 1e-9 * max(1, s // 4096) ** 2  # what each sum cuts off adds up, and a difference is its square
    deep_gemm.einsum("bmk,bnk->mn", a, b, d, d)
    assert calc_diff(d, exact + start) < most
    deep_gemm.einsum("bmk,bnk->mn", a, b, d)
    assert calc_diff(d, exact) < most
    d = torch.empty(m, n, dtype=BF16, device=device)
    deep_gemm.einsum("bmk,bnk->mn", a, b, d)
    assert_close(d, exact, MOST_OF_BF16)


@pytest.mark.parametrize("device, shape", cases([(5, 3, 272, 136)], [(b, 8, 4096, 1024) for b in (4, 128, 4096)]))
def test_a_product_for_each_head_in_fp8(device, shape):
    b, h, r, d = shape
    x, w = randn(b, h, r, device=device), randn(h, d, r, device=device, seed=1)
    (qa, sfa), pair = rows_to_fp8(x, power_of_two=True), blocks_to_fp8(w, power_of_two=True)
    exact = torch.einsum("bhr,hdr->bhd", value(qa, sfa), value(*pair))
    for order in (lambda t: t, lambda t: t.transpose(0, 1).contiguous().transpose(0, 1)):
        out = torch.full((b, h, d + 8), 7, dtype=BF16, device=device)[..., :d]
        deep_gemm.fp8_einsum("bhr,hdr->bhd", (order(qa), order(sfa)), pair, out, recipe=[1, 128, 128])
        assert_close(out, exact, unquantised=torch.einsum("bhr,hdr->bhd", x.double(), w.double()))
    for call, options in (
        ("bhd,hdr->bhr", {}),
        ("bhr,hdr->bhd", {"recipe": (1, 1, 128)}),
        ("bhr,hdr->bhd", {"c": out}),
        ("bhr, hdr -> bhd", {}),
    ):
        refuses(deep_gemm.fp8_einsum, call, (qa, sfa), pair, out, **options)
    refuses(deep_gemm.einsum, "bmk,bnk->nm", x, w, out)
    refuses(deep_gemm.fp8_einsum, "bhr,hdr->bhd", (qa, sfa), pair, (out, sfa))
    deep_gemm.fp8_einsum("bhr,hdr->bhd", (qa[:0], sfa[:0]), pair, out[:0])


@pytest.mark.parametrize("device", DEVICES)
def test_what_equations_add_to_and_nothing_to_sum_up(device):
    x, w = randn(3, 2, 64, device=device), randn(2, 40, 64, device=device)
    out, d = torch.full((3, 2, 40), 7, dtype=BF16, device=device), torch.full((2, 64, 64), 7.0, device=device)
    refuses(deep_gemm.einsum, "bhr,hdr->bhd", x, w, out, out)
    refuses(deep_gemm.einsum, "bmk,bnk->mn", w, w, d[0, :40, :40], d[1, :40, :40])
    assert bool((out == 7).all() and (d == 7).all())
    deep_gemm.einsum("bhr,hdr->bhd", x[:0], w, out[:0])
    deep_gemm.einsum("bhd,bhr->hdr", x[:, :0], x[:, :0], d[:0])
    deep_gemm.einsum("bhd,bhr->hdr", x[:0], x[:0], d, d)
    assert bool((d == 7).all())
    deep_gemm.einsum("bhd,bhr->hdr", x[:0], x[:0], d)
    assert bool((d == 0).all())


NORMS = [(m, 24, k, s) for m in (13, 137, 4096, 8192) for k in (28672, 7680, 7168) for s in (None, 16)]


@pytest.mark.parametrize("device, shape", cases([(5, 24, 192, None), (9, 8, 128, 3), (2, 32, 64, 5)], NORMS))
def test_products_before_a_norm(device, shape):
    m, n, k, splits = shape
    a, b = randn(m, k, device=device), randn(n, k, device=device, dtype=F32, seed=1)
    front = () if splits is None else (splits,)
    d = torch.full((*front, m, n), float("nan"), device=device)
    squares = torch.full((*front, m), float("nan"), device=device)
    deep_gemm.tf32_hc_prenorm_gemm(a, b, d, squares, splits)
    if splits is not None:
        d, squares = d.sum(0), squares.sum(0)
    bits = b.view(torch.int32)
    as_tf32 = ((bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFF).view(F32)
    assert calc_diff(d, a.double() @ as_tf32.double().t()) < 1e-8
    assert calc_diff(squares, a.double().square().sum(1)) < 1e-8
    deep_gemm.tf32_hc_prenorm_gemm(a[:0], b, d[:0], squares[:0], num_splits=None)
    for x, y, out, of_rows in (
        (a, b.bfloat16(), d, squares),
        (a.float(), b, d, squares),
        (a, b, d.bfloat16(), squares),
        (a, b, d, squares[1:]),
        (a, b[: n - 4], d[:, : n - 4], squares),
        (a[:, :-32], b[:, :-32], d, squares),
        (a, torch.cat([b] * 5)[:40], torch.empty(m, 40, device=device), squares),
    ):
        refuses(deep_gemm.tf32_hc_prenorm_gemm, x, y, out, of_rows)


@pytest.mark.parametrize("dtype", (BF16, F32))
@pytest.mark.parametrize("device, shape", cases([(1, 24, 40), (3, 16, 8)], [(4, 1024, 512)]))
def test_products_of_symmetric_matrices(device, shape, dtype):
    batch, m, k = shape
    a, x = randn(batch, m, k, device=device, dtype=dtype), randn(batch, m, m, device=device, dtype=dtype, seed=1)
    s = x + x.mT
    d, e = torch.empty(batch, m, m, dtype=dtype, device=device), torch.empty(batch, m, k, dtype=dtype, device=device)
    deep_gemm.batched_syrk(a, d)
    deep_gemm.batched_symm(s, a, e)
    assert_close(d, a.double() @ a.double().mT, {BF16: 5e-6, F32: 1e-6})
    assert_close(e, s.double() @ a.double(), {BF16: 5e-6, F32: 1e-6})
    refuses(deep_gemm.batched_syrk, a, d[:, :-1])
    deep_gemm.batched_syrk(a[:0], d[:0])
    deep_gemm.batched_syrk(a[..., :0], d)
    assert bool((d == 0).all())


@pytest.mark.parametrize("device, shape", cases([], [(128, 576, 512), (16, 144, 256), (4096, 7168, 2048)]))
def test_products_by_cublaslt(device, shape):
    m, n, k = shape
    x, w = randn(m, k, device=device), randn(n, k, device=device, seed=1)
    exact = x.double() @ w.double().t()
    for form in ("nt", "nn", "tn", "tt"):
        a, b = x.t().contiguous() if form[0] == "t" else x, w.t().contiguous() if form[1] == "n" else w
        for dtype, most in ((BF16, 5e-6), (F32, 6e-7)):
            d = randn(m, n, device=device, dtype=dtype)
            want = exact + d.double()
            getattr(deep_gemm, f"cublaslt_gemm_{form}")(a, b, d, d)
            assert calc_diff(d, want) < most
    codes = x.to(FP8), w.to(FP8)
    d = torch.empty(m, n, device=device, dtype=BF16)
    deep_gemm.cublaslt_gemm_nt(*codes, d)
    assert calc_diff(d, codes[0].double() @ codes[1].double().t()) < 5e-6
