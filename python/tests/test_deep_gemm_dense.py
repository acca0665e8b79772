"""finegemm.deep_gemm: products of two matrices. Skipped where torch is not installed."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

import finegemm
from finegemm import deep_gemm
from finegemm.deep_gemm import envs, knobs, operators
from support import operands, product
from torch_support import DEVICES, as_doubles, tensors, torch

pytestmark = pytest.mark.parametrize("device", DEVICES)
M, N, K = 33, 264, 272
TYPES = (torch.bfloat16, torch.float16, torch.float32)
# Half a unit in the last place of the dtype, at most, relative to the value.
HALF_ULP = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-24}


def pairs(device, row_b_scales=False, m=M, n=N, k=K):
    """Both operands as pairs of tensors."""
    a, sfa, b, sfb = tensors(operands(m, n, k, row_b_scales=row_b_scales), device)
    return (a, sfa), (b, sfb)


def assert_rounded_once(d, exact, size):
    """`size`: of what was added up. FP32 sums in another order round once for each k-block, scale product and what is
    added, by half a unit of a value no larger than `size`: 8 times here, at most."""
    sums = 8 * HALF_ULP[torch.float32] * size
    bound = HALF_ULP[d.dtype] * np.abs(exact) + sums + 1e-7
    np.testing.assert_array_less(np.abs(as_doubles(d) - exact), bound)


def size_of(a, b):
    return product(*(x.float().abs().cpu().numpy() for x in (*a, *b)))


@pytest.mark.parametrize("row_b_scales", (False, True))
@pytest.mark.parametrize("kind", (tuple, list))
def test_it_is_the_product_of_our_own_call_bit_for_bit(device, row_b_scales, kind):
    a, b = pairs(device, row_b_scales)
    d = torch.empty((M, N), dtype=torch.bfloat16, device=device)
    assert deep_gemm.fp8_gemm_nt(kind(a), kind(b), d) is None
    assert torch.equal(d, finegemm.gemm(*a, *b))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("row_b_scales", (False, True))
@pytest.mark.parametrize("added", (None, "c", "d"))
@pytest.mark.parametrize("alpha", (None, 0.375))
def test_each_type_of_result_is_rounded_once(device, dtype, row_b_scales, added, alpha):
    a, b = pairs(device, row_b_scales)
    rows_of_b = b[1] if row_b_scales else b[1][torch.arange(N, device=device) // 128]
    exact = as_doubles(finegemm.gemm(*a, b[0], rows_of_b, out_dtype="float32"))
    d = (torch.randn(M, N, device=device) * 32).to(dtype)
    c = {None: None, "c": (torch.randn(M, N, device=device) * 32).to(dtype), "d": d}[added]
    before = 0 if c is None else as_doubles(c)
    want = before + (1 if alpha is None else alpha) * exact
    size = np.abs(before) + size_of(a, b)
    deep_gemm.fp8_gemm_nt(a, b, d, c, alpha=alpha)
    assert_rounded_once(d, want, size)
    if added == "c":
        np.testing.assert_array_equal(as_doubles(c), before)


@pytest.mark.parametrize(
    "recipes, row_b_scales",
    [
        ({"recipe": (1, 128, 128)}, False),
        ({"recipe": [1, 128, 128]}, False),
        ({"recipe_a": (1, 128), "recipe_b": (128, 128)}, False),
        ({"recipe": (1, 1, 128)}, True),
        ({"recipe_a": (1, 128), "recipe_b": torch.Size((1, 128))}, True),
    ],
)
def test_a_recipe_says_what_the_scales_are_and_nothing_else(device, recipes, row_b_scales):
    a, b = pairs(device, row_b_scales)
    d, want = (torch.empty((M, N), dtype=torch.bfloat16, device=device) for _ in range(2))
    deep_gemm.fp8_fp4_gemm_nt(a, b, d, compiled_dims="", disable_ue8m0_cast=True, **recipes)
    deep_gemm.fp8_fp4_gemm_nt(a, b, want)
    assert torch.equal(d, want)
    wrong = pairs(device, not row_b_scales)[1]
    with pytest.raises(RuntimeError, match=r"^b\[1\]: has shape .* must have (3|264) rows by the recipe"):
        deep_gemm.fp8_fp4_gemm_nt(a, wrong, d, **recipes)


def test_scales_in_any_layout_give_the_same_bits(device):
    a, b = pairs(device, n=576)
    want = finegemm.gemm(*a, *b)
    padded = torch.full((3, 8), float("nan"), device=device).t()[:5]  # columns at multiples of 16 bytes
    padded.copy_(b[1])
    aligned = deep_gemm.get_mn_major_tma_aligned_tensor(a[1])
    for sfa, sfb in ((aligned, padded), (a[1].t().contiguous().t(), b[1].repeat(1, 2)[:, :3])):
        d = torch.zeros_like(want)
        deep_gemm.fp8_gemm_nt((a[0], sfa), (b[0], sfb), d)
        assert torch.equal(d, want)


MISUSE = [
    ({"recipe": (1, 128, 128), "recipe_a": (1, 128)}, RuntimeError, "recipe: comes with recipe_a or recipe_b; pass"),
    ({"recipe_b": (128, 128)}, RuntimeError, "recipe_a: is missing; pass recipe_a and recipe_b together"),
    ({"recipe_a": (1, 32), "recipe_b": (1, 32)}, RuntimeError, r"recipe: A has a scale for each \(1, 32\) and B for"),
    ({"recipe": (128, 128, 128)}, RuntimeError, r"recipe: A has a scale for each \(128, 128\)"),
    ({"recipe": 128}, TypeError, "recipe: must be a sequence of 3 integers, not 128"),
    ({"recipe": (1, 128)}, TypeError, r"recipe: must be a sequence of 3 integers, not \(1, 128\)"),
    ({"epilogue": "silu"}, RuntimeError, "epilogue: is given, but is not served on Hopper; leave it out"),
]


@pytest.mark.parametrize("options, kind, sentence", MISUSE)
def test_options_that_make_no_sense_are_named(device, options, kind, sentence):
    a, b = pairs(device)
    with pytest.raises(kind, match=sentence):
        deep_gemm.fp8_gemm_nt(a, b, torch.empty((M, N), dtype=torch.bfloat16, device=device), **options)


def test_operands_are_pairs(device):
    a, b = pairs(device)
    d = torch.empty((M, N), dtype=torch.bfloat16, device=device)
    with pytest.raises(TypeError, match="a: must be a pair of tensors, a matrix and its scales, not of <class 'torch"):
        deep_gemm.fp8_gemm_nt(a[0], b, d)
    with pytest.raises(TypeError, match=r"b: must be a pair of tensors, .* not tuple of 3"):
        deep_gemm.fp8_gemm_nt(a, (*b, b[1]), d)


def test_what_is_added_has_the_form_of_the_result(device):
    a, b = pairs(device)
    for dtype in TYPES:
        d = torch.zeros((M, 2 * N), dtype=dtype, device=device)[:, :N]
        other = torch.float32 if dtype != torch.float32 else torch.bfloat16
        for c, sentence in (
            (d.to(other), "c: (is|has dtype) .* must be .*; convert it"),
            (d[:-1], "c: (is .* of|has) shape .* must be"),
            (torch.zeros((N, M), dtype=dtype, device=device).t(), "c: has column stride 33, must be 1"),
            (d.as_strided((M, N), (N, 1)), "c: (begins where d does, but has strides|overlaps d, must be d itself)"),
        ):
            with pytest.raises(RuntimeError, match=f"^{sentence}"):
                deep_gemm.fp8_gemm_nt(a, b, d, c)
        alias = d.view(d.shape)
        d.fill_(1)
        deep_gemm.fp8_gemm_nt(a, b, d, alias)
        want = torch.ones((M, N), dtype=dtype, device=device)
        deep_gemm.fp8_gemm_nt(a, b, want, want)
        assert torch.equal(d, want)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_call_that_is_refused_leaves_the_result_as_it_is(device, dtype):
    a, b = pairs(device, row_b_scales=True)
    d, c = torch.full((2, M, N), 7, dtype=dtype, device=device).unbind()
    c.fill_(3)
    for wrong in ((a[0][:-1], a[1]), (a[0], a[1][:-1])):
        with pytest.raises(RuntimeError, match=r"^a(\[1\])?: has "):
            deep_gemm.fp8_gemm_nt(wrong, b, d, c)
        assert (d == 7).all()


def test_other_dtypes_are_named(device):
    a, b = pairs(device)
    d = torch.empty((M, N), dtype=torch.bfloat16, device=device)
    for c in (None, d.double()):
        with pytest.raises(RuntimeError, match=r"^[cd]: has dtype float64, must be bfloat16, float16 or float32"):
            deep_gemm.fp8_gemm_nt(a, b, d.double(), c)
    with pytest.raises(RuntimeError, match=r"^a: has dtype int8, must be float8_e4m3fn"):
        deep_gemm.fp4_gemm_nt((a[0].view(torch.int8), a[1]), b, d)
    with pytest.raises(RuntimeError, match=r"^b\[1\]: has dtype f32, but a\[1\] has ue8m0x4"):
        deep_gemm.fp8_gemm_nt((a[0], a[1].view(torch.int32)), b, d)


def test_scales_of_another_shape_are_named_as_they_came(device):
    a, b = pairs(device)
    for dtype in TYPES:
        d = torch.empty((M, N), dtype=dtype, device=device)
        with pytest.raises(RuntimeError, match=r"^b\[1\]: has shape \[2, 3\], must be"):
            deep_gemm.fp8_gemm_nt(a, (b[0], b[1][:2]), d)


def test_transposed_operands_are_views_of_k_major_memory(device):
    a, b = pairs(device)
    at, bt = [tuple(x.t() for x in operand) for operand in (a, b)]
    want = finegemm.gemm(*a, *b)
    for name, x, y in (("nn", a, bt), ("tn", at, bt), ("tt", at, b)):
        d = torch.zeros_like(want)
        call = getattr(deep_gemm, f"fp8_gemm_{name}")
        call(x, y, d)
        assert torch.equal(d, want), name
        options = {"recipe_a": (1, 128), "recipe_b": (128, 128), "alpha": 0.5}
        call(x, y, d, want, **options)
        added = torch.zeros_like(want)
        deep_gemm.fp8_gemm_nt(a, b, added, want, **options)
        assert torch.equal(d, added), name
        with pytest.raises(RuntimeError, match="recipe: comes with recipe_a"):
            call(x, y, d, recipe=(1, 128, 128), recipe_a=(1, 128))
        with pytest.raises(RuntimeError, match="epilogue: is given"):
            call(x, y, d, epilogue="silu")
    copied = (bt[0].contiguous(), bt[1])
    sentence = r"^b: has shape \[272, 264\] and strides \[264, 1\], must have K, .* pass b\.mT\.contiguous\(\)\.mT"
    with pytest.raises(RuntimeError, match=sentence):
        deep_gemm.fp8_gemm_nn(a, copied, torch.zeros_like(want))


@pytest.mark.parametrize("dtype", TYPES)
def test_without_rows_nothing_is_done_and_without_k_the_product_is_zero(device, dtype):
    a, b = pairs(device, m=0)
    deep_gemm.fp8_gemm_nt(a, b, torch.empty((0, N), dtype=dtype, device=device))
    a, b = pairs(device)
    a, b = ((x[:, :0] for x in operand) for operand in (a, b))
    a, b = tuple(a), tuple(b)
    for c in (None, torch.ones((M, N), dtype=dtype, device=device)):
        d = torch.full((M, N), 7, dtype=dtype, device=device)
        deep_gemm.fp8_gemm_nt(a, b, d, c)
        assert (d == (0 if c is None else 1)).all()


@pytest.mark.parametrize(
    ("splits", "dtype", "by_copies"),
    [
        ((128, 64, 128), torch.bfloat16, False),
        ((128, 64, 128), torch.float32, True),
        ((100, 20, 156), torch.bfloat16, True),
        ((64, 0, 64), torch.bfloat16, True),
    ],
)
def test_heads_have_a_hole_that_is_not_written(device, monkeypatch, splits, dtype, by_copies):
    left, middle, right = splits
    heads, width, copied = 2, sum(splits), []
    n = heads * (left + right)
    a, b = pairs(device, n=n)
    through_copies = operators._through_copies
    monkeypatch.setattr(operators, "_through_copies", lambda *args: (copied.append(1), through_copies(*args)))
    d = torch.full((M, n + heads * middle), 7, dtype=dtype, device=device)
    deep_gemm.fp8_gemm_nt_skip_head_mid(a, b, d, splits)
    assert bool(copied) == by_copies
    want = torch.empty((M, n), dtype=dtype, device=device)
    deep_gemm.fp8_gemm_nt(a, b, want)
    for head in range(heads):
        of_d, of_product = d[:, head * width :], want[:, head * (left + right) :]
        assert torch.equal(of_d[:, :left], of_product[:, :left])
        assert (of_d[:, left : left + middle] == 7).all()
        assert torch.equal(of_d[:, left + middle : width], of_product[:, left : left + right])


def test_heads_that_do_not_fit_are_refused(device):
    a, b = pairs(device, n=512)
    d = torch.empty((M, 640), dtype=torch.bfloat16, device=device)
    for splits, sentence in (
        ((128, 64, 100), "head_splits: is"),
        ((128, 32, 128), "d: has 640 columns, must have 576"),
    ):
        with pytest.raises(RuntimeError, match=sentence):
            deep_gemm.fp8_gemm_nt_skip_head_mid(a, b, d, splits)


def test_settings_of_the_process_reach_the_call(device, monkeypatch):
    seen, context = [], finegemm.Context()
    native = SimpleNamespace(gemm=lambda handle, names, args, options: seen.append((handle, options)))
    monkeypatch.setattr(operators, "_native", native)
    monkeypatch.setattr(knobs, "_knobs", knobs.Knobs(num_sms=7, pdl=True))
    monkeypatch.setattr(envs, "settings", lambda: envs.Settings(context=context, prints_configs=False))
    a, b = pairs(device)
    deep_gemm.fp8_gemm_nt(a, b, torch.empty((M, N), dtype=torch.bfloat16, device=device))
    assert seen == [(context.handle, {"num_sms": 7, "pdl": True})]


def test_a_child_of_fork_multiplies_where_the_parent_has_not(device):
    code = f"""
import os, sys, torch
from finegemm import deep_gemm
deep_gemm.set_pdl(True)
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
torch.set_default_device("{device}")
a, b = ((torch.ones(8, 128).to(torch.float8_e4m3fn), torch.ones(rows, 1)) for rows in (8, 1))
d = torch.zeros(8, 8, dtype=torch.bfloat16)
deep_gemm.fp8_gemm_nt(a, b, d)
assert (d == 128).all()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_threads_call_and_set_at_the_same_time(device, monkeypatch):
    monkeypatch.setattr(knobs, "_knobs", knobs.Knobs())
    a, b = pairs(device)
    want = finegemm.gemm(*a, *b, batch_invariant=True)

    def call(i):
        d = torch.empty((M, N), dtype=torch.bfloat16, device=device)
        deep_gemm.set_num_sms(64 + i)
        deep_gemm.set_pdl(i % 2 == 0)
        deep_gemm.fp8_gemm_nt(a, b, d)
        return d

    with ThreadPoolExecutor(8) as threads:
        for d in threads.map(call, range(64)):
            # Split K may add up in another order where there are fewer SMs.
            torch.testing.assert_close(d.float(), want.float(), rtol=2.0**-7, atol=1e-3)
    assert 64 <= deep_gemm.get_num_sms() < 128


def test_the_kernel_is_printed_if_asked(device, monkeypatch, capsys):
    monkeypatch.setattr(envs, "settings", lambda: envs.Settings(context=None, prints_configs=True))
    monkeypatch.setattr(envs, "_printed", set())
    a, b = pairs(device)
    deep_gemm.fp8_gemm_nt(a, b, torch.empty((M, N), dtype=torch.bfloat16, device=device))
    assert capsys.readouterr().out.startswith(f"fp8_gemm m={M} n={N} k={K}: m")
