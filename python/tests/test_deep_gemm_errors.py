"""finegemm.deep_gemm: errors name arguments as the caller wrote them. Skipped where torch is not installed."""

import inspect
import re

import pytest

from finegemm import deep_gemm
from finegemm.deep_gemm import knobs
from support import operands
from torch_support import DEVICES, tensors, torch

pytestmark = pytest.mark.parametrize("device", DEVICES)
M, N, K, G = 128, 136, 256, 2
# Arguments of our own functions that no name of deep_gemm has.
OURS = {"sfa", "sfb", "prefix_sums", "sizes", "offsets", "accumulate", "k_sizes", "k_prefix_sums", "scale_k"}
SETTING = "mk_alignment_for_contiguous_layout"


def good(device):
    """A call of each kind that is served, by its name, with all arguments that a product or a layout may refuse."""
    a, sfa, b, sfb = tensors(operands(M, N, K), device)
    sfr = sfa[:1].expand(N, -1).contiguous()
    stack, matrices = (b.expand(G, N, K), sfb.expand(G, *sfb.shape)), (a.expand(G, M, K), sfa.expand(G, *sfa.shape))
    x, w = (t.to(torch.bfloat16) for t in (a, b))
    d, f32 = torch.zeros((M, N), dtype=torch.bfloat16, device=device), torch.zeros((G, M, N), device=device)
    ds = d.expand(G, M, N).contiguous()

    def int32(*numbers):
        return torch.tensor(numbers, dtype=torch.int32, device=device)

    indices, ends, used = int32(*[0] * M), int32(64, M), int32(3, 4)
    ks = {"ks_cpu": [K // G] * G}
    flat = {"a": (a.view(-1), sfa), "b": (b.view(-1), sfr)}
    heads = tuple(t.transpose(0, 1).contiguous() for t in matrices)
    scales = torch.ones((M, 8), device=device)
    contiguous = {"grouped_layout": indices}
    psum = {"grouped_layout": ends, "use_psum_layout": True, "expected_m_for_psum_layout": 4}
    masked = {"masked_m": used, "expected_m": 4}
    return [
        ("fp8_gemm_nt", {"a": (a, sfa), "b": (b, sfb), "d": d, "c": d.clone()}),
        ("fp8_gemm_nt", {"a": (a, sfa), "b": (b, sfr), "d": d, "c": d.clone()}),
        ("fp8_gemm_tn", {"a": (a.t(), sfa.t()), "b": (b.t(), sfb.t()), "d": d}),
        ("bf16_gemm_nt", {"a": x, "b": w, "d": d, "c": d.clone()}),
        ("fp8_gemm_nt_skip_head_mid", {"a": (a, sfa), "b": (b, sfb), "d": d, "head_splits": (N, 0, 0)}),
        ("m_grouped_fp8_gemm_nt_contiguous", {"a": (a, sfa), "b": stack, "d": d, **contiguous}),
        ("m_grouped_fp8_gemm_nt_contiguous", {"a": (a, sfa), "b": stack, "d": d, "m_indices": indices}),
        ("m_grouped_fp8_gemm_nt_contiguous", {"a": (a, sfa), "b": stack, "d": d, **psum}),
        ("m_grouped_fp8_gemm_nn_contiguous", {"a": (a, sfa), "b": tuple(t.mT for t in stack), "d": d, **contiguous}),
        ("m_grouped_bf16_gemm_nt_contiguous", {"a": x, "b": w.expand(G, N, K), "d": d, **psum}),
        ("m_grouped_fp8_gemm_nt_masked", {"a": matrices, "b": stack, "d": ds, **masked}),
        ("m_grouped_bf16_gemm_nt_masked", {"a": x.expand(G, M, K), "b": w.expand(G, N, K), "d": ds, **masked}),
        ("fp8_einsum", {"expr": "bhr,hdr->bhd", "a": heads, "b": stack, "d": ds.transpose(0, 1).contiguous()}),
        ("k_grouped_fp8_gemm_nt_contiguous", {**flat, "d": f32, "c": f32.clone(), **ks}),
        ("k_grouped_fp8_gemm_nt_contiguous", {**flat, "d": f32, "c": f32, "ks": ks["ks_cpu"]}),
        ("k_grouped_bf16_gemm_tn_contiguous", {"a": x.t(), "b": w.t(), "d": f32, "c": f32, **ks}),
        ("get_mn_major_tma_aligned_packed_ue8m0_tensor", {"sf": scales, "psum_layout": ends}),
        (
            "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor",
            {"sf": scales[:2], "grouped_layout": ends, "ks_cpu": None, "gran_k": 128, "use_psum_layout": True},
        ),
    ]


def spoiled(value):
    """Values like that which break a rule each."""
    if isinstance(value, torch.Tensor):
        yield from (value.double(), value[None], value[..., :-1])
    elif isinstance(value, tuple) and isinstance(value[0], torch.Tensor):
        for i in range(2):
            yield from ((*value[:i], wrong, *value[i + 1 :]) for wrong in spoiled(value[i]))
        yield value[:1]
    elif isinstance(value, list):
        yield from ([100, *value[1:]], [-128, *value[1:]], value[1:], [1.5, *value[1:]], [1 << 40, *value[1:]])
    elif type(value) is int:
        yield from (-1, 1 << 70, 1.5)


def assert_as_written(error, call, arguments):
    written = set(inspect.signature(call).parameters) | {SETTING}
    if "m_indices" not in arguments:
        written.discard("m_indices")
    if "ks" not in arguments:
        written.discard("ks")
    said = str(error)
    name = re.match(r"(\w+)(\[\d\])?: ", said)
    assert name and name[1] in written, said
    assert not set(re.findall(r"\w+", said)) & OURS - written, said


def negated(value):
    """Like value, with one of its tensors a view that is still to be negated."""
    if isinstance(value, torch.Tensor) and value.element_size() > 1:
        yield torch._neg_view(-value)
    elif isinstance(value, tuple) and isinstance(value[0], torch.Tensor):
        for i in range(2):
            yield from ((*value[:i], lazy, *value[i + 1 :]) for lazy in negated(value[i]))


@pytest.mark.parametrize("kind", range(18))
def test_views_that_are_still_to_be_negated_are_refused_or_read_by_their_values(device, kind):
    name, arguments = good(device)[kind]
    call, looked_at = getattr(deep_gemm, name), 0
    wanted = call(**arguments)
    for argument, value in good(device)[kind][1].items():
        for lazy in negated(value):
            looked_at += 1
            given = {**good(device)[kind][1], argument: lazy}
            try:
                result = call(**given)
            except RuntimeError as e:
                assert_as_written(e, call, arguments)
                assert "negates what lies in memory" in str(e)
            else:
                of, to = (result, wanted) if wanted is not None else (given["d"], arguments["d"])
                assert torch.equal(of, to), argument
    assert looked_at >= 1


@pytest.mark.parametrize("kind", range(18))
def test_what_is_refused_has_the_name_that_it_was_given(device, kind):
    name, arguments = good(device)[kind]
    call = getattr(deep_gemm, name)
    call(**arguments)
    refused = 0
    for argument, value in arguments.items():
        for wrong in spoiled(value):
            try:
                call(**{**arguments, argument: wrong})
            except (RuntimeError, TypeError) as e:
                refused += 1
                assert_as_written(e, call, arguments)
    assert refused >= 4


def test_all_kinds_are_looked_at(device):
    assert len(good(device)) == 18


@pytest.mark.parametrize("kind", (5, 7))
def test_an_alignment_that_is_refused_has_the_name_of_the_setting(device, kind, monkeypatch):
    name, arguments = good(device)[kind]
    monkeypatch.setattr(knobs, "_knobs", knobs.Knobs(alignment=100))
    with pytest.raises(RuntimeError, match=rf"^{SETTING}: is 100, must be a power of two"):
        getattr(deep_gemm, name)(**arguments)
