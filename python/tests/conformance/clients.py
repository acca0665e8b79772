"""What programs do that call DeepGEMM's interface, as section 23 of its specification tells it: which names they look
up, and their arguments in their order. Each function makes the calls of one program: it gives a name, what runs, and
what each run's result must be near."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

from reference import BF16, F32, FP8, align, blocks_to_fp8, ceil, integers, randn, rows_to_fp8, tma_form, value
from torch_support import torch

HEAD_DIM = 128


class Call(NamedTuple):
    """`run` returns the result; `exact`: what it is in float64, NaN where nothing is asked of it."""

    name: str
    run: Callable[[], Any]
    exact: Any


def words(text: str) -> list[str]:
    return text.split()


# Looked up by getattr with None as default; a missing one fails the call that needs it.
VLLM = words("""
cublaslt_gemm_nt fp8_gemm_nt fp8_einsum m_grouped_fp8_gemm_nt_contiguous fp8_m_grouped_gemm_nt_masked
m_grouped_fp8_fp4_gemm_nt_contiguous m_grouped_bf16_gemm_nt_contiguous m_grouped_bf16_gemm_nt_masked
fp8_fp4_mqa_logits fp8_fp4_paged_mqa_logits fp8_mqa_logits fp8_paged_mqa_logits get_paged_mqa_logits_metadata
tf32_hc_prenorm_gemm get_mn_major_tma_aligned_tensor get_mn_major_tma_aligned_packed_ue8m0_tensor
get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor transform_sf_into_required_layout pack_ue8m0_to_int
get_mk_alignment_for_contiguous_layout set_mk_alignment_for_contiguous_layout
get_theoretical_mk_alignment_for_contiguous_layout get_num_sms set_num_sms transform_weights_for_mega_moe
get_symm_buffer_for_mega_moe fp8_fp4_mega_moe
""")
# All must exist, or the package is refused; utils.X is of the module of that name.
TRANSFORMERS = words("""
fp8_fp4_gemm_nt m_grouped_fp8_fp4_gemm_nt_contiguous m_grouped_fp8_fp4_gemm_nn_contiguous
m_grouped_bf16_gemm_nt_contiguous m_grouped_bf16_gemm_nn_contiguous utils.per_token_cast_to_fp8
transform_sf_into_required_layout transform_weights_for_mega_moe get_symm_buffer_for_mega_moe
get_mk_alignment_for_contiguous_layout fp8_fp4_mega_moe get_mn_major_tma_aligned_packed_ue8m0_tensor SymmBuffer
""")
SGLANG = words("utils.layout.get_mn_major_tma_aligned_tensor set_pdl fp8_gemm_nt fp8_m_grouped_gemm_nt_masked")
# Taken for features where they exist.
PROBED = words("""
set_compile_mode get_compile_mode
compile_only_fp8_fp4_gemm_nt compile_only_m_grouped_fp8_fp4_gemm_nt_masked fp8_mega_moe
""")


@contextlib.contextmanager
def setting(module, name, value):
    """`set_X` within the block, and what `get_X` said before behind it."""
    before = getattr(module, f"get_{name}")()
    getattr(module, f"set_{name}")(value)
    try:
        yield
    finally:
        getattr(module, f"set_{name}")(before)


def linear(device, m, n, k, row_scales=False):
    x, w = randn(m, k, device=device), randn(n, k, device=device, seed=1)
    a, b = rows_to_fp8(x), (rows_to_fp8 if row_scales else blocks_to_fp8)(w)
    return a, b, value(*a) @ value(*b).t()


def experts(device, sizes, n, k, alignment, fp8=True):
    """Rows of each expert from a multiple of the alignment on, the rest of each and a tail of no expert."""
    ids = []
    for expert, rows in enumerate(sizes):
        ids += [expert] * rows + [-1] * (-rows % alignment)
    ids = integers([*ids, *[-1] * 7], device)
    x = randn(len(ids), k, device=device)
    w = torch.stack([randn(n, k, device=device, seed=g + 1) for g in range(len(sizes))])
    a, b = (rows_to_fp8(x), blocks_to_fp8(w)) if fp8 else (x, w)
    values, weights = (value(*a), value(*b)) if fp8 else (x.double(), w.double())
    exact = torch.zeros(len(ids), n, dtype=torch.float64, device=device)
    for expert in range(len(sizes)):
        exact[ids == expert] = values[ids == expert] @ weights[expert].t()
    return a, b, ids, exact


def batched(device, sizes, rows, n, k, fp8=True):
    """Rows of each expert in a matrix of its own."""
    x = randn(len(sizes), rows, k, device=device)
    w = torch.stack([randn(n, k, device=device, seed=g + 1) for g in range(len(sizes))])
    a, b = (rows_to_fp8(x), blocks_to_fp8(w)) if fp8 else (x, w)
    exact = (value(*a) @ value(*b).mT) if fp8 else x.double() @ w.double().mT
    masks = integers(sizes, device)
    exact[torch.arange(rows, device=device)[None] >= masks[:, None]] = float("nan")
    return a, b, masks, exact


def pages(device, batch, next_n, heads, average, page=64):
    """q, cache, weights, lengths, block table and width of paged logits, and what they are."""
    q = randn(batch, next_n, heads, HEAD_DIM, device=device).to(FP8)
    w = randn(batch * next_n, heads, device=device, dtype=F32)
    each = ceil(average, page)
    lens = integers([average - 3 * b for b in range(batch)], device)[:, None] - integers(range(next_n), device).flip(0)
    k = randn(batch * each * page, HEAD_DIM, device=device, seed=2).to(FP8)
    sf = randn(len(k), device=device, dtype=F32).abs()
    memory = torch.cat((k.view(torch.uint8).view(-1, page * HEAD_DIM), sf.view(torch.uint8).view(-1, page * 4)), 1)
    table = integers(range(batch * each), device).view(batch, each)
    keys = k.double().view(batch, each * page, HEAD_DIM)
    scores = torch.einsum("bthd,bnd->bthn", q.double(), keys).relu_()
    exact = torch.einsum("bthn,bth->btn", scores, w.double().view(batch, next_n, heads))
    exact *= sf.double().view(batch, 1, -1)
    exact[torch.arange(each * page, device=device) >= lens[..., None]] = float("nan")
    return q, memory.view(-1, page, 1, HEAD_DIM + 4), w, lens, table, each * page, exact.view(batch * next_n, -1)


def prefill(device, queries, keys, heads):
    q, w = randn(queries, heads, HEAD_DIM, device=device).to(FP8), randn(queries, heads, device=device, dtype=F32)
    k, sf = randn(keys, HEAD_DIM, device=device, seed=2).to(FP8), randn(keys, device=device, dtype=F32).abs()
    end = integers([keys - queries + i + 1 for i in range(queries)], device)
    start = torch.zeros_like(end)
    scores = torch.einsum("shd,nd->shn", q.double(), k.double()).relu_()
    exact = torch.einsum("shn,sh->sn", scores, w.double()) * sf.double()
    exact[torch.arange(keys, device=device)[None] >= end[:, None]] = float("nan")
    return q, (k, sf), w, start, end, exact


def into(d, call, *arguments, **options):
    """A run that writes to `d`, which holds NaN before."""

    def run():
        d.fill_(float("nan"))
        assert call(*arguments, **options) is None
        return d

    return run


def vllm(module, device, scale):
    """`scale`: 1 for small shapes."""
    of = {name: getattr(module, name, None) for name in VLLM}
    assert None not in of.values()
    if hasattr(module, "set_pdl"):
        module.set_pdl(True)
    n, k = 256 * scale, 512 * scale
    for m in (1, 5, 64 * scale):
        a, b, exact = linear(device, m, n, k)
        d = torch.empty(m, n, dtype=BF16, device=device)
        for form in (lambda sf: sf, tma_form):
            pair = a[0], form(a[1])
            yield Call(f"linear {m}", into(d, of["fp8_gemm_nt"], pair, b, d, disable_ue8m0_cast=True), exact)
    a, b, _ = linear(device, 8, n, k)
    nothing, d = (a[0][:0], a[1][:0]), torch.empty(0, n, dtype=BF16, device=device)
    yield Call("no token", into(d, of["fp8_gemm_nt"], nothing, b, d, disable_ue8m0_cast=True), d.double())
    sizes = [37 * scale, 0, 128, 5]
    try:
        alignment = of["get_theoretical_mk_alignment_for_contiguous_layout"](sum(sizes), len(sizes))
    except TypeError:
        alignment = of["get_theoretical_mk_alignment_for_contiguous_layout"](ceil(sum(sizes), len(sizes)))
    for fp8, name in ((True, "m_grouped_fp8_gemm_nt_contiguous"), (False, "m_grouped_bf16_gemm_nt_contiguous")):
        a, b, ids, exact = experts(device, sizes, n, k, alignment, fp8)
        d = torch.empty(len(ids), n, dtype=BF16, device=device)
        product, options = into(d, of[name], a, b, d, ids), {"disable_ue8m0_cast": True} if fp8 else {}

        def aligned(run=product):
            with setting(module, "mk_alignment_for_contiguous_layout", alignment):
                return run()

        yield Call(name, aligned, exact)
    tokens, expected = 21 * scale, 16  # rows of scales are no multiple of 4
    for fp8, name in ((True, "fp8_m_grouped_gemm_nt_masked"), (False, "m_grouped_bf16_gemm_nt_masked")):
        a, b, masks, exact = batched(device, [tokens, 0, 7, 1], tokens, n, k, fp8)
        if fp8:
            a = a[0], a[1].mT.contiguous().mT  # strides (T * G, 1, T)
        d = torch.empty(exact.shape, dtype=BF16, device=device)
        options = {"disable_ue8m0_cast": True} if fp8 else {}
        yield Call(name, into(d, of[name], a, b, d, masks, expected, **options), exact)
    q, kv, w, start, end, exact = prefill(device, 16 * scale, 300 * scale, 64)
    logits = of["fp8_fp4_mqa_logits"]
    yield Call("logits", lambda: logits((q, None), kv, w, start, end, clean_logits=False), exact)
    for next_n, slots in ((1, 132), (2, 132), (4, 66)):
        paged = pages(device, 3 * scale, next_n, 64, 250 * scale)
        yield vllm_paged(of, device, slots, *paged)
    o, weights = randn(4, 16 * scale, k, device=device), randn(4, n, k, device=device, seed=1)
    (codes, scales), b = rows_to_fp8(o, power_of_two=True), blocks_to_fp8(weights)
    exact = (value(codes, scales) @ value(*b).mT).transpose(0, 1)
    d, pair = torch.empty(exact.shape, dtype=BF16, device=device), (codes.transpose(0, 1), scales.transpose(0, 1))
    yield Call("einsum", into(d, of["fp8_einsum"], "bhr,hdr->bhd", pair, b, d, recipe=[1, 128, 128]), exact)
    yield prenorm(of["tf32_hc_prenorm_gemm"], device, 13 * scale, 1024 * scale, 4)


def vllm_paged(of, device, slots, q, cache, w, lens, table, width, exact):
    kept = torch.zeros(slots + 1, 2, dtype=torch.int32, device=device)  # a graph reads it at each replay

    def run():
        kept.copy_(of["get_paged_mqa_logits_metadata"](lens if lens.shape[1] > 1 else lens[:, 0], 64, slots))
        arguments = ((q, None), cache, w, lens, table, kept, width)
        return of["fp8_fp4_paged_mqa_logits"](*arguments, clean_logits=False, histogram=None)

    return Call(f"paged logits of {lens.shape[1]}", run, exact)


def prenorm(call, device, m, k, splits, n=24):
    """The caller adds the slices up."""
    x, fn = randn(m, k, device=device), randn(n, k, device=device, dtype=F32, seed=1)
    fn = (fn.view(torch.int32) & ~0x1FFF).view(F32)  # exact in TF32
    front = () if splits is None else (splits,)
    out, squares = torch.empty(*front, m, n, device=device), torch.empty(*front, m, device=device)
    exact = torch.cat((x.double() @ fn.double().t(), x.double().square().sum(1, keepdim=True)), 1)

    def run():
        out.fill_(float("nan"))
        squares.fill_(float("nan"))
        call(x, fn, out, squares, splits)
        both = torch.cat((out, squares[..., None]), -1)
        return both if splits is None else both.sum(0)

    return Call(f"prenorm {splits}", run, exact)


def sglang(module, device, scale):
    module.set_pdl(True)
    n, k = 128 * scale, 256 * scale
    aligned_form = module.utils.layout.get_mn_major_tma_aligned_tensor
    for m in (1, 70 * scale):
        a, b, exact = linear(device, m, n, k)
        d = torch.empty(m, n, dtype=BF16, device=device)
        yield Call(f"linear {m}", into(d, module.fp8_gemm_nt, (a[0], aligned_form(a[1])), b, d), exact)
    for name, of_pair in (("m_grouped_fp8_gemm_nt_contiguous", True), ("m_grouped_bf16_gemm_nt_contiguous", False)):
        alignment = module.get_mk_alignment_for_contiguous_layout()
        a, b, ids, exact = experts(device, [130, 1, 0, 64], n, k, alignment, of_pair)
        d = torch.empty(len(ids), n, dtype=BF16, device=device)
        yield Call(name, into(d, getattr(module, name), a, b, d, ids), exact)
    a, b, masks, exact = batched(device, [64 * scale, 0, 3], 64 * scale, n, k)
    d = torch.empty(exact.shape, dtype=BF16, device=device)
    masked = module.fp8_m_grouped_gemm_nt_masked
    yield Call("masked", into(d, masked, a, b, d, masks, 32), exact)
    yield Call("masked by name", into(d, masked, a, b, d, masked_m=masks, expected_m=32, max_block_n=256), exact)
    x, w = randn(17, k, device=device), randn(n, k, device=device, seed=1)
    d = torch.empty(17, n, dtype=F32, device=device)
    yield Call("router", into(d, module.bf16_gemm_nt, x, w, d), x.double() @ w.double().t())
    q, kv, w, start, end, exact = prefill(device, 8 * scale, 260 * scale, 32)

    def logits():
        if device == "cuda":  # all SMs but one, an odd number
            with setting(module, "num_sms", module.get_num_sms() - 1):
                return module.fp8_mqa_logits(q, kv, w, start, end, clean_logits=False)
        return module.fp8_mqa_logits(q, kv, w, start, end, clean_logits=False)

    yield Call("logits", logits, exact)
    for page in (64, 4):
        q4, cache, wp, lens, table, width, of_pages = pages(device, 2 * scale, 1, 32, 150 * scale, page)

        def paged(q4=q4, cache=cache, wp=wp, lens=lens, table=table, width=width):
            schedule = module.get_paged_mqa_logits_metadata(lens, 64, 132)
            return module.fp8_paged_mqa_logits(q4, cache, wp, lens, table, schedule, width, clean_logits=False)

        yield Call(f"paged logits, pages of {page}", paged, of_pages)
    yield prenorm(module.tf32_hc_prenorm_gemm, device, 7 * scale, 512, None)


def transformers(module, device, scale):
    """Weights with a scale for each row and 128 of K, and results of the type of the activations."""
    cast = module.utils.per_token_cast_to_fp8
    for dtype in (BF16, torch.float16):
        x, w = randn(33 * scale, 320, device=device, dtype=dtype), randn(136, 320, device=device, seed=1)
        for form in (rows_to_fp8, blocks_to_fp8):
            q, sf = cast(x, use_ue8m0=False, gran_k=128)
            b, out = form(w), torch.empty(len(x), 136, dtype=dtype, device=device)
            exact = value(q, sf) @ value(*b).t()
            yield Call(f"linear {dtype}", into(out, module.fp8_fp4_gemm_nt, (q, sf), b, out, recipe=None), exact)
    for fp8, kind in ((True, "fp8_fp4"), (False, "bf16")):
        alignment = module.get_mk_alignment_for_contiguous_layout()
        a, b, ids, exact = experts(device, [40, 0, 129 * scale, 3], 128, 256, alignment, fp8)
        for t in a if fp8 else (a,):
            t.view(torch.uint8)[ids < 0] = 0x7F if t.dtype == FP8 else 0xFF  # rows of no token hold NaN
        d = torch.empty(len(ids), 128, dtype=BF16, device=device)
        for turned in ("nt", "nn"):
            call = getattr(module, f"m_grouped_{kind}_gemm_{turned}_contiguous")
            weights = b if turned == "nt" else tuple(t.mT for t in b) if fp8 else b.mT.contiguous()
            yield Call(f"experts {kind} {turned}", into(d, call, a, weights, d, ids, use_psum_layout=False), exact)


def trainers(module, device, scale):
    """xtuner, and those that call groups of K with c that is d."""
    n, k, sizes, alignment = 128, 384, [130, 0, 64 * scale, 5], 128
    starts = [0]
    for rows in sizes[:-1]:
        starts.append(align(starts[-1] + rows, alignment))
    ends = integers([s + rows for s, rows in zip(starts, sizes, strict=True)], device)
    m = align(int(ends[-1]), alignment)
    w = torch.stack([randn(n, k, device=device, seed=g + 1) for g in range(len(sizes))])
    x = randn(m, k, device=device)
    a, b = rows_to_fp8(x), blocks_to_fp8(w)
    options = {"recipe_a": (1, 128), "recipe_b": (128, 128), "disable_ue8m0_cast": True}
    for name, (p, q), more in (
        ("m_grouped_fp8_gemm_nt_contiguous", (a, b), options),
        ("m_grouped_bf16_gemm_nt_contiguous", (x, w), {}),
    ):
        exact = torch.full((m, n), float("nan"), dtype=torch.float64, device=device)
        values, weights = (value(*p), value(*q)) if more else (p.double(), q.double())
        for g, (start, rows) in enumerate(zip(starts, sizes, strict=True)):
            exact[start : start + rows] = values[start : start + rows] @ weights[g].t()
        d = torch.empty(m, n, dtype=BF16, device=device)
        yield Call(f"{name}, ends", into(d, getattr(module, name), p, q, d, ends, use_psum_layout=True, **more), exact)
    ks, total = [128, 0, 256 * scale], 128 + 256 * scale
    y, z = randn(40, total, device=device), randn(n, total, device=device, seed=1)
    (qy, sy), (qz, sz) = rows_to_fp8(y), rows_to_fp8(z)
    flat = [torch.cat([q.view(torch.uint8)[:, r].reshape(-1) for r in (slice(0, 128), slice(128, total))]).view(FP8)
            for q in (qy, qz)]  # fmt: skip
    d = torch.empty(3, 40, n, device=device)
    parts = [value(qy, sy)[:, r] @ value(qz, sz)[:, r].t() for r in (slice(0, 128), slice(0), slice(128, total))]

    def gradients():
        d.fill_(2)
        module.k_grouped_fp8_gemm_nt_contiguous((flat[0], sy), (flat[1], sz), d, ks, integers(ks, "cpu"), d)
        return d

    yield Call("gradients", gradients, torch.stack(parts) + 2)


def tensorrt_llm(module, device, scale):
    module.set_pdl(True)
    a, b, masks, exact = batched(device, [40 * scale, 3], 40 * scale, 128, 256)
    d = torch.empty(exact.shape, dtype=BF16, device=device)
    call = into(d, module.fp8_m_grouped_gemm_nt_masked, a, b, d, masks, 16, disable_ue8m0_cast=True)
    yield Call("masked", call, exact)
    q, kv, w, start, end, exact = prefill(device, 8, 200, 64)
    yield Call("logits", lambda: module.fp8_mqa_logits(q, kv, w, start, end, clean_logits=False), exact)


PROGRAMS = {f.__name__: f for f in (vllm, sglang, transformers, trainers, tensorrt_llm)}
