"""DeepGEMM's interface, groups of rows: sections 6 and 7 of its specification."""

import pytest

from finegemm import deep_gemm
from reference import (
    BF16,
    F16,
    F32,
    INT,
    MOST,
    MOST_OF_BF16,
    MOST_OF_UNQUANTISED,
    align,
    assert_close,
    blocks_to_fp8,
    calc_diff,
    cases,
    integers,
    randn,
    rows_to_fp8,
    spoiled,
    tma_form,
    value,
)
from torch_support import DEVICES, torch

NAN = float("nan")


class Experts:
    """Weights of all groups, and what a row of one of them is."""

    def __init__(self, device, groups, n, k, fp8, row_scales=False):
        self.device, self.fp8, self.groups = device, fp8, groups
        self.w = torch.stack([randn(n, k, device=device, seed=g) for g in range(groups)])
        self.b = (rows_to_fp8 if row_scales else blocks_to_fp8)(self.w) if fp8 else self.w
        self.most = MOST if fp8 else MOST_OF_BF16

    def rows(self, *shape):
        """Activations: what was quantised, what is passed, and what that stands for."""
        x = randn(*shape, self.w.shape[2], device=self.device, seed=99)
        a = rows_to_fp8(x) if self.fp8 else x
        return x, a, value(*a) if self.fp8 else x.double()

    def exact(self, values, group):
        b = value(self.b[0][group], self.b[1][group]) if self.fp8 else self.w[group].double()
        return values @ b.t()

    def check(self, d, x, values, group):
        if d.shape[0] == 0:
            return
        assert_close(d, self.exact(values, group), self.most)
        assert calc_diff(d, x.double() @ self.w[group].double().t()) < MOST_OF_UNQUANTISED

    def name(self, form):
        return getattr(deep_gemm, f"m_grouped_{'fp8' if self.fp8 else 'bf16'}_gemm_{form}")

    def spoil(self, a, rows):
        if self.fp8:
            return spoiled(*a, rows)
        a = a.clone()
        a[rows] = NAN
        return a


def layout_of(sizes, alignment, tail=0):
    """The group of each row, in the order of `sizes`, (group, rows); padding and the tail are of none."""
    layout = []
    for group, rows in sizes:
        layout += [group] * rows
        layout += [-1] * (-len(layout) % alignment)
    return layout + [-1] * tail


TABLE = [(4, 8192, 6144, 7168), (8, 4096, 4096, 4096), (8, 4096, 4096, 2048), (4, 8192, 7168, 3072)]


@pytest.mark.parametrize("fp8", (True, False))
@pytest.mark.parametrize("form", ("nt", "nn"))
@pytest.mark.parametrize("device, shape", cases([(3, 90, 136, 192), (5, 140, 64, 320)], TABLE))
def test_indices_say_the_group_of_each_row(device, shape, form, fp8):
    groups, rows, n, k = shape
    experts = Experts(device, groups, n, k, fp8, row_scales=groups == 5)
    sizes = [(g, int(rows * (0.7 + 0.6 * ((g * 5 + 3) % 7) / 7))) for g in reversed(range(groups))]
    layout = layout_of(sizes, 128)
    layout = layout[: len(layout) - len(layout) % 128 + sizes[-1][1] % 128 or None]  # M is no multiple of 128
    x, a, values = experts.rows(len(layout))
    padding = torch.tensor([g < 0 for g in layout], device=device)
    a = experts.spoil(a, padding)
    memory = torch.full((len(layout) + 128, n), 7, dtype=BF16, device=device)
    d, layout = memory[: len(layout)], integers(layout, device)
    b = experts.b
    if form == "nn":
        b = tuple(t.mT for t in b) if fp8 else b.mT.contiguous()
    if fp8 and groups == 3:  # scales in columns and padded, those of groups apart
        a, (codes, scales) = (a[0], tma_form(a[1])), b
        wider = torch.full((groups, scales.shape[1] + 2, scales.shape[2] + 1), NAN, device=device)
        b = codes, wider[:, 1:-1, :-1].copy_(scales)
    assert experts.name(f"{form}_contiguous")(a, b, d, layout) is None
    for group in range(groups):
        of_group = layout == group
        experts.check(d[of_group], x[of_group], values[of_group], group)
    assert bool((d[padding] == 0).all() and (memory[len(layout) :] == 7).all())


@pytest.mark.parametrize("fp8", (True, False))
@pytest.mark.parametrize("alignment", (64, 256))
@pytest.mark.parametrize("device", DEVICES)
def test_indices_of_groups_at_another_alignment(device, alignment, fp8):
    experts = Experts(device, 3, 64, 192, fp8)
    layout = layout_of([(2, 70), (0, 1), (1, alignment)], alignment, tail=9)
    x, a, values = experts.rows(len(layout))
    layout = integers(layout, device)
    a, d = experts.spoil(a, layout < 0), torch.full((len(layout), 64), NAN, dtype=BF16, device=device)
    before = deep_gemm.get_mk_alignment_for_contiguous_layout()
    deep_gemm.set_mk_alignment_for_contiguous_layout(alignment)
    try:
        experts.name("nt_contiguous")(a, experts.b, d, layout)
    finally:
        deep_gemm.set_mk_alignment_for_contiguous_layout(before)
    for group in range(3):
        of_group = layout == group
        experts.check(d[of_group], x[of_group], values[of_group], group)
    assert bool((d[layout < 0] == 0).all())


@pytest.mark.parametrize("fp8", (True, False))
@pytest.mark.parametrize("device", DEVICES)
def test_indices_without_rows_and_of_no_group(device, fp8):
    experts = Experts(device, 3, 64, 128, fp8)
    call = experts.name("nt_contiguous")
    for m in (0, 1, 128, 200):
        _, a, _ = experts.rows(m) if m else (None, (torch.empty(0, 128, dtype=experts.b[0].dtype, device=device),
                                                    torch.empty(0, 1, device=device)), None)  # fmt: skip
        a = a if fp8 or m else torch.empty(0, 128, dtype=BF16, device=device)
        d = torch.full((m, 64), NAN, dtype=BF16, device=device)
        call(experts.spoil(a, slice(None)), experts.b, d, integers([-1] * m, device))
        assert bool((d == 0).all())


@pytest.mark.parametrize("fp8", (True, False))
@pytest.mark.parametrize(
    "device, case",
    cases([(rows, (4, 70, 136, 192)) for rows in (64, 128, 256)], [(128, shape) for shape in TABLE[1:3]]),
)
def test_ends_say_where_groups_are_and_gaps_may_hold_anything(device, case, fp8):
    alignment, (groups, rows, n, k) = case
    experts = Experts(device, groups, n, k, fp8)
    sizes = [0 if g == 1 else int(rows * (0.7 + 0.6 * ((g * 5 + 3) % 7) / 7)) for g in range(groups)]
    begins, ends = [], []
    for size in sizes:
        begins.append(align(ends[-1], alignment) if ends else 0)
        ends.append(begins[-1] + size)
    m = ends[-1] + 300
    x, a, values = experts.rows(m)
    unused = torch.ones(m, dtype=torch.bool, device=device)
    for begin, end in zip(begins, ends, strict=True):
        unused[begin:end] = False
    a, d = experts.spoil(a, unused), torch.full((m, n), 7, dtype=BF16, device=device)
    options = {"recipe_a": (1, 128), "recipe_b": (128, 128), "disable_ue8m0_cast": True} if fp8 else {}
    before = deep_gemm.get_mk_alignment_for_contiguous_layout()
    deep_gemm.set_mk_alignment_for_contiguous_layout(alignment)
    try:
        experts.name("nt_contiguous")(
            a, experts.b, d, integers(ends, device), use_psum_layout=True, ensure_zero_padding=False,
            expected_m_for_psum_layout=rows, **options,
        )  # fmt: skip
    finally:
        deep_gemm.set_mk_alignment_for_contiguous_layout(before)
    for group, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        experts.check(d[begin:end], x[begin:end], values[begin:end], group)
    assert bool((d[align(ends[-1], alignment) :] == 7).all())


MASKED = [(32, 192, 6144, 7168), (6, 1024, 4096, 4096), (32, 20, 7168, 3072), (6, 20, 4096, 2048)]


@pytest.mark.parametrize("fp8", (True, False))
@pytest.mark.parametrize("device, shape", cases([(3, 20, 136, 192), (4, 90, 64, 320)], MASKED))
def test_masks_say_how_many_rows_of_each_group(device, shape, fp8):
    groups, rows, n, k = shape
    experts = Experts(device, groups, n, k, fp8, row_scales=groups == 4)
    most = 4096 if groups == 6 else int(rows * 1.3) + 3  # no multiple of any tile
    sizes = [[most, 0, 1, rows][g % 4] for g in range(groups)]
    x, a, values = experts.rows(groups, most)
    unused = torch.arange(most, device=device)[None] >= integers(sizes, device)[:, None]
    a = experts.spoil(a, unused)
    if fp8 and groups in (3, 32):
        # The way of batched experts: columns of scales one behind the other, which is TMA's form where M % 4 == 0.
        a = a[0], a[1].mT.contiguous().mT
    d = torch.full((groups, most, n), 7, dtype=BF16, device=device)
    assert experts.name("nt_masked")(a, experts.b, d, integers(sizes, device), rows) is None
    for group, size in enumerate(sizes):
        experts.check(d[group, :size], x[group, :size], values[group, :size], group)
    assert bool((d[unused] == 7).all())
    d.fill_(7)
    experts.name("nt_masked")(a, experts.b, d, masked_m=integers([0] * groups, device), expected_m=1, max_block_n=128)
    assert bool((d == 7).all())


@pytest.mark.parametrize("dtype", (F16, F32))
@pytest.mark.parametrize("row_scales", (False, True))
@pytest.mark.parametrize("device", DEVICES)
def test_groups_into_float16_and_float32(device, row_scales, dtype):
    experts = Experts(device, 2, 136, 192, True, row_scales)
    x, a, values = experts.rows(256)
    memory = torch.full((3, 256, 136), 7, dtype=dtype, device=device)
    layout, ends, masks = (integers(n, device) for n in ([1] * 128 + [0] * 128, [100, 256], [128, 50]))
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, experts.b, memory[0], layout)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, experts.b, memory[1], ends, use_psum_layout=True)
    each, out = tuple(t.view(2, 128, -1) for t in a), memory[2].view(2, 128, 136)
    deep_gemm.m_grouped_fp8_gemm_nt_masked(each, experts.b, out, masks, 64)
    for d, group, rows in (
        (memory[0], 1, slice(128)),
        (memory[0], 0, slice(128, 256)),
        (memory[1], 0, slice(100)),
        (memory[1], 1, slice(128, 256)),
        (memory[2], 0, slice(128)),
        (memory[2], 1, slice(128, 178)),
    ):
        experts.check(d[rows], x[rows], values[rows], group)
    assert bool((memory[1, 100:128] == 7).all() and (memory[2, 178:] == 7).all())


@pytest.mark.parametrize("device", DEVICES)
def test_an_index_beyond_the_groups_is_of_none(device):
    experts = Experts(device, 2, 64, 128, True)
    x, a, values = experts.rows(256)
    d = torch.full((256, 64), NAN, dtype=BF16, device=device)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, experts.b, d, integers([1] * 128 + [2] * 128, device))
    experts.check(d[:128], x[:128], values[:128], 1)
    assert bool((d[128:] == 0).all())


@pytest.mark.parametrize("device", DEVICES)
def test_ends_that_go_back_are_of_empty_groups(device):
    experts = Experts(device, 3, 64, 128, True)
    x, a, values = experts.rows(256)
    d = torch.full((256, 64), 7, dtype=BF16, device=device)
    ends = integers([100, 50, 200], device)  # the second would begin at 128
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, experts.b, d, ends, use_psum_layout=True)
    experts.check(d[:100], x[:100], values[:100], 0)
    experts.check(d[128:200], x[128:200], values[128:200], 2)


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_refused_of_groups(device):
    experts = Experts(device, 2, 64, 128, True)
    _, a, _ = experts.rows(128)
    b, d, layout = experts.b, torch.full((128, 64), 7, dtype=BF16, device=device), integers([0] * 128, device)
    contiguous = deep_gemm.m_grouped_fp8_gemm_nt_contiguous
    n_major = (b[0].mT.contiguous(), b[1].mT)
    packed = (b[0][..., :64].view(torch.int8), b[1])
    for call, arguments, options in (
        (contiguous, (a, b, d, layout[:100]), {}),
        (contiguous, (a, b, d, layout.long()), {}),
        (contiguous, (a, b, d.float(), layout[:3]), {}),
        (contiguous, (a, packed, d, layout), {}),
        (contiguous, (a, b, d, layout), {"expected_m_for_psum_layout": 64}),
        (contiguous, (a, b, d, layout), {"recipe": (1, 1, 128)}),
        (contiguous, (a, b, d[:, :32], layout), {}),
        (deep_gemm.m_grouped_fp8_gemm_nn_contiguous, (a, n_major, d, layout), {}),
        (deep_gemm.m_grouped_bf16_gemm_nt_contiguous, (a[0], b[0], d, layout), {}),
    ):
        with pytest.raises(RuntimeError):
            call(*arguments, **options)
    with pytest.raises(TypeError):
        deep_gemm.m_grouped_fp8_gemm_nn_contiguous(a, b, d, layout, expected_m_for_psum_layout=1)
    each, out, masks = tuple(t[None].expand(2, *t.shape) for t in a), torch.stack((d, d)), integers([1, 1], device)
    for expected, options in ((0, {}), (-1, {}), (4, {"enable_overlap": True}), (4, {"signal": masks})):
        with pytest.raises(RuntimeError):
            deep_gemm.fp8_m_grouped_gemm_nt_masked(each, b, out, masks, expected, **options)
    deep_gemm.fp8_m_grouped_gemm_nt_masked(each, b, out, masks, 4, enable_overlap=False, signal=None)
    assert bool((d == 7).all())
    assert masks.dtype == INT
