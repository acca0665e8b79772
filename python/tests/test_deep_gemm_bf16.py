"""finegemm.deep_gemm: products of bfloat16 matrices, one, in groups of rows and of K. Skipped without torch."""

import pytest

import finegemm
from finegemm import deep_gemm
from finegemm.deep_gemm import envs, knobs
from torch_support import DEVICES, torch

pytestmark = pytest.mark.parametrize("device", DEVICES)
M, N, K, G = 33, 24, 264, 3
TYPES = (torch.bfloat16, torch.float16, torch.float32)


def random(device, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(device, torch.bfloat16)


def integers(values, device):
    return torch.tensor(values, dtype=torch.int32, device=device)


def product(a, b):
    """Our own call in float32, of which all results are roundings."""
    return finegemm.gemm(a, None, b, None, out_dtype="float32", batch_invariant=True)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("added", (None, "c", "d"))
@pytest.mark.parametrize("alpha", (None, 0.375))
def test_a_product_is_that_of_our_own_call_rounded_once(device, dtype, added, alpha):
    a, b = random(device, M, K), random(device, N, K)
    d, c = (torch.randint(-8, 8, (M, N), device=device).to(dtype) for _ in range(2))
    c = {None: None, "c": c, "d": d}[added]
    before = torch.zeros((M, N), device=device) if c is None else c.float()
    want = product(a, b).mul(1 if alpha is None else alpha).add(before).to(dtype)
    assert deep_gemm.bf16_gemm_nt(a, b, d, c, alpha=alpha) is None
    # Sums that begin with c, or are of another kernel, may round the other way where they end halfway.
    torch.testing.assert_close(d.float(), want.float(), rtol=2 * torch.finfo(dtype).eps, atol=1e-4)
    if added == "c":
        assert torch.equal(c.float(), before)


@pytest.mark.parametrize("contiguous", (False, True))
def test_operands_with_k_first_are_memory_of_either_layout(device, contiguous):
    a, b = random(device, 40, K), random(device, N, K)
    want, d = torch.empty((2, 40, N), dtype=torch.bfloat16, device=device)
    deep_gemm.bf16_gemm_nt(a, b, want)
    at, bt = (x.t().contiguous() if contiguous else x.t() for x in (a, b))
    for name, x, y in (("nn", a, bt), ("tn", at, bt), ("tt", at, b)):
        getattr(deep_gemm, f"bf16_gemm_{name}")(x, y, d.zero_())
        assert torch.equal(d, want), name
    sums = torch.ones((40, N), device=device)
    deep_gemm.bf16_gemm_tn(at, bt, sums, sums)
    torch.testing.assert_close(sums, product(a, b) + 1)
    c = torch.randint(-8, 8, (40, N), device=device).bfloat16()
    deep_gemm.bf16_gemm_nn(a, bt, d, c, alpha=0.5)
    torch.testing.assert_close(d.float(), product(a, b) / 2 + c.float(), rtol=2.0**-7, atol=1e-4)


@pytest.mark.parametrize("of_ends", (False, True))
def test_groups_of_rows_one_behind_the_other(device, of_ends):
    a, b = random(device, 256, K), random(device, G, N, K)
    layout = integers([100, 128, 190] if of_ends else [0] * 100 + [-1] * 28 + [2] * 62 + [-1] * 66, device)
    d = torch.full((256, N), 7, dtype=torch.bfloat16, device=device)
    want = d.clone()
    deep_gemm.m_grouped_bf16_gemm_nt_contiguous(a, b, want, layout, use_psum_layout=of_ends)
    for rows, group in ((slice(0, 100), 0), (slice(128, 190), 2)):
        torch.testing.assert_close(want[rows].float(), product(a[rows], b[group]), rtol=2.0**-8, atol=1e-4)
    padding = [*range(100, 128), *range(190, 256)]
    assert (want[padding] == (7 if of_ends else 0)).all()
    for y in (b.mT, b.mT.contiguous()):
        deep_gemm.m_grouped_bf16_gemm_nn_contiguous(a, y, d.fill_(7), m_indices=layout, use_psum_layout=of_ends)
        assert torch.equal(d, want)


def test_groups_of_rows_with_a_matrix_each(device):
    a, b, used = random(device, G, 40, K), random(device, G, N, K), [40, 0, 13]
    d = torch.full((G, 40, N), 7, dtype=torch.bfloat16, device=device)
    deep_gemm.bf16_m_grouped_gemm_nt_masked(a, b, d, integers(used, device), 16)
    for g, m in enumerate(used):
        torch.testing.assert_close(d[g, :m].float(), product(a[g, :m], b[g]), rtol=2.0**-8, atol=1e-4)
        assert (d[g, m:] == 7).all()


@pytest.mark.parametrize("head_major", (False, True))
def test_each_head_has_its_product(device, head_major):
    a, b = random(device, 5, G, K), random(device, G, N, 2 * K)[..., :K]
    if head_major:
        a = a.transpose(0, 1).contiguous().transpose(0, 1)
    d = torch.zeros((5, G, N + 8), dtype=torch.bfloat16, device=device)[..., :N]
    deep_gemm.einsum("bhr,hdr->bhd", a, b, d, use_cublaslt=True)
    for head in range(G):
        want = product(a[:, head].contiguous(), b[head])
        torch.testing.assert_close(d[:, head].float(), want, rtol=2.0**-8, atol=1e-4)
    deep_gemm.einsum("bhr,hdr->bhd", a[:0], b, d[:0])
    other = torch.zeros_like(d)
    deep_gemm.einsum("bhd,hdr->bhr", a, b.transpose(1, 2).contiguous(), other)
    assert torch.equal(d, other), "the same sums"
    with pytest.raises(RuntimeError, match=r"^expr: is 'bhr,hdr->hbd', must be one of .*'; multiply|^expr: is .*; mul"):
        deep_gemm.einsum("bhr,hdr->hbd", a, b, d)


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float32))
def test_products_are_summed_or_added_to_d(device, dtype):
    a, b = random(device, 5, M, K), random(device, 5, N, K)
    want = product(a.transpose(0, 1).reshape(M, 5 * K), b.transpose(0, 1).reshape(N, 5 * K))
    d = torch.full((M, N), 2, dtype=dtype, device=device)
    deep_gemm.einsum("bmk,bnk->mn", a, b, d)
    torch.testing.assert_close(d.float(), want, rtol=torch.finfo(dtype).eps, atol=1e-3)
    if dtype == torch.float32:
        deep_gemm.einsum("bmk,bnk->mn", a, b, d, c=d)
        torch.testing.assert_close(d, 2 * want, rtol=1e-6, atol=1e-3)
        with pytest.raises(RuntimeError, match=r"^c: is not d, must be d itself"):
            deep_gemm.einsum("bmk,bnk->mn", a, b, d, c=d.clone())
    else:
        with pytest.raises(RuntimeError, match=r"^c: is set, but d has dtype bf16, must be f32"):
            deep_gemm.einsum("bmk,bnk->mn", a, b, d, c=d)
    deep_gemm.einsum("bmk,bnk->mn", a[..., :0], b[..., :0], d)
    assert not d.any()


@pytest.mark.parametrize("added", (None, "c", "d"))
def test_groups_of_k_are_added_to_what_is_given(device, added):
    sizes = [128, 0, 256]
    a, b = random(device, M, sum(sizes)), random(device, N, sum(sizes))
    d, c = (torch.randint(-8, 8, (G, M, N), device=device).float() for _ in range(2))
    c = {None: None, "c": c, "d": d}[added]
    want = torch.zeros_like(d) if c is None else c.clone()
    for g, k in ((0, slice(0, 128)), (2, slice(128, 384))):
        want[g] += product(a[:, k], b[:, k])
    at = torch.nn.functional.pad(a.t(), (0, 7))[:, :M]  # rows at multiples of 16 bytes
    before = d.clone()
    for x, y in ((a.t(), b.t()), (at, b.t().contiguous())):
        d.copy_(before)
        deep_gemm.k_grouped_bf16_gemm_tn_contiguous(x, y, d, sizes, integers(sizes, device), c)
        torch.testing.assert_close(d, want, rtol=1e-6, atol=1e-4)
    with pytest.raises(RuntimeError, match=r"^b: has strides .* in groups of K both must have"):
        deep_gemm.k_grouped_bf16_gemm_tn_contiguous(at, b.t(), d, sizes)
    other = torch.zeros((2, G, M, N), dtype=torch.bfloat16, device=device)
    with pytest.raises(RuntimeError, match=r"^c: is given, but d has dtype torch\.bfloat16, must be float32"):
        deep_gemm.k_grouped_bf16_gemm_tn_contiguous(a.t(), b.t(), other[0], sizes, c=other[1])


def test_operands_of_another_type_are_named(device):
    a, b = random(device, M, K), random(device, N, K)
    d = torch.empty((M, N), dtype=torch.bfloat16, device=device)
    rows = integers([0] * M, device)
    for call in (
        lambda a: deep_gemm.bf16_gemm_nt(a, b, d),
        lambda a: deep_gemm.m_grouped_bf16_gemm_nt_contiguous(a, b[None], d, rows),
        lambda a: deep_gemm.m_grouped_bf16_gemm_nt_masked(a[None], b[None], d[None], rows[:1], 1),
        lambda a: deep_gemm.k_grouped_bf16_gemm_tn_contiguous(a.t(), b.t(), d[None], [K]),
    ):
        with pytest.raises(
            RuntimeError, match=r"^a: is torch.float32, must be torch.bfloat16; convert it, or call the"
        ):
            call(a.float())


def test_kernels_are_printed_if_asked(device, monkeypatch, capsys):
    monkeypatch.setattr(knobs, "_knobs", knobs.Knobs(num_sms=64))
    monkeypatch.setattr(envs, "settings", lambda: envs.Settings(context=None, prints_configs=True))
    monkeypatch.setattr(envs, "_printed", set())
    a, b = random(device, 128, 128), random(device, N, 128)
    d = torch.empty((128, N), dtype=torch.bfloat16, device=device)
    deep_gemm.bf16_gemm_nt(a, b, d)
    deep_gemm.m_grouped_bf16_gemm_nt_contiguous(a, b[None], d, integers([0] * 128, device))
    deep_gemm.k_grouped_bf16_gemm_tn_contiguous(a.t(), b.t(), d.float()[None], [128])
    for line, start in zip(
        capsys.readouterr().out.splitlines(),
        (
            "bf16_gemm m=128 n=24 k=128 dtype=bfloat16 num_sms=64: m",
            "m_grouped_bf16_gemm m=128 n=24 k=128 groups=1 alignment=128 dtype=bfloat16 num_sms=64: m",
            "k_grouped_bf16_gemm m=128 n=24 k=128 k_groups=1 dtype=bfloat16 num_sms=64: m",
        ),
        strict=True,
    ):
        assert line.startswith(start)
