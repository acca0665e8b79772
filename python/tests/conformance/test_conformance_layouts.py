"""DeepGEMM's interface, layouts of scales, Triton's names and casts: sections 15, 17 and 18 of its specification."""

import pytest

from finegemm import deep_gemm
from reference import (
    BF16,
    BLOCK,
    F32,
    FP8,
    INT,
    MOST_OF_BF16,
    align,
    assert_close,
    cases,
    ceil,
    integers,
    randn,
    value,
)
from torch_support import DEVICES, torch

layout = deep_gemm.utils.layout


def powers(*shape, device, seed=0):
    """Powers of two, as scales that are packed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.exp2(torch.randint(-20, 20, shape, generator=generator).float()).to(device)


def packed(sf):
    """Four exponents to a word, the lowest byte first; missing ones are 0."""
    exponents = torch.nn.functional.pad(sf.view(INT) >> 23, (0, -sf.shape[-1] % 4)).long()
    words = exponents.view(*sf.shape[:-1], -1, 4) << torch.tensor([0, 8, 16, 24], device=sf.device)
    return words.sum(-1).to(INT)


def check_form(made, want):
    """The values, and MN-major strides of which columns and groups begin at multiples of 16 bytes."""
    rows, columns = want.shape[-2:]
    pitch = align(rows, 4)
    assert made.dtype == want.dtype
    assert made.shape == want.shape
    assert made.stride()[-2:] == (1, pitch)
    assert want.dim() == 2 or made.stride(0) == pitch * columns
    assert torch.equal(made, want)


FORMS = [(g, mn, k) for g in (1, 4) for mn in (4096, 4097) for k in (1, 56, 57)]


@pytest.mark.parametrize("device, shape", cases([(1, 8, 3), (3, 13, 5), (2, 4, 1)], FORMS))
def test_scales_are_moved_and_packed(device, shape):
    groups, mn, k = shape
    sf = powers(*shape, device=device)
    for x in (sf, sf[0]):
        for of in (x, x.mT.contiguous().mT, torch.cat((x, x), -1)[..., :k], x.repeat_interleave(2, -2)[..., ::2, :]):
            form = layout.get_mn_major_tma_aligned_tensor(of)
            check_form(form, x)
            again = layout.get_mn_major_tma_aligned_tensor(form)
            assert again.data_ptr() == form.data_ptr()
            check_form(layout.get_mn_major_tma_aligned_packed_ue8m0_tensor(of), packed(x))
    blocks = powers(groups, 5, 3, device=device)
    transform = deep_gemm.transform_sf_into_required_layout
    check_form(transform(sf, mn, k * BLOCK, (1, 128, 128), num_groups=groups, is_sfa=True), sf)
    check_form(transform(sf[0], mn, k * BLOCK, (1, 128)), sf[0])
    assert transform(blocks, 576, 384, (1, 128, 128), groups, False).data_ptr() == blocks.data_ptr()
    for of, arguments in ((sf, (mn, k * BLOCK, (1, 32), groups)), (sf.to(INT), (mn, k * BLOCK, (1, 128), groups)),
                          (sf, (mn, k * BLOCK, (1, 128, 128), groups)),
                          (sf, (mn, k * BLOCK, (1, 128), groups, True))):  # fmt: skip
        with pytest.raises(RuntimeError):
            transform(of, *arguments)


@pytest.mark.parametrize("device", DEVICES)
def test_scales_of_ends_are_packed_but_for_gaps(device):
    sf = powers(400, 5, device=device)
    want = packed(sf)
    inside = torch.zeros(400, dtype=torch.bool, device=device)
    inside[0:100] = inside[128:140] = inside[256:300] = True
    sf[~inside] = float("nan")
    made = layout.get_mn_major_tma_aligned_packed_ue8m0_tensor(sf, integers([100, 140, 300], device))
    check_form(made, want.masked_fill(~inside[:, None], 0))
    for wrong in (sf[None], sf.t().contiguous().t()):
        with pytest.raises(RuntimeError):
            layout.get_mn_major_tma_aligned_packed_ue8m0_tensor(wrong, integers([100, 140, 300], device))


@pytest.mark.parametrize(
    "device, shape", cases([(24, (128, 0, 640, 256))], [(4096, (2048,) * 16), (7168, (256,) * 128)])
)
def test_scales_of_groups_of_k_are_packed_from_a_new_row_each(device, shape):
    mn, ks = shape
    sf = powers(sum(ks) // BLOCK, mn, device=device)
    rows, begin = [], 0
    for k in ks:
        rows.append(packed(sf[begin : begin + k // BLOCK].t()).t())
        begin += k // BLOCK
    call = layout.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor
    for more in ((), (128,)):
        made = call(sf, integers(ks, device), list(ks), 128, *more)
        assert made.is_contiguous()
        assert torch.equal(made, torch.cat(rows))
    ends = [sum(ks[: g + 1]) for g in range(len(ks))]  # multiples of the alignment, where the next one begins
    compact = call(sf, integers(ends, device), list(ks), 128, 128, True)
    assert torch.equal(compact, torch.cat(rows))
    most = call(sf, integers(ends, device), None, 128, 128, use_psum_layout=True)
    assert most.shape == ((len(sf) + 3 * len(ks)) // 4, mn)
    assert torch.equal(most[: len(compact)], compact)
    assert call(sf[:0], integers([0], device), [0], 128, 128).shape == (0, mn)
    for wrong, of, counts in (
        (sf[:, :-1].contiguous(), integers(ks, device), list(ks)),
        (sf, integers(ks, device), [*ks, 128]),
        (sf, integers([128] * 129, device), [128] * 129),
        (sf, integers(ks, device), None),
    ):
        with pytest.raises(RuntimeError):
            call(wrong, of, counts, 128, 128)
    assert layout.get_tma_aligned_size(577, 4) == 580
    with pytest.raises(RuntimeError):
        layout.get_tma_aligned_size(577, 3)


@pytest.mark.parametrize("device", DEVICES)
def test_casts_follow_their_formulas(device):
    x = randn(70, 300, device=device, dtype=F32)
    x[3] = 0
    for ue8m0 in (False, True):
        q, sf = deep_gemm.per_token_cast_to_fp8(x, ue8m0)
        assert sf.shape == (70, 3)
        pad = torch.nn.functional.pad(x, (0, 84)).view(70, 3, 128)
        want = pad.abs().amax(-1).clamp(1e-4) / 448.0
        want = torch.exp2(torch.ceil(torch.log2(want))) if ue8m0 else want
        assert torch.equal(sf, want)
        assert torch.equal(q.float(), (pad * (1 / want)[..., None]).to(FP8).float().view(70, -1)[:, :300])
        assert torch.equal(deep_gemm.cast_back_from_fp8(q, sf).double(), value(q, sf).float().double())
        blocks, of_blocks = deep_gemm.per_block_cast_to_fp8(x, ue8m0)
        assert of_blocks.shape == (1, 3)
        assert float((value(blocks, of_blocks) - x).abs().max()) <= float(x.abs().max()) * 2**-4
    assert torch.equal(deep_gemm.unpack_ue8m0_from_int(deep_gemm.pack_ue8m0_to_int(powers(3, 8, device=device))),
                       powers(3, 8, device=device))  # fmt: skip
    assert (deep_gemm.ceil_div(257, 128), deep_gemm.align(257, 128)) == (ceil(257, 128), 384)


@pytest.mark.parametrize("device, shape", cases([(3, 64, 24, 96)], [(4, 4096, 2048, 1024)]))
def test_names_of_triton_kernels_gather_rows(device, shape):
    groups, tokens, n, k = shape
    x, w = randn(tokens, k, device=device), randn(groups, n, k, device=device, seed=1)
    m = groups * 128
    group = integers([i // 128 if i % 128 < 100 else -1 for i in range(m)], device)
    row = integers([i * 7 % tokens if i % 128 < 90 else -1 for i in range(m)], device)
    picked = x.double()[row.long().clamp(min=0)].masked_fill((row < 0)[:, None], 0)
    exact = torch.einsum("mk,mnk->mn", picked, w.double()[group.long().clamp(min=0)])
    exact = exact.masked_fill((group < 0)[:, None], 0)
    d = torch.empty(m, n, dtype=BF16, device=device)
    legacy = deep_gemm.legacy
    legacy.a_fused_m_grouped_bf16_gemm_nt_contiguous_tl(x, w, d, (group, row))
    assert_close(d, exact, MOST_OF_BF16)
    legacy.a_fused_m_grouped_bf16_gemm_nn_contiguous_tl(x, w.mT.contiguous(), d.zero_(), (group, row))
    assert_close(d, exact, MOST_OF_BF16)
    legacy.m_grouped_bf16_gemm_nt_contiguous_tl(picked.to(BF16), w, d.zero_(), group)
    assert_close(d, exact, MOST_OF_BF16)
    begins, ends = integers(range(0, m, 128), device), integers([g * 128 + (0, 128, 50)[g % 3] for g in range(groups)],
                                                                device)  # fmt: skip
    y = randn(m, n, device=device, seed=2)
    y[50 + 256 : 384] = float("nan")  # of no group
    parts = [picked[b:e].t() @ y[b:e].double() for b, e in zip(begins.tolist(), ends.tolist(), strict=True)]
    for dtype in (F32, BF16):
        for acc in (False, True):
            sums = torch.full((groups, k, n), 2, dtype=dtype, device=device)
            legacy.a_fused_k_grouped_bf16_gemm_tn_contiguous_tl(x, y, sums, (row, begins, ends), acc)
            assert_close(sums, torch.stack(parts) + 2 * acc, MOST_OF_BF16)
            sums = torch.full((groups, n, k), 2, dtype=dtype, device=device)
            legacy.b_fused_k_grouped_bf16_gemm_tn_contiguous_tl(y, x, sums, (row, begins, ends), acc)
            assert_close(sums, torch.stack(parts).mT + 2 * acc, MOST_OF_BF16)
