"""Weights of 4 bits: packed as checkpoints have them, and products that have the bits of the same weights in FP8."""

import numpy as np
import pytest

import finegemm
from finegemm import InvalidArgument

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def nibbles(codes, high_first=False):
    """[..., K] of [..., K/2]."""
    parts = (codes >> 4, codes & 15) if high_first else (codes & 15, codes >> 4)
    return np.stack(parts, -1).reshape(*codes.shape[:-1], -1).astype(np.int64)


def values_of_mxfp4(codes, exponents, high_first=False):
    code = nibbles(codes, high_first)
    return np.where(code > 7, -1, 1) * E2M1[code & 7] * np.repeat(np.exp2(exponents.astype(float) - 127), 32, axis=-1)


def e4m3(codes):
    """Values of e4m3 codes."""
    field, mantissa = codes >> 3 & 15, codes & 7
    magnitude = np.where(field == 0, mantissa * 2.0**-9, (8 + mantissa) * np.exp2(field.astype(float) - 10))
    return np.where(codes > 127, -magnitude, magnitude)


def spread(scales, rows, cols):
    """Scales of blocks or of rows for each of the weights."""
    down = 128 if scales.shape[0] != rows else 1
    return np.repeat(np.repeat(scales, down, 0), 128, 1)[:rows, :cols]


def random_bytes(seed, *shape, low=0, high=256):
    return np.random.default_rng(seed).integers(low, high, shape, dtype=np.uint8)


def activations(seed, *shape):
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    codes, scales = zip(*(finegemm.quantize_rows(m) for m in x.reshape(-1, *shape[-2:])), strict=True)
    return np.stack(codes).reshape(shape), np.stack(scales).reshape(*shape[:-1], -1)


@pytest.mark.parametrize("high_first", [False, True])
def test_mxfp4_is_unpacked_to_its_values(high_first):
    codes, exponents = random_bytes(1, 200, 160), random_bytes(2, 200, 10, low=120, high=132)
    weights = finegemm.pack_mxfp4(codes, exponents, high_first=high_first)
    assert (weights.format, weights.rows, weights.cols, weights.data.shape[0]) == ("mxfp4", 200, 320, 1)
    q, scales = finegemm.unpack_four_bit(weights)
    found = e4m3(q.view(np.uint8)) * spread(scales, 200, 320)
    assert (found == values_of_mxfp4(codes, exponents, high_first)).all()


@pytest.mark.parametrize("offset", [False, True])
def test_int4_is_unpacked_to_its_values(offset):
    codes = random_bytes(3, 2, 40, 128)
    scales = (random_bytes(4, 2, 40, 2).astype(np.float32) + 1).view(np.uint32) >> 16
    weights = finegemm.pack_int4(codes, scales.astype(np.uint16), offset=offset)
    code = nibbles(codes)
    integers = code - 8 if offset else np.where(code > 7, code - 16, code)
    for group in range(2):
        q, found = finegemm.unpack_four_bit(weights, group)
        assert (e4m3(q.view(np.uint8)) == integers[group]).all()
        assert (found == (scales[group] << 16).astype(np.uint32).view(np.float32)).all()


@pytest.mark.parametrize("numerics", ["fast", "exact", "hopper"])
@pytest.mark.parametrize("kind", ["mxfp4", "int4"])
def test_a_product_has_the_bits_of_the_same_weights_in_fp8(kind, numerics):
    codes = random_bytes(5, 3, 136, 128)
    if kind == "mxfp4":
        weights = finegemm.pack_mxfp4(codes, random_bytes(6, 3, 136, 8, low=110, high=116))
    else:
        weights = finegemm.pack_int4(codes, np.full((3, 136, 2), 0x3C00, np.uint16))
    fp8 = [finegemm.unpack_four_bit(weights, group) for group in range(3)]
    b, sfb = (np.stack(x) for x in zip(*fp8, strict=True))
    a, sfa = activations(7, 50, 256)
    for groups in ({"offsets": np.array([0, 20, 20, 47], np.int32)}, {"prefix_sums": np.array([5, 16, 50], np.int32)}):
        d, wanted = (np.full((50, 136), 0x7FFF, np.uint16) for _ in range(2))
        finegemm.four_bit_gemm(a, sfa, weights, d, numerics=numerics, alignment=16, **groups)
        finegemm.grouped_gemm(a, sfa, b, sfb, wanted, numerics=numerics, alignment=16, **groups)
        assert (d == wanted).all() and (d[47 if "offsets" in groups else 5] == 0x7FFF).all()
    a, sfa = activations(8, 3, 10, 256)
    masked_m = np.array([3, 0, 10], np.int32)
    d = finegemm.four_bit_gemm(a, sfa, weights, numerics=numerics)
    for group in range(3):
        wanted = finegemm.gemm(a[group], sfa[group], b[group], sfb[group], numerics=numerics, batch_invariant=True)
        assert (np.asarray(d[group]).view(np.uint16) == np.asarray(wanted).view(np.uint16)).all()
    partly = np.zeros((3, 10, 136), np.uint16)
    finegemm.four_bit_gemm(a, sfa, weights, partly, masked_m=masked_m, numerics=numerics)
    whole = np.asarray(d).view(np.uint16)
    for group, rows in enumerate(masked_m):
        assert (partly[group, :rows] == whole[group, :rows]).all() and not partly[group, rows:].any()


@pytest.mark.parametrize("kind", ["mxfp4", "int4"])
def test_weights_with_their_fp8_give_the_same_bits(kind):
    codes = random_bytes(11, 2, 136, 128)
    if kind == "mxfp4":
        weights = finegemm.pack_mxfp4(codes, random_bytes(12, 2, 136, 8, low=110, high=116))
    else:
        weights = finegemm.pack_int4(codes, np.full((2, 136, 2), 0x3C00, np.uint16))
    both = weights.with_fp8()
    for group in range(2):
        q, scales = finegemm.unpack_four_bit(weights, group)
        assert (np.asarray(both.fp8[group]).view(np.uint8) == np.asarray(q).view(np.uint8)).all()
        assert (both.fp8_scales[group] == scales).all()
    a, sfa = activations(13, 70, 256)
    groups = {"offsets": np.array([3, 20, 70], np.int32)}
    d, wanted = (np.full((70, 136), 0x7FFF, np.uint16) for _ in range(2))
    finegemm.four_bit_gemm(a, sfa, weights, wanted, numerics="hopper", **groups)
    finegemm.four_bit_gemm(a, sfa, both, d, numerics="hopper", expected_m=35, **groups)
    assert (d == wanted).all() and (d[:3] == 0x7FFF).all() and (d[3:] != 0x7FFF).any()
    spoilt = np.asarray(both.fp8).view(np.uint8)
    spoilt[1, 7] = 0x7F
    finegemm.four_bit_gemm(a, sfa, both, d, **groups)
    assert ((d[20:, 7] & 0x7FFF) > 0x7F80).all(), "these are what is multiplied on the CPU"


def test_a_layer_of_experts_has_the_bits_of_its_fp8():
    tokens, hidden, pairs = 9, 256, 160
    shapes = ((3, 2 * pairs, hidden), (3, hidden, pairs))
    gate_up, down = (
        finegemm.pack_mxfp4(random_bytes(i, g, n, k // 2), random_bytes(i + 1, g, n, k // 32, low=112, high=122))
        for i, (g, n, k) in zip((14, 16), shapes, strict=True)
    )
    x = np.random.default_rng(18).standard_normal((tokens, hidden)).astype(np.float32).view(np.uint32) >> 16
    x = x.astype(np.uint16)
    ids = random_bytes(19, tokens, 2, high=4).astype(np.int32)
    both = gate_up.with_fp8(), down.with_fp8()
    of_fp8 = (t for w in both for t in (w.fp8, w.fp8_scales))
    wanted = np.asarray(finegemm.moe(x, ids, *of_fp8, numerics="hopper")).view(np.uint16)
    for weights in ((gate_up, down), both):
        d = finegemm.moe(x, ids, weights[0], None, weights[1], None, numerics="hopper")
        assert (np.asarray(d).view(np.uint16) == wanted).all() and wanted.any()
    with pytest.raises(
        InvalidArgument, match=r"^down_packed: is null, but gate_up_packed is not; pass both or neither"
    ):
        finegemm.moe(x, ids, gate_up, None, both[1].fp8, both[1].fp8_scales)
    with pytest.raises(InvalidArgument, match=r"^gate_up_scales: is given, but gate_up is of 4 bits"):
        finegemm.moe(x, ids, gate_up, sum(both[0].fp8_scales), down, None)


def test_plans_say_which_form_many_rows_take():
    def told(rows, **options):
        return finegemm.explain_four_bit(8 * rows, 4096, 7168, "mxfp4", groups=8, device="h200", **options)

    assert told(16, fp8=True)["kernel"] == "FineGEMM_four_bit_Mxfp4"
    assert told(1024)["kernel"] == "FineGEMM_four_bit_Mxfp4_many"
    many = told(1024, fp8=True)
    fastest = min(many["forms"], key=lambda x: x["us"])
    assert (many["kernel"], many["us"]) == (fastest["kernel"], fastest["us"])
    few = finegemm.explain_moe(16, 8, 7168, 2048, 256, four_bit="mxfp4", device="h200")
    assert [x["call"] for x in few["launches"]].count("four_bit_gemm") == 2 and not few["fused"]
    with pytest.raises(InvalidArgument, match=r"^gate_up: is given beside weights of int4"):
        finegemm.explain_moe(16, 8, 7168, 2048, 256, four_bit="int4", device="h200")
    assert finegemm.explain_moe(16, 8, 7168, 2048, 256, four_bit="int4", four_bit_alone=True)["launches"]


def test_misuse_is_an_error_that_says_what_to_do():
    codes, exponents = random_bytes(9, 16, 64), np.full((16, 4), 127, np.uint8)
    weights = finegemm.pack_mxfp4(codes, exponents)
    a, sfa = activations(10, 4, 128)
    with pytest.raises(InvalidArgument, match=r"^exponents: has shape \[16, 3\], must be \[16, 4\]"):
        finegemm.pack_mxfp4(codes, exponents[:, :3])
    with pytest.raises(InvalidArgument, match=r"^exponents: is NaN \(255\) at \[3, 1\]"):
        finegemm.pack_mxfp4(codes, np.where(np.arange(64).reshape(16, 4) == 13, 255, exponents).astype(np.uint8))
    with pytest.raises(InvalidArgument, match=r"^weights: has K = 96 columns, must be a multiple of 128"):
        finegemm.pack_int4(codes[:, :48], np.full((16, 1), 0x3F80, np.uint16))
    with pytest.raises(InvalidArgument, match=r"^scales: has dtype f32, must be bf16; convert it"):
        finegemm.pack_int4(codes, np.ones((16, 1), np.float32))
    with pytest.raises(InvalidArgument, match=r"^a: has K = 64 columns, but b has 128"):
        finegemm.four_bit_gemm(a[:, :64], sfa, weights)
    with pytest.raises(InvalidArgument, match=r"^packed: has shape"):
        finegemm.four_bit_gemm(a, sfa, finegemm.FourBitWeights(weights.data[:, :-16], "mxfp4", 16, 128))
    with pytest.raises(InvalidArgument, match=r"^format: is 'nvfp4', must be 'mxfp4' or 'int4'"):
        finegemm.four_bit_gemm(a, sfa, finegemm.FourBitWeights(weights.data, "nvfp4", 16, 128))
    with pytest.raises(InvalidArgument, match=r"^offsets: has 3 offsets, must have 2"):
        finegemm.four_bit_gemm(a, sfa, weights, offsets=np.array([0, 2, 4], np.int32))
