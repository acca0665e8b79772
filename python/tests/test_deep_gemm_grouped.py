"""finegemm.deep_gemm: products of groups of rows, of heads and of K. Skipped where torch is not installed."""

from types import SimpleNamespace

import numpy as np
import pytest

import finegemm
from finegemm import _native, deep_gemm
from finegemm.deep_gemm import envs, knobs, operators
from support import operands
from torch_support import DEVICES, tensors, torch

pytestmark = pytest.mark.parametrize("device", DEVICES)
G, N, K = 3, 136, 272


def stack(device, m, row_b_scales=False):
    """a [m, K] and b [G, N, K] with their scales."""
    a, sfa, b, sfb = tensors(operands(m, G * N, K, row_b_scales=True), device)
    blocks = N if row_b_scales else -(-N // 128)
    return (a, sfa), (b.view(G, N, K), sfb.view(G, N, -1)[:, :blocks].contiguous())


def rows_of(a, b, rows, group):
    return finegemm.gemm(a[0][rows], a[1][rows], b[0][group], b[1][group], batch_invariant=True)


def integers(values, device):
    return torch.tensor(values, dtype=torch.int32, device=device)


def spoiled(a, rows):
    """The operand with NaN in the rows, codes and scales alike."""
    codes, scales = (x.clone() for x in a)
    codes.view(torch.uint8)[rows] = 0x7F
    scales[rows] = float("nan")
    return codes, scales


@pytest.mark.parametrize("argument", ("grouped_layout", "m_indices"))
def test_indices_say_which_rows_are_whose_and_padding_becomes_zero(device, argument):
    m = 300  # no multiple of the alignment
    layout = [0] * 100 + [-1] * 28 + [2] * 128 + [1] * 30 + [-1] * 14
    a, b = stack(device, m)
    padding = [i for i, g in enumerate(layout) if g < 0]
    a = spoiled(a, padding)
    d = torch.full((m, N), 7, dtype=torch.bfloat16, device=device)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, **{argument: integers(layout, device)})
    for rows, group in ((slice(0, 100), 0), (slice(128, 256), 2), (slice(256, 286), 1)):
        assert torch.equal(d[rows], rows_of(a, b, rows, group))
    assert (d[padding] == 0).all()


def test_prefix_sums_are_ends_and_nothing_between_groups_is_touched(device, monkeypatch):
    monkeypatch.setattr(knobs, "_knobs", knobs.Knobs(alignment=64))
    a, b = stack(device, 256)
    gaps = [*range(50, 64), *range(100, 256)]
    a = spoiled(a, gaps)
    d = torch.full((256, N), 7, dtype=torch.bfloat16, device=device)
    options = {"use_psum_layout": True, "ensure_zero_padding": False, "expected_m_for_psum_layout": 64}
    recipes = {"recipe_a": (1, 128), "recipe_b": (128, 128), "disable_ue8m0_cast": True}
    layout = integers([50, 64, 100], device)  # the second group is empty
    deep_gemm.m_grouped_fp8_fp4_gemm_nt_contiguous(a, b, d, layout, **options, **recipes)
    for rows, group in ((slice(0, 50), 0), (slice(64, 100), 2)):
        assert torch.equal(d[rows], rows_of(a, b, rows, group))
    assert (d[gaps] == 7).all()


def test_weights_may_be_views_with_k_first(device):
    a, b = stack(device, 128)
    layout = integers([1] * 128, device)
    want, d = (torch.empty((128, N), dtype=torch.bfloat16, device=device) for _ in range(2))
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, want, layout)
    views = tuple(x.mT for x in b)
    deep_gemm.m_grouped_fp8_gemm_nn_contiguous(a, views, d, layout)
    assert torch.equal(d, want)
    d.zero_()
    ends = integers([0, 128, 128], device)
    deep_gemm.m_grouped_fp8_gemm_nn_contiguous(a, views, d, ends, use_psum_layout=True)
    assert torch.equal(d, want)
    with pytest.raises(RuntimeError, match=r"^b: has shape .* must have K, which is its next to last dimension here"):
        deep_gemm.m_grouped_fp8_gemm_nn_contiguous(a, (views[0].contiguous(), views[1]), d, layout)
    with pytest.raises(TypeError, match="expected_m_for_psum_layout"):
        deep_gemm.m_grouped_fp8_gemm_nn_contiguous(a, views, d, layout, expected_m_for_psum_layout=3)


@pytest.mark.parametrize("recipe", (None, (1, 1, 128)))
def test_weights_may_have_scales_for_each_row(device, recipe, monkeypatch, capsys):
    monkeypatch.setattr(envs, "settings", lambda: envs.Settings(context=None, prints_configs=True))
    monkeypatch.setattr(envs, "_printed", set())
    a, b = stack(device, 128, row_b_scales=True)
    d, layout = torch.empty((128, N), dtype=torch.bfloat16, device=device), integers([1] * 128, device)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, layout, recipe)
    assert torch.equal(d, finegemm.grouped_gemm(*a, *b, m_indices=layout))
    assert f"k={K} groups=3 alignment=128 row_b_scales=True: m" in capsys.readouterr().out
    with pytest.raises(RuntimeError, match=r"^b\[1\]: has shape .* must have 136 rows by the recipe"):
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, stack(device, 1)[1], d, layout, recipe=(1, 1, 128))


def test_a_call_without_rows_does_nothing(device):
    a, b = stack(device, 0)
    d = torch.empty((0, N), dtype=torch.bfloat16, device=device)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, integers([], device))


@pytest.mark.parametrize("scales", ("row-major", "MN-major"))
def test_masks_say_how_many_rows_of_each_matrix_are_used(device, scales):
    m, used = 40, [40, 0, 13]
    a, b = stack(device, G * m)
    rest = [g * m + i for g in range(G) for i in range(used[g], m)]
    codes, sfa = (x.view(G, m, -1) for x in spoiled(a, rest))
    if scales == "MN-major":
        sfa = sfa.mT.contiguous().mT
    d = torch.full((G, m, N), 7, dtype=torch.bfloat16, device=device)
    deep_gemm.fp8_m_grouped_gemm_nt_masked((codes, sfa), b, d, integers(used, device), 16, max_block_n=256)
    for g in range(G):
        rows = slice(g * m, g * m + used[g])
        assert torch.equal(d[g, : used[g]], rows_of(a, b, rows, g)) and (d[g, used[g] :] == 7).all()
    d.fill_(7)
    deep_gemm.fp8_m_grouped_gemm_nt_masked((codes, sfa), b, d, masked_m=integers([0] * G, device), expected_m=1)
    assert (d == 7).all()


def test_misuse_of_groups_is_named(device):
    a, b = stack(device, 128)
    d, layout = torch.empty((128, N), dtype=torch.bfloat16, device=device), integers([0] * 128, device)
    contiguous, masked = deep_gemm.m_grouped_fp8_gemm_nt_contiguous, deep_gemm.m_grouped_fp8_gemm_nt_masked
    one_each = tuple(x[None].expand(G, *x.shape) for x in a), b, d[None].expand(G, -1, -1).contiguous(), layout[:G]
    for call, kind, sentence in (
        (lambda: contiguous(a, b, d), TypeError, "grouped_layout: is missing; pass it by one of the names"),
        (lambda: contiguous(a, b, d, layout, m_indices=layout), TypeError, "grouped_layout: is given more than once"),
        (
            lambda: contiguous(a, b, d, layout, expected_m_for_psum_layout=4),
            RuntimeError,
            "expected_m_for_psum_layout: is given without use_psum_layout",
        ),
        (lambda: contiguous(a, b, d.double(), layout), RuntimeError, "d: has dtype float64, must be bfloat16"),
        (lambda: contiguous(a, b, d, layout[:-1]), RuntimeError, "^grouped_layout: has 127 indices, must have 128"),
        (
            lambda: contiguous(a, stack(device, 1, True)[1], d, layout, recipe=(1, 128, 128)),
            RuntimeError,
            r"b\[1\]: has shape .* must have 2 rows by the recipe",
        ),
        (lambda: masked(*one_each, 0), RuntimeError, "expected_m: is 0, must be at least 1"),
        (lambda: masked(*one_each, 4.5), TypeError, "expected_m: must be an integer"),
        (lambda: masked(*one_each, 4, enable_overlap=True), RuntimeError, "enable_overlap: is given, but is not"),
        (lambda: masked(*one_each, 4, signal=layout), RuntimeError, "signal: is given, but is not served"),
    ):
        with pytest.raises(kind, match=sentence):
            call()


def test_groups_of_no_rows_are_served_where_masks_are(device):
    a, b = stack(device, 0)
    a = tuple(x.view(G, 0, x.shape[1]) for x in a)
    d = torch.empty((G, 0, N), dtype=torch.bfloat16, device=device)
    deep_gemm.m_grouped_fp8_gemm_nt_masked(a, b, d, integers([0] * G, device), 1)


@pytest.mark.parametrize("group_major", (False, True))
def test_each_head_has_its_product(device, group_major):
    batch = 5
    a, b = stack(device, batch * G)
    codes, scales = (x.view(batch, G, -1) for x in a)
    if group_major:
        codes, scales = (x.transpose(0, 1).contiguous().transpose(0, 1) for x in (codes, scales))
    d = torch.zeros((batch, G, N + 8), dtype=torch.bfloat16, device=device)[..., :N]
    deep_gemm.fp8_einsum("bhr,hdr->bhd", (codes, scales), b, d, recipe=[1, 128, 128])
    for head in range(G):
        want = rows_of((codes[:, head].contiguous(), scales[:, head]), b, slice(None), head)
        assert torch.equal(d[:, head], want)
    deep_gemm.fp8_einsum("bhr,hdr->bhd", (codes[:0], scales[:0]), b, d[:0])
    for arguments, sentence in (
        ({"expr": "bhd,hdr->bhr"}, "^expr: is 'bhd,hdr->bhr', must be 'bhr,hdr->bhd' of FP8; call"),
        ({"recipe": (1, 1, 128)}, r"^recipe: is \(1, 1, 128\), must be \(1, 128, 128\)"),
        ({"c": d}, "^c: is given, but is not served"),
    ):
        with pytest.raises(RuntimeError, match=sentence):
            deep_gemm.fp8_einsum(**{"expr": "bhr,hdr->bhd", "a": (codes, scales), "b": b, "d": d, **arguments})


def k_groups(device, sizes, m=40):
    """Operands of groups of K, one behind the other, and each group's product in float32."""
    total = sum(sizes)
    a, sfa, b, sfb = tensors(operands(m, N, total, row_b_scales=True), device)
    ends = np.cumsum(sizes)
    ranges = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    flat = [torch.cat([x[:, r].reshape(-1).view(torch.uint8) for r in ranges]).view(x.dtype) for x in (a, b)]
    products = [
        finegemm.gemm(
            a[:, r], sfa[:, r.start // 128 : r.stop // 128], b[:, r], sfb[:, r.start // 128 : r.stop // 128],
            out_dtype="float32", batch_invariant=True,
        )
        for r in ranges
    ]  # fmt: skip
    scales = [x.t().contiguous().t() for x in (sfa, sfb)]
    return (flat[0], scales[0]), (flat[1], scales[1]), torch.stack(products)


@pytest.mark.parametrize("added", (None, "c", "d"))
@pytest.mark.parametrize("names", (("ks_cpu", "grouped_layout"), ("ks", "ks_tensor"), None))
def test_groups_of_k_are_added_to_what_is_given(device, added, names):
    sizes = [128, 0, 384]
    a, b, products = k_groups(device, sizes)
    d = torch.randint(-8, 8, products.shape, device=device).float()
    c = {None: None, "c": torch.randint(-8, 8, products.shape, device=device).float(), "d": d}[added]
    before = torch.zeros_like(d) if c is None else c.clone()
    layout = integers(sizes, device)
    if names is None:
        deep_gemm.k_grouped_fp8_gemm_nt_contiguous(a, b, d, sizes, layout, c, (1, 1, 128), use_psum_layout=False)
    else:
        deep_gemm.k_grouped_fp8_gemm_nt_contiguous(a, b, d, c=c, **dict(zip(names, (sizes, layout), strict=True)))
    assert torch.equal(d, before + products)


def test_scales_of_groups_of_k_reach_the_kernels_by_columns(device, monkeypatch):
    a, b, products = k_groups(device, [128, 256])
    seen = []
    monkeypatch.setattr(_native, "k_grouped_gemm", lambda context, names, x, options: seen.extend((x[1], x[3])))
    of_rows = [(x, sf.contiguous()) for x, sf in (a, b)]
    deep_gemm.k_grouped_fp8_gemm_nt_contiguous(*of_rows, products, [128, 256])
    for sf, (_, given) in zip(seen, (a, b), strict=True):
        assert sf.stride(0) == 1
        assert torch.equal(sf, given)


def test_misuse_of_groups_of_k_is_named(device):
    sizes = [128, 256]
    a, b, products = k_groups(device, sizes)
    d, layout = products.clone(), integers(sizes, device)
    call = deep_gemm.k_grouped_fp8_gemm_nt_contiguous
    for arguments, kind, sentence in (
        ((sizes, layout, None, (1, 128, 128)), RuntimeError, r"recipe: is \(1, 128, 128\), must be \(1, 1, 128\)"),
        ((sizes, layout, None, (1, 1, 128), "mn", True), RuntimeError, "use_psum_layout: is given, but is not served"),
        ((None, layout), RuntimeError, "ks_cpu: is missing; pass the k of each group, as a list"),
        ((sizes[:1], layout), RuntimeError, "ks_cpu: has 1 numbers, must have 2; pass the k of each group"),
        ((7, layout), TypeError, "ks_cpu: must be a sequence of 2 integers"),
        (([100, 284], layout), RuntimeError, "100.* multiple"),
    ):
        with pytest.raises(kind, match=sentence):
            call(a, b, d, *arguments)
    with pytest.raises(RuntimeError, match=r"^a: has stride 2, must be 1; make it contiguous"):
        call((torch.cat((a[0].view(torch.uint8),) * 2)[::2].view(a[0].dtype), a[1]), b, d, sizes, layout)


def test_groups_of_k_that_are_refused_leave_the_result_as_it_is(device):
    a, b, products = k_groups(device, [128, 256])
    d, c = torch.full_like(products, 7), torch.zeros_like(products)
    with pytest.raises(RuntimeError, match=r"100.* multiple"):
        deep_gemm.k_grouped_fp8_gemm_nt_contiguous(a, b, d, [100, 284], c=c)
    assert (d == 7).all()


def test_settings_of_the_process_and_expected_rows_reach_groups(device, monkeypatch):
    seen, context = [], finegemm.Context()
    native = SimpleNamespace(grouped_gemm=None, k_grouped_gemm=None)
    for name in vars(native):
        setattr(native, name, lambda handle, names, args, options: seen.append({"context": handle, **options}))
    monkeypatch.setattr(operators, "_native", native)
    monkeypatch.setattr(knobs, "_knobs", knobs.Knobs(num_sms=7, pdl=True, alignment=256))
    monkeypatch.setattr(envs, "settings", lambda: envs.Settings(context=context, prints_configs=False))
    a, b = stack(device, 256)
    d, ends = torch.empty((256, N), dtype=torch.bfloat16, device=device), integers([256] * G, device)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, ends, use_psum_layout=True, expected_m_for_psum_layout=85)
    deep_gemm.m_grouped_fp8_gemm_nt_masked(tuple(x[None] for x in a), b, d[None], ends, 17)
    a, b, d = k_groups_of_ones(device)
    deep_gemm.k_grouped_fp8_gemm_nt_contiguous(a, b, d, [128], integers([128], device))
    common = {"num_sms": 7, "pdl": True, "context": context.handle}
    assert [{name: options[name] for name in common} for options in seen] == [common] * 3
    assert [(options.get("alignment"), options["expected_m"]) for options in seen[:2]] == [(256, 85), (None, 17)]


def k_groups_of_ones(device):
    codes = torch.ones(8 * 128, device=device).to(torch.float8_e4m3fn)
    scales = torch.ones((8, 1), device=device)
    return (codes, scales), (codes, scales), torch.empty((1, 8, 8), device=device)


def test_kernels_of_groups_are_printed_if_asked(device, monkeypatch, capsys):
    monkeypatch.setattr(envs, "settings", lambda: envs.Settings(context=None, prints_configs=True))
    monkeypatch.setattr(envs, "_printed", set())
    a, b = stack(device, 128)
    d = torch.empty((128, N), dtype=torch.bfloat16, device=device)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, integers([0] * 128, device))
    a, b, d = k_groups_of_ones(device)
    deep_gemm.k_grouped_fp8_gemm_nt_contiguous(a, b, d, [128], integers([128], device))
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"m_grouped_fp8_gemm m=128 n={N} k={K} groups=3 alignment=128: m")
    assert second.startswith("k_grouped_fp8_gemm m=8 n=8 k=128 k_groups=1: m")
