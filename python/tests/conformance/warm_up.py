"""What programs run before they serve: each product for many M, of memory that holds anything. Its own process, as
caches are looked at. Usage: warm_up.py cpu|cuda"""

import sys

import torch

from finegemm import deep_gemm

FP8, BF16 = torch.float8_e4m3fn, torch.bfloat16


def many_m(most):
    """Every one of few rows, then ever fewer: both programs' lists have such steps."""
    m, step = 1, 1
    while m <= most:
        yield m
        step = max(1, m // 32)
        m += step
    yield most


def main(device: str) -> None:
    on_gpu = device == "cuda"
    experts, most = (8, 16384) if on_gpu else (2, 24)
    shapes = [(2112, 7168), (7168, 2048), (4096, 7168)] if on_gpu else [(128, 256), (256, 128)]
    for n, k in shapes:
        w = torch.empty(experts, n, k, device=device, dtype=FP8)
        sfw = torch.empty(experts, n // 128 + (n % 128 > 0), k // 128, device=device)
        x = torch.empty(most, k, device=device, dtype=FP8)
        sfx = torch.empty(most, k // 128, device=device)
        out = torch.empty(most, n, device=device, dtype=BF16)
        ids = torch.randint(experts, (most,), device=device, dtype=torch.int32).sort().values
        no_rows = torch.zeros(experts, device=device, dtype=torch.int32)
        for m in many_m(most):
            deep_gemm.fp8_gemm_nt((x[:m], sfx[:m]), (w[0], sfw[0]), out[:m], disable_ue8m0_cast=True)
            deep_gemm.m_grouped_fp8_gemm_nt_contiguous((x[:m], sfx[:m]), (w, sfw), out[:m], ids[:m])
            rows = m // experts
            if rows:
                a, sfa, d = (t[: rows * experts].view(experts, rows, -1) for t in (x, sfx, out))
                deep_gemm.fp8_m_grouped_gemm_nt_masked((a, sfa), (w, sfw), d, no_rows, rows)
        of_bf16(device, n, k, experts, most)
        heads = x[: most // 8 * 8].view(-1, 8, k)[:, :experts], sfx[: most // 8 * 8].view(-1, 8, k // 128)[:, :experts]
        of_heads = torch.empty(heads[0].shape[0], experts, n, device=device, dtype=BF16)
        deep_gemm.fp8_einsum("bhr,hdr->bhd", heads, (w, sfw), of_heads, recipe=[1, 128, 128])
    scores(device, *((64, 128, 4096, 16384) if on_gpu else (32, 64, 100, 9)))
    if on_gpu:
        torch.cuda.synchronize()


def of_bf16(device, n, k, experts, most):
    """Routers, experts that are not quantised, and the product before a norm."""
    w, x = (torch.empty(*rows, k, device=device, dtype=BF16) for rows in ((experts, n), (most,)))
    out, f32 = torch.empty(most, n, device=device, dtype=BF16), torch.empty(most, n, device=device)
    ids = torch.randint(experts, (most,), device=device, dtype=torch.int32).sort().values
    no_rows = torch.zeros(experts, device=device, dtype=torch.int32)
    fn, norms = torch.empty(24, k, device=device), torch.empty(16 * most * 24, device=device)
    squares = torch.empty(16 * most, device=device)
    for m in many_m(most):
        deep_gemm.bf16_gemm_nt(x[:m], w[0], f32[:m])
        deep_gemm.m_grouped_bf16_gemm_nt_contiguous(x[:m], w, out[:m], ids[:m])
        sums = norms[: 16 * m * 24].view(16, m, 24), squares[: 16 * m].view(16, m)
        deep_gemm.tf32_hc_prenorm_gemm(x[:m], fn, *sums, 16)
        rows = m // experts
        if rows:
            a, d = (t[: rows * experts].view(experts, rows, -1) for t in (x, out))
            deep_gemm.m_grouped_bf16_gemm_nt_masked(a, w, d, no_rows, rows)


def scores(device, heads, dim, keys, most):
    """Of an indexer, for as many queries; in pages for as many requests, of which none has a key yet."""
    q, k = (torch.empty(*rows, dim, device=device, dtype=FP8) for rows in ((most, heads), (keys,)))
    weights, sf = torch.empty(most, heads, device=device), torch.empty(keys, device=device)
    starts, ends = torch.zeros(most, device=device, dtype=torch.int32), torch.full((most,), keys, device=device).int()
    pages = torch.empty(keys // 64 + 1, 64, 1, dim + 4, device=device, dtype=torch.uint8)
    table = torch.zeros(most, len(pages), device=device, dtype=torch.int32)
    for m in many_m(most):
        windows = starts[:m], ends[:m]
        deep_gemm.fp8_mqa_logits(q[:m], (k, sf), weights[:m], *windows, clean_logits=False)
        lengths = starts[:m, None]
        schedule = deep_gemm.get_paged_mqa_logits_metadata(lengths, 64, 132)
        deep_gemm.fp8_paged_mqa_logits(q[:m, None], pages, weights[:m], lengths, table[:m], schedule, keys)


if __name__ == "__main__":
    main(sys.argv[1])
