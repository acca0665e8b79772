"""DeepGEMM's interface, dense products and settings: sections 2 to 5, 9 and 10 of its specification."""

import numpy as np
import pytest

from finegemm import deep_gemm
from reference import (
    BF16,
    BLOCK,
    F16,
    F32,
    FP8,
    INT,
    MOST_OF_BF16,
    align,
    assert_close,
    blocks_to_fp8,
    cases,
    randn,
    rows_to_fp8,
    tma_form,
    value,
)
from torch_support import DEVICES, torch

SMALL = [(1, 8, 16), (3, 136, 272), (129, 256, 128)]
FORWARD = [
    (2112, 7168), (576, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048),
]  # fmt: skip
LARGE = [(m, n, k) for n, k in FORWARD for m in (1, 128, 4096)] + [(4096, k, n) for n, k in FORWARD]
WGRAD = [(n, 4096, k) for n, k in FORWARD]
LARGE += WGRAD


def operands(shape, device, row_scales=False, power_of_two=False):
    """Both pairs, their exact product and that of what was quantised."""
    m, n, k = shape
    x, w = randn(m, k, device=device), randn(n, k, device=device, seed=1)
    a, b = rows_to_fp8(x, power_of_two), (rows_to_fp8 if row_scales else blocks_to_fp8)(w, power_of_two)
    return a, b, value(*a) @ value(*b).t(), x.double() @ w.double().t()


def refuses(call, *arguments, kind=RuntimeError, **options):
    with pytest.raises(kind):
        call(*arguments, **options)


@pytest.mark.parametrize("device, shape", cases(SMALL, LARGE))
def test_products_in_fp8_are_exact_but_for_rounding(device, shape):
    a, b, exact, of_x = operands(shape, device)
    d = torch.full(exact.shape, float("nan"), dtype=BF16, device=device)
    assert deep_gemm.fp8_gemm_nt(a, b, d, disable_ue8m0_cast=True) is None
    assert_close(d, exact, unquantised=of_x if exact.numel() > 1000 else None)


@pytest.mark.parametrize("device, shape", cases(SMALL[1:], WGRAD))
def test_gradients_of_weights_are_added_in_float32(device, shape):
    a, b, exact, _ = operands(shape, device, row_scales=True)
    d = randn(*exact.shape, device=device, dtype=F32) * 32
    exact += d
    deep_gemm.fp8_fp4_gemm_nt(a, b, d, c=d, recipe=(1, 1, 128), disable_ue8m0_cast=True)
    assert_close(d, exact)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("row_scales", (False, True))
@pytest.mark.parametrize("dtype", (BF16, F16, F32))
def test_scales_of_rows_or_blocks_into_each_type_with_and_without_c(device, row_scales, dtype):
    a, b, exact, _ = operands((67, 136, 272), device, row_scales)
    other = randn(*exact.shape, device=device, dtype=dtype)
    for c in (None, other, "d"):
        for alpha in (None, 0.5):
            d = torch.full_like(other, 3)
            kept = other.clone()
            deep_gemm.fp8_gemm_nt(a, b, d, d if c == "d" else c, alpha=alpha)
            added = 0 if c is None else 3 if c == "d" else other.double()
            assert_close(d, exact * (alpha or 1) + added)
            assert torch.equal(other, kept)


@pytest.mark.parametrize("device", DEVICES)
def test_a_half_that_overflows_is_infinite(device):
    a, b, exact, _ = operands((8, 128, 128), device)
    d = torch.empty(exact.shape, dtype=F16, device=device)
    deep_gemm.fp8_gemm_nt((a[0], a[1] * 1e6), b, d)
    assert torch.equal(d.isinf(), (exact * 1e6).abs() > 65519.99)
    assert torch.equal(d.sign(), exact.sign().to(F16))


@pytest.mark.parametrize("device", DEVICES)
def test_views_of_k_major_memory_give_the_same_bits(device):
    a, b, exact, _ = operands((40, 136, 272), device)
    want = torch.empty(exact.shape, dtype=BF16, device=device)
    deep_gemm.fp8_gemm_nt(a, b, want)
    for form, turned in (("nn", "b"), ("tn", "ab"), ("tt", "a")):
        d = torch.empty_like(want)
        x, y = (tuple(t.t() for t in pair) if name in turned else pair for name, pair in (("a", a), ("b", b)))
        for name in (f"fp8_gemm_{form}", f"fp8_fp4_gemm_{form}"):
            getattr(deep_gemm, name)(x, y, d.zero_())
            assert torch.equal(d, want)
        memory = tuple(t.contiguous() for t in (x if "a" in turned else y))
        arguments = (memory, y) if "a" in turned else (x, memory)
        refuses(getattr(deep_gemm, f"fp8_gemm_{form}"), *arguments, d)


@pytest.mark.parametrize("device", DEVICES)
def test_scales_come_in_any_layout_and_what_lies_between_is_not_read(device):
    a, b, exact, _ = operands((67, 576, 400), device)  # 5 rows of scales of b
    want = torch.empty(exact.shape, dtype=BF16, device=device)
    deep_gemm.fp8_gemm_nt(a, b, want)
    rows = a[1].repeat_interleave(2, 0)[::2], torch.cat((a[1], a[1] * 9), 1)[:, : a[1].shape[1]]
    wider = torch.cat((b[1], b[1] * 9), 1)[:, : b[1].shape[1]]
    for sfa in (tma_form(a[1]), a[1].t().contiguous().t(), *rows):
        for sfb in (b[1], tma_form(b[1]), b[1].t().contiguous().t(), wider):
            d = torch.empty_like(want)
            deep_gemm.fp8_gemm_nt((a[0], sfa), [b[0], sfb], d)
            assert torch.equal(d, want)


@pytest.mark.parametrize("device", DEVICES)
def test_rows_may_lie_apart(device):
    a, b, exact, _ = operands((67, 136, 256), device)
    apart = torch.cat([a[0].view(torch.uint8)] * 2, 1).view(FP8)[:, :256]
    memory = torch.full((67, 160), 7.0, dtype=BF16, device=device)
    deep_gemm.fp8_gemm_nt((apart, a[1]), b, memory[:, 8:144])
    assert_close(memory[:, 8:144], exact)
    assert bool((memory[:, :8] == 7).all() and (memory[:, 144:] == 7).all())


@pytest.mark.parametrize("device", DEVICES)
def test_recipes_are_any_sequence_and_never_overridden(device):
    a, blocks, _, _ = operands((16, 136, 256), device)
    rows = operands((16, 136, 256), device, row_scales=True)[1]
    d = torch.empty((16, 136), dtype=BF16, device=device)
    for recipe in ((1, 128, 128), [1, 128, 128], torch.Size((1, 128, 128)), np.array((1, 128, 128))):
        deep_gemm.fp8_gemm_nt(a, blocks, d, recipe=recipe)
        refuses(deep_gemm.fp8_gemm_nt, a, rows, d, recipe=recipe)
    for recipe in ((1, 1, 128), [1, 1, 128], (np.int64(1), np.int32(1), 128)):
        deep_gemm.fp8_gemm_nt(a, rows, d, recipe=recipe)
        refuses(deep_gemm.fp8_gemm_nt, a, blocks, d, recipe=recipe)
    deep_gemm.fp8_gemm_nt(a, blocks, d, recipe_a=[1, 128], recipe_b=torch.Size((128, 128)))
    deep_gemm.fp8_gemm_nt(a, rows, d, recipe_a=(1, 128), recipe_b=(1, 128))
    refuses(deep_gemm.fp8_gemm_nt, a, blocks, d, recipe_b=(128, 128))
    refuses(deep_gemm.fp8_gemm_nt, a, blocks, d, recipe=(1, 128, 128), recipe_a=(1, 128), recipe_b=(128, 128))
    refuses(deep_gemm.fp8_gemm_nt, a, rows, d, recipe_a=(1, 32), recipe_b=(1, 32))
    for wrong in (128, (1, 128), (1, 128, 128, 1), (1, 128.0, 128), (1, True, 128)):
        refuses(deep_gemm.fp8_gemm_nt, a, blocks, d, recipe=wrong, kind=TypeError)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fp8", (True, False))
def test_empty_problems(device, fp8):
    def call(m, n, k, d, c=None):
        a, b, *_ = operands((m, n, k), device) if k else (None, None)
        if k == 0:
            a, b = ((torch.empty(r, 0, dtype=FP8, device=device), torch.empty(s, 0, device=device))
                    for r, s in ((m, m), (n, -(-n // BLOCK))))  # fmt: skip
        if fp8:
            deep_gemm.fp8_gemm_nt(a, b, d, c)
        else:
            deep_gemm.bf16_gemm_nt(a[0].to(BF16), b[0].to(BF16), d, c)

    call(0, 128, 128, torch.empty((0, 128), dtype=BF16, device=device))
    call(16, 0, 128, torch.empty((16, 0), dtype=BF16, device=device))
    d = torch.full((16, 128), 7, dtype=BF16, device=device)
    call(16, 128, 0, d, d)
    assert bool((d == 7).all())
    c = torch.full_like(d, 5)
    call(16, 128, 0, d, c)
    assert torch.equal(d, c)
    call(16, 128, 0, d)
    assert bool((d == 0).all())


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_refused_in_fp8(device):
    a, b, _, _ = operands((16, 128, 256), device)
    d = torch.full((16, 128), 7, dtype=BF16, device=device)
    turned = (b[0].t().contiguous().t(), b[1])
    packed = (b[0][:, :128].view(torch.int8), b[1])
    for x, y, out, options in (
        (a, packed, d, {}),
        (a, turned, d, {}),
        ((a[0].t().contiguous().t(), a[1]), b, d, {}),
        (a, (b[0], b[1].to(INT)), d, {}),
        ((a[0], a[1].to(INT)), b, d, {}),
        (a, (b[0][:, :128].contiguous(), b[1]), d, {}),
        (a, b, d[:8], {}),
        (a, b, d.to(torch.int8), {}),
        (a, b, d, {"c": d.float()}),
        (a, b, d, {"c": d[:8]}),
        (a, b, d, {"epilogue": "relu"}),
        (a, b, d.t().contiguous().t(), {}),
        (a, b, d.as_strided((8, 128), (256, 1)), {"c": d[:8]}),
        (a, (b[0][:124], b[1]), d[:, :124], {}),
        ((a[0][:, :24], a[1][:, :1]), (b[0][:, :24], b[1][:, :1]), d[None], {}),
    ):
        refuses(deep_gemm.fp8_gemm_nt, x, y, out, **options)
    for arguments, options in (((a, b), {}), ((a[0], b, d), {}), ((a, b, d), {"tile": 1}), (((*a, 1), b, d), {})):
        refuses(deep_gemm.fp8_gemm_nt, *arguments, kind=TypeError, **options)
    assert bool((d == 7).all())


@pytest.mark.parametrize("device", DEVICES)
def test_any_number_of_sms_gives_the_same_bits(device):
    a, b, exact, _ = operands((129, 384, 512), device)
    before, want = deep_gemm.get_num_sms() if device == "cuda" else 0, torch.empty_like(exact, dtype=BF16)
    deep_gemm.fp8_gemm_nt(a, b, want)
    try:
        for n in (1, 66, 131):
            deep_gemm.set_num_sms(n)
            assert deep_gemm.get_num_sms() == n
            d = torch.empty_like(want)
            deep_gemm.fp8_gemm_nt(a, b, d)
            assert_close(d, exact)
    finally:
        deep_gemm.set_num_sms(before)


def test_settings_have_their_defaults_and_ranges():
    layout = deep_gemm.utils.layout
    of_rows = (deep_gemm.get_m_alignment_for_contiguous_layout, layout.get_k_alignment_for_contiguous_layout)
    assert [deep_gemm.get_pdl(), deep_gemm.get_tc_util(), *(get() for get in of_rows)] == [False, 100, 128, 128]
    theoretical = deep_gemm.get_theoretical_mk_alignment_for_contiguous_layout
    assert {theoretical(), theoretical(7), theoretical(300, 5), theoretical(expected_m=1, num_groups=None)} == {128}
    try:
        for percent, got in ((60, 60), (0, 100), (100, 100)):
            deep_gemm.set_tc_util(percent)
            assert deep_gemm.get_tc_util() == got
        layout.set_mk_alignment_for_contiguous_layout(64)
        assert deep_gemm.get_mk_alignment_for_contiguous_layout() == 64
        for call, values in (
            (deep_gemm.set_ignore_compile_dims, (True, False)),
            (deep_gemm.use_deterministic_algorithms, (True, False)),
            (deep_gemm.set_block_size_multiple_of, (16, (64, 32), [1, 1])),
        ):
            assert [call(value) for value in values] == [None] * len(values)
        for wrong in (-1, 101):
            refuses(deep_gemm.set_tc_util, wrong)
        refuses(deep_gemm.set_num_sms, -1)
        for call in (deep_gemm.set_num_sms, deep_gemm.set_tc_util, layout.set_mk_alignment_for_contiguous_layout):
            refuses(call, "64", kind=TypeError)
            refuses(call, kind=TypeError)
    finally:
        deep_gemm.set_tc_util(100)
        layout.set_mk_alignment_for_contiguous_layout(128)


BF16_LARGE = [("nt", s) for s in LARGE[:21:3] + LARGE[1:21:3]] + [("nn", s) for s in LARGE[21:24]]
BF16_LARGE += [("tn", s) for s in WGRAD[:3]] + [("nt", (4096, 256, 7168)), ("nt", (128, 129280, 7168))]


@pytest.mark.parametrize(
    "device, case",
    cases([(f, s) for f in ("nt", "nn", "tn", "tt") for s in ((3, 136, 72), (130, 64, 256), (16, 24, 99))], BF16_LARGE),
)
def test_products_in_bfloat16_of_every_layout(device, case):
    form, (m, n, k) = case
    if form[0] == "t":
        m = align(m, 8)  # strides are multiples of 16 bytes
    x, w = randn(m, k, device=device), randn(n, k, device=device, seed=1)
    exact = x.double() @ w.double().t()
    a = x.t().contiguous() if form[0] == "t" else x
    b = w.t().contiguous() if form[1] == "n" else w
    call = getattr(deep_gemm, f"bf16_gemm_{form}")
    for dtype in (BF16, F32):
        d = torch.full((m, n), float("nan"), dtype=dtype, device=device)
        call(a, b, d)
        assert_close(d, exact, MOST_OF_BF16)
        d = randn(m, n, device=device, dtype=dtype) * 32
        want = exact * 0.5 + d.double()
        call(a, b, d, c=d, alpha=0.5)
        assert_close(d, want, MOST_OF_BF16)


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_refused_in_bfloat16(device):
    x, w = randn(16, 64, device=device), randn(24, 64, device=device)
    d = torch.empty((16, 24), dtype=BF16, device=device)
    refuses(deep_gemm.bf16_gemm_nt, x, w[:, :56], d)
    refuses(deep_gemm.bf16_gemm_nt, x.half(), w.half(), d)
    refuses(deep_gemm.bf16_gemm_nt, x, w, d[:, :16])
    refuses(deep_gemm.bf16_gemm_nt, x, w, d, d.float())


@pytest.mark.parametrize(
    "device, case",
    cases(
        [((3, 512, 128), (128, 64, 128)), ((70, 120, 272), (16, 8, 24)), ((5, 48, 128), (8, 0, 16))],
        [((m, n, 512), (128, 64, 128)) for m in (128, 4096) for n in (32768, 8192)],
    ),
)
def test_heads_keep_their_holes(device, case):
    shape, (left, middle, right) = case
    a, b, exact, _ = operands(shape, device)
    heads = shape[1] // (left + right)
    d = torch.full((shape[0], shape[1] + heads * middle), 7, dtype=BF16, device=device)
    deep_gemm.fp8_gemm_nt_skip_head_mid(a, b, d, [left, middle, right])
    columns = [n + (n + right) // (left + right) * middle for n in range(shape[1])]
    assert_close(d[:, columns], exact)
    hole = torch.ones(d.shape[1], dtype=torch.bool)
    hole[columns] = False
    assert bool((d[:, hole.to(device)] == 7).all())
    deep_gemm.fp8_gemm_nt_skip_head_mid((a[0][:0], a[1][:0]), b, d[:0], (left, middle, right))
    refuses(deep_gemm.fp8_gemm_nt_skip_head_mid, a, b, d, (left, middle, right + 8))
    refuses(deep_gemm.fp8_gemm_nt_skip_head_mid, a, b, d, (left, right), kind=TypeError)
