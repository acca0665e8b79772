"""MXFP8 as it is, by our own functions and under DeepGEMM's names, and as FP8 with a scale for each 128 of K or for
128x128 blocks: values that are kept to the bit, and those that cannot be."""

import pytest

import finegemm
from finegemm import deep_gemm
from finegemm.mxfp8 import decode_scales, pack_scales, reencode
from torch_support import DEVICES, relative, torch

E4M3 = torch.float8_e4m3fn


def mx(rows, k, device, spread=0):
    """Codes of values from 1/4 to 2, some blocks 2^spread smaller, and exponents for each 32."""
    x = torch.rand(rows, -(-k // 32), 32, device=device) * 3.5 - 1.75
    x += x.sign() / 4
    x[:, 1::4] *= 2.0**-spread
    exponents = torch.ceil(torch.log2(x.abs().amax(-1) / 448)).to(torch.int32) + 127
    codes = (x * torch.exp2(127.0 - exponents)[..., None]).to(E4M3)
    return codes.view(rows, -1)[:, :k].contiguous(), exponents.to(torch.uint8)


def values(codes, scales, width):
    return codes.float() * scales.repeat_interleave(width, -1)[..., : codes.shape[-1]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("k", [640, 416])
def test_blocks_of_like_size_keep_their_values(device, k):
    codes, exponents = mx(70, k, device)
    x = reencode(codes, exponents)
    assert x.codes.shape == codes.shape and x.scales.shape == (70, -(-k // 128)) and float(x.exact) == 1
    assert torch.equal(values(x.codes, x.scales, 128), values(codes, decode_scales(exponents, -(-k // 32)), 32))


@pytest.mark.parametrize("device", DEVICES)
def test_blocks_that_differ_much_are_counted_and_within_the_bound(device):
    codes, exponents = mx(70, 512, device, spread=12)
    exponents[:35] = 120  # rows whose blocks have one scale keep all
    x = reencode(codes, exponents)
    assert 0.5 <= float(x.exact) < 0.7
    was, now = (
        y.unflatten(-1, (4, 128)) for y in (values(codes, decode_scales(exponents, 16), 32), values(x[0], x[1], 128))
    )
    assert torch.equal(was[:35], now[:35])
    assert ((was - now).abs().amax(-1) <= 2.0**-17 * was.abs().amax(-1)).all() and not torch.equal(was, now)


def any_mx(shape, device):
    """Any codes, with zeros in some groups, and exponents about 3, 127 and 251 by blocks of rows, some of them others.
    0 and 255 among them."""
    *_, m, k = shape
    codes = torch.randint(0, 256, shape, device=device, dtype=torch.uint8)
    codes[..., 5:7, :] = 0
    codes[..., 128:256, 128:] = 0x80
    middles = torch.tensor([3, 127, 251], device=device).repeat_interleave(128)[:m, None]
    exponents = middles + torch.randint(-6, 7, (*shape[:-1], -(-k // 32)), device=device)
    others = torch.rand(exponents.shape, device=device)
    exponents[others < 0.05] = torch.randint_like(exponents, 0, 256)[others < 0.05]
    return codes.view(E4M3), exponents.clamp(0, 255).to(torch.uint8)


def plainly(codes, exponents, blocks):
    """Codes, scales and the number of groups that change, as they are defined, in float64."""
    *_, m, k = codes.shape
    powers = torch.exp2(exponents.double() - 127)
    powers[exponents == 0], powers[exponents == 255] = 0, torch.nan
    x, height = values(codes, powers, 32), 128 if blocks else 1
    tail = (0, -k % 128, 0, -m % height)
    tiles = torch.nn.functional.pad(x, tail).unflatten(-1, (-1, 128)).unflatten(-3, (-1, height))
    largest = tiles.nan_to_num(0).abs().amax((-1, -3))
    mantissa, exponent = torch.frexp(largest / 448)
    scales = torch.ldexp(torch.ones_like(largest), exponent - (mantissa == 0.5).int()).clamp(min=2.0**-126)
    scales = torch.where(largest == 0, 1, scales)
    of_values = scales.repeat_interleave(height, -2).repeat_interleave(128, -1)[..., :m, :k]
    q = (x / of_values).to(E4M3)
    differs = (q.double() * of_values != x) & ~x.isnan()
    groups = torch.nn.functional.pad(differs, (0, -k % 128)).unflatten(-1, (-1, 128)).any(-1)
    return torch.where(x.isnan(), 0x7F, q.view(torch.uint8)), scales.float(), int(groups.sum()), groups.numel()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("shape", [(300, 416), (2, 260, 144), (3, 1, 256), (1, 16)])
def test_reencoded_codes_and_scales_are_those_of_the_definition(device, blocks, shape):
    codes, exponents = any_mx(shape, device)
    want_q, want_scales, want_changed, groups = plainly(codes, exponents, blocks)
    words, changed = pack_scales(exponents, exponents.shape[-1]), torch.full((1,), 5, dtype=torch.int32, device=device)
    q, scales = finegemm.reencode(codes, words, blocks=blocks, changed=changed)
    assert q.dtype == E4M3 and torch.equal(q.view(torch.uint8), want_q) and torch.equal(scales, want_scales)
    assert int(changed) == 5 + want_changed
    assert scales.is_contiguous() if blocks else scales.stride(-2) == 1, "as products read them fastest"

    given = torch.zeros_like(codes), torch.zeros_like(want_scales)
    results = finegemm.reencode(codes, words.mT.contiguous().mT, *given)
    assert all(x is y for x, y in zip(results, given, strict=True))
    assert torch.equal(given[0].view(torch.uint8), want_q) and torch.equal(given[1], want_scales)

    x = reencode(codes[None, None], exponents[None, None], blocks=blocks)
    assert torch.equal(x.codes[0, 0].view(torch.uint8), want_q) and torch.equal(x.scales[0, 0], want_scales)
    assert x.exact.dtype == torch.float32 and x.exact.shape == ()
    assert float(x.exact) == pytest.approx(1 - want_changed / groups)


def test_reencode_takes_each_form_of_scales():
    codes, exponents = any_mx((130, 416), "cpu")
    exponents.clamp_(0, 254)
    want = reencode(codes, exponents)
    for form in forms_of(exponents):
        x = reencode(codes.t().contiguous().t(), form)
        assert torch.equal(x.codes.view(torch.uint8), want.codes.view(torch.uint8)), "K need not be contiguous"
        assert torch.equal(x.scales, want.scales) and torch.equal(x.exact, want.exact)


def test_an_exponent_of_255_makes_its_own_values_nan():
    codes, exponents = mx(2, 256, "cpu")
    exponents[0, 1] = 255
    for blocks in (False, True):
        x = reencode(codes, exponents, blocks)
        spoilt = x.codes.float().isnan()
        assert spoilt[0, 32:64].all() and spoilt.sum() == 32 and x.scales.isfinite().all() and float(x.exact) == 1


def test_scales_that_are_no_powers_of_two_are_rounded_into_the_codes():
    codes, exponents = mx(5, 160, "cpu")
    scales = decode_scales(exponents, 5) * 1.3
    x = reencode(codes, scales)
    assert 0.01 < relative(values(x.codes, x.scales, 128), values(codes, scales, 32)) < 0.04
    assert torch.frexp(x.scales)[0].eq(0.5).all() and float(x.exact) < 0.1
    with pytest.raises(finegemm.InvalidArgument, match=r"^scales: are float32 of which some are no powers of two"):
        reencode(codes, scales, blocks=True)


def test_each_form_of_scales_says_the_same():
    exponents = torch.randint(0, 255, (5, 20), dtype=torch.uint8)
    packed = exponents.view(5, 5, 4).flip(-1).to(torch.int64)
    words = sum(packed[..., i] << 8 * (3 - i) for i in range(4)).to(torch.int32)
    floats = decode_scales(exponents, 20)
    mn_major = words.t().contiguous().t()
    forms = [words, mn_major, floats, exponents.t().contiguous().t()]
    if hasattr(torch, "float8_e8m0fnu"):
        forms.append(exponents.view(torch.float8_e8m0fnu))
    for form in forms:
        assert torch.equal(decode_scales(form, 20), floats)
    assert torch.equal(decode_scales(words, 19), floats[:, :19]), "the last word has bytes to spare"
    assert decode_scales(torch.tensor([[0, 127, 255]], dtype=torch.uint8), 3).tolist() == [[0, 1, float("inf")]]


@pytest.mark.parametrize("device", DEVICES)
def test_products_take_what_becomes_of_it(device):
    (a, of_a), (b, of_b) = mx(33, 512, device), mx(72, 512, device)
    want = values(a, decode_scales(of_a, 16), 32) @ values(b, decode_scales(of_b, 16), 32).T
    x, w = reencode(a, of_a), reencode(b.view(1, 72, 512), of_b.view(1, 72, 16))
    assert relative(finegemm.gemm(x.codes, x.scales, w.codes[0], w.scales[0]), want) < 0.005
    rows, scales = finegemm.quantize_rows(values(a, decode_scales(of_a, 16), 32))
    masks = torch.tensor([20], dtype=torch.int32, device=device)
    d = finegemm.grouped_gemm(rows[None], scales[None], w.codes, w.scales, masked_m=masks)
    assert relative(d[0, :20], want[:20]) < 0.05, "with activations quantised to 1x128"
    w = reencode(b, of_b, blocks=True)
    assert w.scales.shape == (1, 4) and float(w.exact) == 1
    assert relative(finegemm.gemm(x.codes, x.scales, w.codes, w.scales), want) < 0.005


def test_other_codes_and_scales_are_refused():
    codes, exponents = mx(4, 128, "cpu")
    with pytest.raises(finegemm.InvalidArgument, match=r"^scales: has 3 columns of torch.uint8, must have one scale"):
        reencode(codes, exponents[:, :3])
    with pytest.raises(finegemm.InvalidArgument, match=r"^scales: have shape \[3, 4\]"):
        reencode(codes, exponents[:3])
    with pytest.raises(finegemm.InvalidArgument, match=r"^scales: has dtype torch.float16"):
        reencode(codes, exponents.to(torch.float16))
    with pytest.raises(finegemm.InvalidArgument, match=r"^codes: are torch.uint8 of K = 128"):
        reencode(codes.view(torch.uint8), exponents)


def random_mx(rows, k, device, blocks=32):
    """Codes of any values, and any exponents near 1."""
    codes = torch.randn(*rows, k, device=device).to(E4M3)
    exponents = torch.randint(119, 131, (*rows, -(-k // blocks)), device=device).to(torch.uint8)
    return codes, exponents


def right(a, of_a, b, of_b, width_of_a=32):
    """The product in float64."""
    x = values(a.double(), decode_scales(of_a, -(-a.shape[-1] // width_of_a)), width_of_a)
    return x.double() @ values(b.double(), decode_scales(of_b, -(-b.shape[-1] // 32)), 32).double().mT


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("k", [640, 416])
def test_a_product_takes_words_of_exponents_for_both_and_for_b_alone(device, k):
    (a, of_a), (b, of_b) = random_mx([33], k, device), random_mx([72], k, device)
    words_of_a, words_of_b = pack_scales(of_a, -(-k // 32)), pack_scales(of_b, -(-k // 32))
    d = finegemm.gemm(a, words_of_a, b, words_of_b)
    assert d.dtype == torch.bfloat16 and relative(d.double(), right(a, of_a, b, of_b)) < 0.003
    mn_major = words_of_a.t().contiguous().t()
    assert torch.equal(finegemm.gemm(a, mn_major, b, words_of_b), d)
    of_128 = torch.rand(33, -(-k // 128), device=device) + 0.5
    d = finegemm.gemm(a, of_128, b, words_of_b)
    assert relative(d.double(), right(a, of_128, b, of_b, 128)) < 0.003


@pytest.mark.parametrize("device", DEVICES)
def test_groups_take_them_in_every_form(device):
    (a, of_a), (b, of_b) = random_mx([2, 60], 384, device), random_mx([2, 72], 384, device)
    sfa, sfb = pack_scales(of_a, 12), pack_scales(of_b, 12)
    wanted = right(a, of_a, b, of_b)
    masks = torch.tensor([60, 7], dtype=torch.int32, device=device)
    d = finegemm.grouped_gemm(a, sfa, b, sfb, masked_m=masks)
    assert relative(d[0].double(), wanted[0]) < 0.003 and relative(d[1, :7].double(), wanted[1, :7]) < 0.003
    offsets = torch.tensor([0, 60, 120], dtype=torch.int32, device=device)
    flat = finegemm.grouped_gemm(a.view(120, 384), sfa.view(120, -1), b, sfb, offsets=offsets)
    assert torch.equal(flat[:60], d[0]) and relative(flat[60:].double(), wanted[1]) < 0.003


def test_words_of_bytes_are_the_same_memory_where_rows_are_whole_words():
    exponents = torch.randint(0, 255, (6, 8), dtype=torch.uint8)
    words = pack_scales(exponents, 8)
    assert words.shape == (6, 2) and words.data_ptr() == exponents.data_ptr()
    assert torch.equal(decode_scales(words, 8), decode_scales(exponents, 8))
    assert pack_scales(words, 8) is words
    one_row = exponents.flatten()[:7].view(1, 7)[:, :4]  # whose stride is no whole number of words
    others = exponents[:, 1:], exponents[:, :5], one_row, decode_scales(exponents, 8)
    for other in (exponents.t().contiguous().t(), *others):
        blocks = other.shape[1]
        packed = pack_scales(other, blocks)
        assert torch.equal(decode_scales(packed, blocks), decode_scales(other, blocks))
        assert blocks % 4 == 0 or not (packed[:, -1] >> 8 * (blocks % 4)).any(), "bytes behind the last are 0"
    with pytest.raises(finegemm.InvalidArgument, match=r"^sf: has scales that are no powers of two"):
        pack_scales(torch.full((2, 4), 0.75), 4, "sf")
    with pytest.raises(finegemm.InvalidArgument, match=r"^scales: has 7 columns of torch.uint8"):
        pack_scales(exponents[:, :7], 8)


@pytest.mark.parametrize("device", DEVICES)
def test_other_products_with_exponents_are_refused(device):
    (a, of_a), (b, of_b) = random_mx([8], 256, device), random_mx([16], 256, device)
    sfa, sfb, ones = pack_scales(of_a, 8), pack_scales(of_b, 8), torch.ones(16, 2, device=device)
    with pytest.raises(finegemm.InvalidArgument, match=r"^sfb: has dtype f32, but sfa has ue8m0x4"):
        finegemm.gemm(a, sfa, b, ones)
    with pytest.raises(
        finegemm.InvalidArgument, match=r"^sfb: has shape \[16, 1\], must be \[16, 2\] \(a word of four"
    ):
        finegemm.gemm(a, sfa, b, sfb[:, :1])
    with pytest.raises(finegemm.InvalidArgument, match=r"no kernel for one product and scales for each 32 of K"):
        finegemm.gemm(a, sfa, b, sfb, out_dtype="float32")
    with pytest.raises(finegemm.InvalidArgument, match=r"finegemm.mxfp8.pack_scales packs them"):
        finegemm.gemm(a, of_a, b, sfb)


def forms_of(scales):
    """What DeepGEMM's callers pass of bytes: themselves, words, MN-major words, floats."""
    words = pack_scales(scales, scales.shape[-1])
    return scales, words, words.mT.contiguous().mT, decode_scales(scales, scales.shape[-1])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("widths", [(32, 32), (128, 32), (32, 128), (128, 128)])
def test_the_names_of_a_fork_take_each_form_of_scales(device, widths):
    k, (of_a, of_b) = 640, widths
    a, b = random_mx([128], k, device, of_a), random_mx([2, 48], k, device, of_b)
    layout = torch.tensor([1] * 40 + [-1] * 24 + [0] * 60 + [-1] * 4, dtype=torch.int32, device=device)
    x, w = (
        values(codes.double(), decode_scales(s, s.shape[-1]).double(), of) for (codes, s), of in ((a, of_a), (b, of_b))
    )
    recipes = {"recipe_a": (1, of_a), "recipe_b": (1, of_b)}
    for sfa, sfb in zip(forms_of(a[1]), reversed(forms_of(b[1])), strict=True):
        d = torch.full((128, 48), 7, dtype=torch.bfloat16, device=device)
        deep_gemm.m_grouped_mxfp8_fp8_gemm_nt_contiguous((a[0], sfa), (b[0], sfb), d, layout, **recipes)
        assert relative(d[:40].double(), x[:40] @ w[1].T) < 0.003
        assert relative(d[64:124].double(), x[64:124] @ w[0].T) < 0.003
        assert (d[40:64] == 0).all() and (d[124:] == 0).all()
    d = torch.full((2, 64, 48), 7, dtype=torch.bfloat16, device=device)
    masks = torch.tensor([3, 0], dtype=torch.int32, device=device)
    pair = a[0].view(2, 64, k), a[1].view(2, 64, -1)
    deep_gemm.m_grouped_mxfp8_fp8_gemm_nt_masked(pair, b, d, masks, 128)
    assert relative(d[0, :3].double(), x[:3] @ w[0].T) < 0.003 and (d[0, 3:] == 7).all() and (d[1] == 7).all()


@pytest.mark.parametrize("device", DEVICES)
def test_the_names_of_a_fork_refuse_other_scales_by_their_own_names(device):
    a, b = random_mx([128], 640, device), random_mx([1, 48], 640, device)
    d = torch.empty((128, 48), dtype=torch.bfloat16, device=device)
    layout = torch.zeros(128, dtype=torch.int32, device=device)
    with pytest.raises(RuntimeError, match=r"^a\[1\]: has 19 columns"):
        deep_gemm.m_grouped_mxfp8_fp8_gemm_nt_contiguous((a[0], a[1][:, :19]), b, d, layout)
    with pytest.raises(RuntimeError, match=r"^recipe_b: is"):
        deep_gemm.m_grouped_mxfp8_fp8_gemm_nt_contiguous(a, b, d, layout, recipe_b=(1, 64))
