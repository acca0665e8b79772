"""finegemm.moe on NumPy arrays and torch tensors, beside the calls that it is made of and a layer in float32."""

import itertools
import json
import statistics

import numpy as np
import pytest

import finegemm
from finegemm import routing
from support import BF16, E4M3, ROOT, program

RANDOM = np.random.default_rng(43)
TOKENS, CHOICES, EXPERTS, HIDDEN, PAIRS = 23, 3, 5, 256, 128
NOBODYS = 3  # expert that no token chooses


def quantised(w):
    experts, n, k = w.shape
    q, scales = finegemm.quantize_blocks(w.reshape(experts * n, k))
    return q.reshape(w.shape), scales.reshape(experts, n // 128, -1)


def layer():
    """x, ids, weights, and experts' weights: one token is nobody's, one chooses an expert twice."""
    x = RANDOM.standard_normal((TOKENS, HIDDEN)).astype(BF16)
    ids = RANDOM.choice([i for i in range(-1, EXPERTS + 2) if i != NOBODYS], (TOKENS, CHOICES))
    ids[4], ids[7] = (-1, EXPERTS, 1 << 40), (2, 2, 0)
    return (
        x,
        ids,
        RANDOM.random(ids.shape).astype(np.float32),
        *(
            part
            for shape in ((EXPERTS, 2 * PAIRS, HIDDEN), (EXPERTS, HIDDEN, PAIRS))
            for part in quantised((RANDOM.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32))
        ),
    )


X, IDS, WEIGHTS, *OF_EXPERTS = layer()


def bits(x):
    return np.asarray(x).view(np.uint16)


def in_float(q, scales):
    return q.astype(np.float32) * scales.repeat(128, 1).repeat(128, 2)


def plain():
    """A token and a choice at a time."""
    gate_up, down = in_float(*OF_EXPERTS[:2]), in_float(*OF_EXPERTS[2:])
    out = np.zeros(X.shape, np.float32)
    for t, c in itertools.product(range(TOKENS), range(CHOICES)):
        if 0 <= (e := IDS[t, c]) < EXPERTS:
            gate, up = np.split(gate_up[e] @ X[t].astype(np.float32), 2)
            out[t] += WEIGHTS[t, c] * (down[e] @ (gate / (1 + np.exp(-gate)) * up))
    return out


def test_a_layer_is_as_good_as_its_roundings():
    """Tokens and what leaves the activation are rounded to e4m3, 2.4% of a value in root mean square each, which sums
    average over: 3.4% together (the weights are those of the reference). Twice that is left for chance."""
    wanted = plain()
    for options in ({"fused": True}, {"fused": False}, {"f32_between": True}):
        out = finegemm.moe(X, IDS, *OF_EXPERTS, WEIGHTS, **options).astype(np.float32)
        some = np.linalg.norm(wanted, axis=1) > 0
        assert not out[~some].any()
        assert (~some).sum() >= 1
        off = np.linalg.norm(out - wanted, axis=1)[some] / np.linalg.norm(wanted, axis=1)[some]
        assert off.max() < 2 * 2**0.5 * 0.024
        assert np.median(off) > 0.01, "less than the roundings: that would not be FP8"


def experts_of(q, scales, weights=None, **groups):
    """Both products of rows of experts, and SwiGLU between them."""
    between = finegemm.grouped_gemm(q, scales, *OF_EXPERTS[:2], **groups)
    q, scales = finegemm.swiglu_quantize(between, weights=weights, to_bf16=True, **groups)
    return finegemm.grouped_gemm(q, scales, *OF_EXPERTS[2:], **groups)


def test_what_each_form_of_a_dispatcher_delivers_becomes_the_layer():
    """A rank's part of a dispatch by DeepEP: ids of local experts, else -1; its sums over ranks are not part of it."""
    local = np.where((IDS >= 0) & (IDS < EXPERTS), IDS, -1)
    wanted = finegemm.moe(X, local, *OF_EXPERTS, WEIGHTS)
    normal = routing.from_deepep_normal(local, EXPERTS, alignment=16)
    codes = finegemm.permute_quantize(X, normal.inverse, rows=normal.rows)
    sums = routing.to_deepep(experts_of(*codes, prefix_sums=normal.numbers, alignment=16), normal, WEIGHTS)
    assert np.array_equal(bits(sums), bits(wanted))

    inverse, count, _ = finegemm.route(local, EXPERTS, form="masked_m")
    delivered = finegemm.permute_quantize(X, inverse, groups=EXPERTS, rows=TOKENS)
    masked = routing.from_deepep_low_latency(delivered, count)
    d = routing.to_deepep(experts_of(*delivered, masked_m=masked.numbers), masked)
    assert d.shape == (EXPERTS, masked.rows, HIDDEN)
    assert np.array_equal(bits(finegemm.combine(d, inverse, WEIGHTS)), bits(wanted)), "as DeepEP's combine adds up"

    inverse, ends, permutation = finegemm.route(local, EXPERTS, alignment=16)
    expanded = routing.from_deepep_expanded(ends, permutation.size)
    weights = np.where(permutation >= 0, WEIGHTS.ravel()[permutation], 0)
    delivered = finegemm.permute_quantize(X, inverse, rows=expanded.rows)
    d = routing.to_deepep(experts_of(*delivered, weights, prefix_sums=expanded.numbers, alignment=16), expanded)
    first = finegemm.moe(X, local, *OF_EXPERTS, WEIGHTS, weights_first=True)
    assert np.array_equal(bits(finegemm.combine(d, inverse)), bits(first)), "as DeepEP's combine adds up"
    assert not np.array_equal(bits(first), bits(wanted))


def test_its_bits_are_those_of_the_calls_that_it_is_made_of():
    rows = IDS.size
    inverse, offsets, _ = finegemm.route(IDS, EXPERTS, form="offsets", rows=rows)
    q, scales = finegemm.permute_quantize(X, inverse, rows=rows)
    between = finegemm.grouped_gemm(q, scales, *OF_EXPERTS[:2], offsets=offsets)
    q, scales = finegemm.swiglu_quantize(between, offsets=offsets, to_bf16=True, gate_limit=2.0)
    out = finegemm.combine(finegemm.grouped_gemm(q, scales, *OF_EXPERTS[2:], offsets=offsets), inverse, WEIGHTS)
    for fused in (True, False, None):
        assert np.array_equal(bits(finegemm.moe(X, IDS, *OF_EXPERTS, WEIGHTS, gate_limit=2.0, fused=fused)), bits(out))


@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_biases_are_added_in_float32_before_the_activation_and_behind_the_second_product(dtype):
    rows = IDS.size
    gate_up_bias, down_bias = (
        RANDOM.standard_normal((EXPERTS, n)).astype(np.float32).astype(dtype) for n in (2 * PAIRS, HIDDEN)
    )
    gate_up_bias[NOBODYS], down_bias[NOBODYS] = np.nan, np.nan
    like_gpt_oss = {"gate_limit": 7.0, "gate_alpha": 1.702, "up_offset": 1.0}
    inverse, offsets, _ = finegemm.route(IDS, EXPERTS, form="offsets", rows=rows)
    of_rows = np.clip(np.searchsorted(offsets, np.arange(rows), side="right") - 1, 0, EXPERTS - 1)
    q, scales = finegemm.permute_quantize(X, inverse, rows=rows)
    between = finegemm.grouped_gemm(q, scales, *OF_EXPERTS[:2], offsets=offsets).astype(np.float32)
    with np.errstate(invalid="ignore"):  # rows that no choice has hold anything
        between += gate_up_bias.astype(np.float32)[of_rows]
    q, scales = finegemm.swiglu_quantize(between, offsets=offsets, to_bf16=True, **like_gpt_oss)
    y = finegemm.grouped_gemm(q, scales, *OF_EXPERTS[2:], offsets=offsets).astype(np.float32)
    with np.errstate(invalid="ignore"):
        y += down_bias.astype(np.float32)[of_rows]
    sums = np.zeros(X.shape, np.float32)
    for t, c in itertools.product(range(TOKENS), range(CHOICES)):
        if inverse[t, c] >= 0:
            sums[t] += WEIGHTS[t, c] * y[inverse[t, c]]
    biases = {"gate_up_bias": gate_up_bias, "down_bias": down_bias}
    out = finegemm.moe(X, IDS, *OF_EXPERTS, WEIGHTS, **like_gpt_oss, **biases)
    assert np.array_equal(bits(out), bits(sums.astype(BF16)))
    with pytest.raises(finegemm.InvalidArgument, match="down_bias: is left out, but gate_up_bias is given"):
        finegemm.moe(X, IDS, *OF_EXPERTS, gate_up_bias=gate_up_bias)
    told = finegemm.explain_moe(TOKENS, CHOICES, HIDDEN, PAIRS, EXPERTS, biased=True, device="h200")
    assert [launch["call"] for launch in told["launches"]][-3:] == ["swiglu_quantize", "grouped_gemm", "combine"]


def test_each_rank_of_several_has_its_part():
    """Of two ranks the second has the experts from 2 on: sums of both are the layer, but for a rounding of each."""
    whole = finegemm.moe(X, IDS, *OF_EXPERTS, WEIGHTS).astype(np.float32)
    parts = [
        finegemm.moe(X, IDS, *(w[begin:end] for w in OF_EXPERTS), WEIGHTS, first=begin).astype(np.float32)
        for begin, end in ((0, 2), (2, EXPERTS))
    ]
    assert np.abs(parts[0] + parts[1] - whole).max() <= 2**-7 * np.abs(parts).max()


def test_memory_may_be_the_callers():
    shape = {"tokens": TOKENS, "choices": CHOICES, "hidden": HIDDEN, "intermediate": PAIRS, "experts": EXPERTS}
    size = finegemm.moe_workspace_bytes(**shape)
    assert size >= IDS.size * (HIDDEN + PAIRS)
    workspace, out = np.full(size, 0xFF, np.uint8), np.empty(X.shape, BF16)
    assert finegemm.moe(X, IDS, *OF_EXPERTS, WEIGHTS, out, workspace=workspace) is out
    assert np.array_equal(bits(out), bits(finegemm.moe(X, IDS, *OF_EXPERTS, WEIGHTS)))
    with pytest.raises(finegemm.InvalidArgument, match=f"workspace: has {size - 1} bytes, must have {size}; "):
        finegemm.moe(X, IDS, *OF_EXPERTS, workspace=workspace[1:])
    with pytest.raises(finegemm.InvalidArgument, match="workspace: has dtype float64, must be uint8"):
        finegemm.moe(X, IDS, *OF_EXPERTS, workspace=np.zeros(size))


def test_a_plan_says_what_each_launch_takes():
    told = finegemm.explain_moe(4096, 8, 7168, 2048, 256, device="h200")
    calls = [launch["call"] for launch in told["launches"]]
    assert calls[:3] == ["route", "permute_quantize", "grouped_gemm"]
    assert calls[-2:] == ["grouped_gemm", "combine"]
    assert told["us"] == pytest.approx(sum(launch["us"] for launch in told["launches"]))
    assert told["workspace_bytes"] == finegemm.moe_workspace_bytes(4096, 8, 7168, 2048, 256)
    product = told["launches"][2]
    assert product["line"].startswith("gemm 32768x4096x7168 e4m3")
    with pytest.raises(finegemm.InvalidArgument, match="hidden: is 100, must be a multiple of 16"):
        finegemm.explain_moe(1, 1, 100, 128, 1)


def test_layers_of_many_tokens_take_what_was_predicted():
    """As bench/results/moe_h200.json has them, but by Zipf's law, of which a plan knows nothing. A record is of one
    card, and launches of 1 ms differ by 6% from card to card: what all layers are faster by in the median is the
    card's."""
    layers = {
        "DeepSeek-V3": (8, 7168, 2048, 256),
        "Qwen3-235B": (8, 4096, 1536, 128),
        "GLM-4.5": (8, 5120, 1536, 160),
        "MiniMax-M2": (8, 3072, 1536, 256),
    }
    over = []
    for row in json.loads((ROOT / "bench/results/moe_h200.json").read_text())["rows"]:
        if row["tokens"] < 4096 or row["kind"] == "zipf":
            continue
        choices, hidden, pairs, experts = layers[row["layer"]]
        shape = (row["tokens"], choices, hidden, pairs, experts)
        if row["kind"] == "rank":
            shape = (row["tokens"] * choices, 1, hidden, pairs, experts // 32)
        for name, fused in (("moe, fused", True), ("moe, apart", False)):
            told = finegemm.explain_moe(*shape, device="h200", fused=fused)
            over.append(told["us"] / row["us"][name])
    assert len(over) == 32
    of_card = statistics.median(over)
    assert abs(of_card - 1) < 0.06
    assert statistics.mean(abs(x / of_card - 1) for x in over) < 0.05
    assert max(abs(x / of_card - 1) for x in over) < 0.18


def test_torch_tensors_give_the_same_bits():
    torch = pytest.importorskip("torch")
    codes = [torch.from_numpy(t.view(np.uint8)).view(torch.float8_e4m3fn) for t in OF_EXPERTS[::2]]
    scales = [torch.from_numpy(t) for t in OF_EXPERTS[1::2]]
    out = finegemm.moe(
        torch.from_numpy(bits(X).view(np.int16)).view(torch.bfloat16),
        torch.from_numpy(IDS),
        codes[0],
        scales[0],
        codes[1],
        scales[1],
        torch.from_numpy(WEIGHTS),
    )
    assert out.dtype == torch.bfloat16
    assert np.array_equal(
        out.view(torch.int16).numpy().view(np.uint16), bits(finegemm.moe(X, IDS, *OF_EXPERTS, WEIGHTS))
    )


def test_the_example_is_as_good_as_its_roundings(capsys):
    example = program("examples/python/expert_layer.py")
    assert example.main() == 0
    assert "on 2 ranks: relative error 0.0" in capsys.readouterr().out


def test_codes_of_tokens_are_taken_with_their_scales():
    q, scales = finegemm.quantize_rows(X)
    assert q.dtype == E4M3
    assert np.array_equal(
        bits(finegemm.moe(q, IDS, *OF_EXPERTS, WEIGHTS, x_scales=scales, out=np.empty(X.shape, BF16))),
        bits(finegemm.moe(X, IDS, *OF_EXPERTS, WEIGHTS)),
    )
