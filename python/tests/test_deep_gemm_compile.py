"""finegemm.deep_gemm under torch.compile: each product is one node of a graph without breaks."""

from types import SimpleNamespace

import pytest

from finegemm import deep_gemm
from finegemm.deep_gemm import knobs
from support import operands
from torch_support import DEVICES, tensors, torch

pytestmark = pytest.mark.parametrize("device", DEVICES)


@pytest.fixture(autouse=True)
def nothing_compiled():
    """Torch compiles one function so many times and no more."""
    torch.compiler.reset()


def pairs(device, m=128, n=136, k=256, row_b_scales=False):
    a, sfa, b, sfb = tensors(operands(m, n, k, row_b_scales=row_b_scales), device)
    return (a, sfa), (b, sfb)


def empty(a, *shape, dtype=torch.bfloat16):
    return torch.zeros(shape, dtype=dtype, device=a[0].device)


def dense(a, b):
    d = empty(a, 128, 136)
    deep_gemm.fp8_gemm_nt(a, b, d, disable_ue8m0_cast=True)
    return d


def dense_in_float32(a, b):
    d = torch.ones((128, 136), device=a[0].device)
    deep_gemm.fp8_gemm_nt(a, b, d, c=d, recipe=(1, 128, 128), alpha=0.5)
    return d


def contiguous(a, b):
    d, layout = empty(a, 128, 136), torch.zeros(128, dtype=torch.int32, device=a[0].device)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, tuple(x[None] for x in b), d, layout)
    return d


def masked(a, b):
    d, used = empty(a, 1, 128, 136), torch.full((1,), 70, dtype=torch.int32, device=a[0].device)
    a, b = (tuple(x[None] for x in operand) for operand in (a, b))
    deep_gemm.m_grouped_fp8_gemm_nt_masked(a, b, d, used, 64)
    return d


def heads(a, b):
    d = empty(a, 128, 1, 136)
    deep_gemm.fp8_einsum("bhr,hdr->bhd", tuple(x[:, None] for x in a), tuple(x[None] for x in b), d)
    return d


def k_groups(a, b):
    d = empty(a, 1, 128, 136, dtype=torch.float32)
    deep_gemm.k_grouped_fp8_gemm_nt_contiguous(
        (a[0].view(-1), a[1]), (b[0].view(-1), b[1]), d, [256], None, d, use_psum_layout=False
    )
    return d


def dense_added_to_another(a, b):
    d, c = torch.zeros((2, 128, 136), dtype=torch.bfloat16, device=a[0].device)
    deep_gemm.fp8_gemm_nt(a, b, d, c + 1)
    return d


def views(a, b):
    d = empty(a, 128, 136)
    deep_gemm.fp8_gemm_tn(tuple(x.mT for x in a), tuple(x.mT for x in b), d)
    return d


def bf16(a, b):
    d = empty(a, 128, 136, dtype=torch.float32)
    deep_gemm.bf16_gemm_nt(a[0].to(torch.bfloat16), b[0].to(torch.bfloat16), d, alpha=2.0)
    return d


def bf16_k_groups(a, b):
    d = empty(a, 2, 128, 136, dtype=torch.float32)
    a, b = (x[0].to(torch.bfloat16).t() for x in (a, b))
    deep_gemm.k_grouped_bf16_gemm_tn_contiguous(a, b, d, [128, 128], None, d)
    return d


def gaps(a, b):
    d = empty(a, 128, 152)
    deep_gemm.fp8_gemm_nt_skip_head_mid(a, b, d, (72, 16, 64))
    return d


def sums(a, b):
    d, x = empty(a, 64, 64, dtype=torch.float32), a[0].to(torch.bfloat16).view(2, 64, 256)
    deep_gemm.einsum("bmk,bnk->mn", x, x, d, d)
    return d


def before_a_norm(a, b):
    d, squares = (empty(a, 4, 128, *columns, dtype=torch.float32) for columns in ((24,), ()))
    deep_gemm.tf32_hc_prenorm_gemm(a[0].to(torch.bfloat16), b[0][:24].float(), d, squares, 4)
    return d.sum(0) + squares.sum(0)[:, None]


def logits(a, b):
    q, k = a[0].view(-1, 32, 64), b[0].view(-1, 64)
    sf, weights = (torch.ones(shape, device=q.device) for shape in (k.shape[:1], q.shape[:2]))
    ends = torch.full(q.shape[:1], 500, dtype=torch.int32, device=q.device)
    return deep_gemm.fp8_mqa_logits(q, (k, sf), weights, torch.zeros_like(ends), ends)


def paged_logits(a, b):
    q, codes = a[0].view(-1, 1, 32, 64), b[0].view(torch.uint8).view(-1)[: 8 * 64 * 64].view(8, -1)
    cache = torch.cat((codes, torch.ones(8, 64, device=q.device).view(torch.uint8)), 1).view(8, 64, 1, 68)
    table = torch.arange(8, dtype=torch.int32, device=q.device).repeat(len(q), 1)
    lengths, weights = torch.full_like(table[:, :1], 500), torch.ones(len(q), 32, device=q.device)
    return deep_gemm.fp8_paged_mqa_logits(q, cache, weights, lengths, table, None, 512, True)


def metadata(a, b):
    lengths = torch.arange(1, 900, 100, dtype=torch.int32, device=a[0].device)
    return deep_gemm.get_paged_mqa_logits_metadata(lengths, 64, 132)


def scales_by_columns(a, b):
    return deep_gemm.get_mn_major_tma_aligned_tensor(a[1])


def packed_scales(a, b):
    return deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(a[1])


def packed_scales_of_groups(a, b):
    ks = torch.full((2,), 128, dtype=torch.int32, device=a[0].device)
    return deep_gemm.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(a[1].t().contiguous(), ks, [128, 128], 128)


def by_cublaslt(a, b):
    d = empty(a, 128, 136)
    deep_gemm.cublaslt_gemm_nt(a[0].to(torch.bfloat16), b[0].to(torch.bfloat16), d)
    return d


OPERATORS = {
    **dict.fromkeys((dense, dense_in_float32, dense_added_to_another, views, bf16), "gemm"),
    **dict.fromkeys((contiguous, masked), "grouped_gemm"),
    **dict.fromkeys((heads, sums), "einsum"),
    **dict.fromkeys((k_groups, bf16_k_groups), "k_grouped_gemm"),
    gaps: "gemm_into_heads",
    before_a_norm: "prenorm_gemm",
    logits: "mqa_logits",
    paged_logits: "paged_mqa_logits",
    metadata: "paged_mqa_schedule",
    **dict.fromkeys((scales_by_columns, packed_scales, packed_scales_of_groups), "scale_layout"),
    by_cublaslt: "cublaslt_gemm",
}


@pytest.fixture(params=OPERATORS)
def function(request, device):
    if request.param is by_cublaslt and device == "cpu":
        pytest.skip("cuBLASLt needs a GPU")
    return request.param


def test_a_product_is_one_node_and_has_the_bits_of_the_plain_call(function, device):
    nodes = []

    def count(graph, inputs):
        nodes.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    a, b = pairs(device, row_b_scales=function is k_groups)
    compiled = torch.compile(function, fullgraph=True, backend=count)(a, b)
    assert compiled.any() and torch.equal(compiled, function(a, b))
    assert sum("finegemm" in node for node in nodes) == 1


@pytest.mark.parametrize("function", {name: f for f, name in OPERATORS.items()}.values(), indirect=True)  # one of each
def test_what_is_written_is_known_to_the_compiler(function, device):
    a, b = pairs(device, row_b_scales=function is k_groups)
    compiled = torch.compile(lambda a, b: function(a, b).float() + 1, fullgraph=True, backend="aot_eager")(a, b)
    assert torch.equal(compiled, function(a, b).float() + 1)


def test_a_graph_follows_settings_that_change_after_it_was_made(device, monkeypatch):
    a, b = pairs(device)
    seen, plain = [], deep_gemm.operators._native.gemm

    def gemm(*arguments):
        seen.append(arguments[-1].get("pdl", False))
        return plain(*arguments)

    monkeypatch.setattr(deep_gemm.operators, "_native", SimpleNamespace(gemm=gemm))
    monkeypatch.setattr(knobs, "_knobs", knobs.Knobs())
    compiled = torch.compile(dense, fullgraph=True, backend="eager")
    for pdl in (False, True):
        deep_gemm.set_pdl(pdl)
        compiled(a, b)
    assert seen == [False, True]


def test_a_profiler_shows_a_product_by_its_name(function, device):
    a, b = pairs(device, row_b_scales=function is k_groups)
    with torch.profiler.profile() as profile:
        function(a, b)
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts.get(f"finegemm::{OPERATORS[function]}") == 1


def test_fake_tensors_go_through_a_product(function, device):
    a, b = pairs(device, row_b_scales=function is k_groups)
    want = function(a, b)
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        d = function(a, b)
    assert (d.shape, d.stride(), d.dtype, d.device.type) == (want.shape, want.stride(), want.dtype, device)


def test_a_cuda_graph_repeats_a_product(function, device):
    if device == "cpu":
        pytest.skip("a CUDA graph needs a GPU")
    a, b = pairs(device, row_b_scales=function is k_groups)
    want, graph = function(a, b), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        d = function(a, b)
    d.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(d, want)
