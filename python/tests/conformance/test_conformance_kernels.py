"""DeepGEMM's interface as profilers see it: section 22.8 of its specification. Times of a call are looked up by a part
of a kernel's name, which one kernel of the call must have. Needs a Hopper GPU."""

import pytest

from finegemm import deep_gemm
from reference import BF16, F32, FP8, blocks_to_fp8, integers, randn, rows_to_fp8
from torch_support import needs_gpu, torch

pytestmark = needs_gpu
SEEN = 97  # characters of a name that the profiler's table shows


def calls():
    """(a part of the name, a call)."""
    device, m, n, k, g = "cuda", 256, 256, 512, 2
    x, w = randn(m, k, device=device), randn(n, k, device=device)
    a, b, rows = rows_to_fp8(x), blocks_to_fp8(w), rows_to_fp8(w)
    experts = torch.stack((w, w))
    eb = blocks_to_fp8(experts)
    d, f = torch.empty(m, n, dtype=BF16, device=device), torch.zeros(m, n, device=device)
    ids, ends, few = integers([0] * 128 + [1] * 128, device), integers([128, 256], device), integers([5, 9], device)
    each, out = tuple(t.view(g, 128, -1) for t in a), d.view(g, 128, n)
    yield "gemm_", lambda: deep_gemm.fp8_gemm_nt(a, b, d)
    yield "gemm_", lambda: deep_gemm.fp8_gemm_nt(a, rows, f, f, recipe=(1, 1, 128))
    yield "gemm_", lambda: deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, eb, d, ids)
    yield "gemm_", lambda: deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, eb, d, ends, use_psum_layout=True)
    yield "gemm_", lambda: deep_gemm.m_grouped_fp8_gemm_nt_masked(each, eb, out, few, 8)
    flat = [(q.reshape(-1), sf.t().contiguous().t()) for q, sf in (a, rows)]
    sums = torch.zeros(g, m, n, device=device)
    yield "gemm_", lambda: deep_gemm.k_grouped_fp8_gemm_nt_contiguous(*flat, sums, [128, 384], None, sums)
    gaps = torch.empty(m, n + 128, dtype=BF16, device=device)
    yield "gemm_", lambda: deep_gemm.fp8_gemm_nt_skip_head_mid(a, b, gaps, (64, 64, 64))
    heads, of_heads = (
        tuple(t.transpose(0, 1).contiguous() for t in each),
        torch.empty(128, g, n, dtype=BF16, device=device),
    )
    yield "gemm_", lambda: deep_gemm.fp8_einsum("bhr,hdr->bhd", heads, eb, of_heads)
    yield "bf16_gemm", lambda: deep_gemm.bf16_gemm_nt(x, w, d)
    yield "bf16_gemm", lambda: deep_gemm.bf16_gemm_tn(x, x, torch.empty(k, k, device=device))
    yield "bf16_gemm", lambda: deep_gemm.m_grouped_bf16_gemm_nt_contiguous(x, experts, d, ids)
    yield "bf16_gemm", lambda: deep_gemm.m_grouped_bf16_gemm_nt_masked(x.view(g, 128, k), experts, out, few, 8)
    xh = x.view(128, g, k)
    yield "gemm", lambda: deep_gemm.einsum("bhr,hdr->bhd", xh, experts, of_heads)
    y, square = randn(9, 128, 64, device=device), torch.zeros(128, 128, device=device)
    yield "bmn_bnk_mn_gemm_impl", lambda: deep_gemm.einsum("bmk,bnk->mn", y, y, square, square)
    fn, squares = randn(24, k, device=device, dtype=F32), torch.empty(m, device=device)
    norms = torch.empty(m, 24, device=device)
    yield "tf32_hc_prenorm_gemm", lambda: deep_gemm.tf32_hc_prenorm_gemm(x, fn, norms, squares)
    q, keys = randn(m, 32, 128, device=device).to(FP8), randn(512, 128, device=device).to(FP8)
    sf, weights = torch.ones(512, device=device), randn(m, 32, device=device, dtype=F32)
    start, end = integers([0] * m, device), integers(range(1, m + 1), device)
    yield "mqa_logits", lambda: deep_gemm.fp8_mqa_logits(q, (keys, sf), weights, start, end)
    pages = torch.zeros(8, 64, 1, 132, dtype=torch.uint8, device=device)
    table, lens = integers([list(range(8))] * 4, device), integers([500, 0, 64, 3], device)
    schedule = deep_gemm.get_paged_mqa_logits_metadata(lens, 64, 132)
    paged = (q[:4, None], pages, weights[:4], lens, table, schedule, 512)
    yield "paged_mqa_logits", lambda: deep_gemm.fp8_paged_mqa_logits(*paged)
    scales = torch.exp2(torch.arange(4096.0, device=device).view(64, 64) % 9)
    layout = deep_gemm.utils.layout
    yield "transpose", lambda: layout.get_mn_major_tma_aligned_tensor(scales)
    yield "pack_fp32_into_ue8m0", lambda: layout.get_mn_major_tma_aligned_packed_ue8m0_tensor(scales)


def test_one_kernel_of_a_call_has_the_name_that_is_looked_up():
    from torch.profiler import ProfilerActivity, profile

    wrong = []
    for part, call in calls():
        call()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as trace:
            call()
            torch.cuda.synchronize()
        on_gpu = [e.name for e in trace.events() if e.device_type == torch.autograd.DeviceType.CUDA]
        found = [name for name in on_gpu if part in name[:SEEN]]
        if len(found) != 1:
            wrong.append((part, on_gpu))
    assert not wrong


def test_the_package_times_kernels_by_their_names():
    a, b = rows_to_fp8(randn(128, 512, device="cuda")), blocks_to_fp8(randn(256, 512, device="cuda"))
    d = torch.empty(128, 256, dtype=BF16, device="cuda")
    seconds = deep_gemm.testing.bench_kineto(
        lambda: deep_gemm.fp8_gemm_nt(a, b, d), "gemm_", num_tests=5, suppress_kineto_output=True
    )
    assert 1e-6 < seconds < 1e-3
    with pytest.raises(AssertionError):
        deep_gemm.testing.bench_kineto(lambda: None, ["gemm_"], num_tests=1)
