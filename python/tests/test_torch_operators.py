"""finegemm.torch's operators: what torch, its compilers and its profiler know of them."""

import subprocess
import sys

import pytest

import finegemm
from support import operands
from torch_support import DEVICES, ft, tensors, torch

pytestmark = pytest.mark.parametrize("device", DEVICES)
M, N, K = 130, 136, 256
OFFSETS = (0, 70, 130)


@pytest.fixture(autouse=True)
def nothing_compiled():
    """Torch compiles one function so many times and no more."""
    torch.compiler.reset()


def pair(device, m=M, row_b_scales=False):
    return tensors(operands(m, N, K, row_b_scales=row_b_scales), device)


def experts(device):
    a, sfa, b, sfb = pair("cpu")  # CUDA rolls no float8
    return tuple(x.to(device) for x in (a, sfa, torch.stack([b, b.roll(1, 0)]), torch.stack([sfb, 2 * sfb])))


def values(device, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(device)


def indexer(device, d=64):
    """q, k, sfk and w of 8 heads."""
    q, k = (ft.quantize_rows(values(device, *shape))[0] for shape in ((70, 8, d), (80, d)))
    return q, k, values(device, 80).abs(), values(device, 70, 8)


def layer_of_experts(device):
    """x, ids and weights of two experts' products, and weights of the choices."""
    parts = [ft.quantize_blocks(values(device, 2, *shape) / 16) for shape in ((2 * 128, K), (K, 128))]
    ids = torch.arange(140, device=device).view(70, 2) % 3
    return values(device, 70, K).bfloat16(), ids, *parts[0], *parts[1], values(device, 70, 2)


def four_bit_weights(device, *shape):
    codes = torch.arange(shape[0] * shape[1] * shape[2] // 2).view(*shape[:2], -1).to(torch.uint8) * 37
    exponents = torch.arange(shape[0] * shape[1] * shape[2] // 32).view(*shape[:2], -1) % 5 + 118
    return finegemm.pack_mxfp4(codes, exponents.to(torch.uint8)).to(device)


TABLE = torch.tensor([[1, 0], [2, 1]])  # pages of two requests


def paged(device):
    """q, a cache of 3 pages of 64 keys, and w."""
    keys, scales = ft.quantize_rows(values(device, 192, 64))
    parts = (keys.view(torch.uint8).view(3, -1), scales.view(torch.uint8).view(3, -1))
    return ft.quantize_rows(values(device, 2, 1, 8, 64))[0], torch.cat(parts, 1), values(device, 2, 8)


def exponents(device):
    """Codes, and words of exponents."""
    words = torch.randint(0, 256, (70, K // 128), generator=torch.Generator().manual_seed(2)) * 0x1010101 >> 1
    return ft.quantize_rows(values(device, 70, K))[0], words.to(device, torch.int32)


def of_all(device):
    """Each operator as (name, arguments, call)."""
    dense, rows = tuple(pair(device)), pair(device, row_b_scales=True)
    groups, x = experts(device), values(device, 70, K)
    ends = torch.tensor(OFFSETS, device=device)
    four_bit, both = four_bit_weights(device, 2, N, K), [four_bit_weights(device, 2, *s) for s in ((256, K), (K, 128))]
    of_layer = layer_of_experts(device)
    return {
        "gemm_new": (dense, ft.gemm),
        "grouped_gemm_new": (groups, lambda *args: ft.grouped_gemm(*args, offsets=ends)),
        "k_grouped_gemm_new": (rows, lambda *args: ft.k_grouped_gemm(*args, sizes=[128, 128])),
        "quantize_rows": ((x,), lambda x: ft.quantize_rows(x, whole_rows=True)),
        "quantize_blocks": ((x,), lambda x: ft.quantize_blocks(x, dtype=torch.int8)),
        "quantize_weights": ((values(device, 2, 48, K),), ft.quantize_weights),
        "quantize_columns": ((x,), ft.quantize_columns),
        "quantize_columns_and_rows": ((x,), lambda x: ft.quantize_columns(x, rows=True)),
        "quantize_group_columns": ((x,), lambda x: ft.quantize_columns(x, [0, 7, 7, 70])),
        "quantize_group_columns_and_rows": ((x,), lambda x: ft.quantize_columns(x, [0, 7, 7, 70], rows=True)),
        "reencode": (exponents(device), ft.reencode),
        "scale_layout_new": ((dense[1],), lambda sf: ft.scale_layout(sf, packed=True)),
        "prenorm_gemm_new": ((x.bfloat16(), values(device, 24, K)), ft.prenorm_gemm),
        "moe_new": (layer_of_experts(device), ft.moe),
        "four_bit_gemm_new": (groups[:2], lambda *args: ft.four_bit_gemm(*args, four_bit, offsets=ends)),
        "four_bit_moe_new": (
            (*of_layer[:2], of_layer[-1]),
            lambda x, ids, weights: ft.moe(x, ids, both[0], None, both[1], None, weights),
        ),
        "mqa_logits_new": (indexer(device), lambda *args: ft.mqa_logits(*args, [3] * 70, [9] * 70)),
        "paged_mqa_logits_new": (paged(device), lambda *args: ft.paged_mqa_logits(*args, [5, 64], TABLE.to(device))),
        "topk_new": ((x,), lambda x: ft.topk(x, 5)),
        "mqa_topk_new": (indexer(device), lambda *args: ft.mqa_topk(*args, [3] * 70, [9] * 70, 5)),
        "paged_mqa_topk_new": (paged(device), lambda *args: ft.paged_mqa_topk(*args, [5, 64], TABLE.to(device), 7)),
    }


NAMES = tuple(of_all("cpu"))


def flat(result):
    return result if isinstance(result, tuple) else (result,)


def bits(x):
    return x.shape, x.dtype, x.flatten().view(torch.uint8).tolist()


def same(one, other):
    return list(map(bits, flat(one))) == list(map(bits, flat(other)))


@pytest.mark.parametrize("name", NAMES)
def test_a_call_is_one_node_of_a_graph_and_has_the_bits_of_the_plain_one(name, device):
    nodes = []

    def count(graph, inputs):
        nodes.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    arguments, call = of_all(device)[name]
    assert same(torch.compile(call, fullgraph=True, backend=count)(*arguments), call(*arguments))
    assert [node for node in nodes if "finegemm" in node] == [f"finegemm.{name}"]


@pytest.mark.parametrize("name", NAMES)
def test_a_profiler_shows_it(name, device):
    arguments, call = of_all(device)[name]
    with torch.profiler.profile() as profile:
        call(*arguments)
    assert [event.count for event in profile.key_averages() if event.key == f"finegemm::{name}"] == [1]


@pytest.mark.parametrize("name", NAMES)
def test_fake_results_are_like_real_ones(name, device):
    arguments, call = of_all(device)[name]
    real = flat(call(*arguments))
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = flat(call(*(mode.from_tensor(x) for x in arguments)))
    for x, y in zip(fake, real, strict=True):
        assert (x.shape, x.stride(), x.dtype, x.device) == (y.shape, y.stride(), y.dtype, y.device)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "k_grouped_gemm_new"])  # its rows are of weights
def test_one_graph_serves_every_number_of_rows(name, device):
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph.forward

    arguments, call = of_all(device)[name]
    compiled = torch.compile(call, fullgraph=True, backend=count, dynamic=True)
    for rows in (66, 70, 47):
        of_rows = 2 if "gemm" in name or name == "reencode" else 1
        some = tuple(x[:rows] for x in arguments[:of_rows]) + arguments[of_rows:]
        if "group" in name or "mqa" in name:
            some = arguments
        if name == "four_bit_gemm_new":
            some = arguments
        if name == "four_bit_moe_new":
            some = tuple(x[:rows] for x in arguments)
        if name == "moe_new":
            some = (*(x[:rows] for x in arguments[:2]), *arguments[2:-1], arguments[-1][:rows])
        assert same(compiled(*some), call(*some))
    assert len(graphs) == 1


@pytest.mark.parametrize("name", NAMES)
def test_backward_through_it_raises(name, device):
    arguments, call = of_all(device)[name]
    first = next(x for x in arguments if x.dtype.is_floating_point)
    needing = tuple(x.clone().requires_grad_() if x is first else x for x in arguments)
    of_integers = name == "scale_layout_new" or "topk" in name
    out = next(x for x in flat(call(*needing)) if x.dtype.is_floating_point or of_integers)
    if of_integers:
        assert not out.requires_grad
        return  # packed exponents and indices are integers, of which autograd knows nothing
    assert out.requires_grad
    with pytest.raises(finegemm.Unsupported, match=r"has no gradient.* call finegemm\.torch\.linear or"):
        out.float().sum().backward()
    with torch.no_grad():
        assert same(call(*needing), call(*arguments))


def test_results_are_written_where_out_says(device):
    a, sfa, b, sfb = pair(device)
    out = torch.zeros(M, N, dtype=torch.float32, device=device)
    assert ft.gemm(a, sfa, b, sfb, out=out) is out
    assert torch.equal(out, ft.gemm(a, sfa, b, sfb, out_dtype=torch.float32))
    groups, grouped = experts(device), torch.zeros(M, N, dtype=torch.bfloat16, device=device)
    assert ft.grouped_gemm(*groups, offsets=OFFSETS, out=grouped) is grouped
    assert torch.equal(grouped, ft.grouped_gemm(*groups, offsets=OFFSETS))
    rows = pair(device, row_b_scales=True)
    sums = torch.ones(2, M, N, device=device)
    assert ft.k_grouped_gemm(*rows, offsets=[0, 128, 256], out=sums, accumulate=True) is sums
    torch.testing.assert_close(sums, ft.k_grouped_gemm(*rows, offsets=[0, 128, 256]) + 1)


def test_scores_and_products_before_a_norm_are_written_where_out_says(device):
    rows, keys = indexer(device), paged(device)
    windows, pages = ([3] * 70, [9] * 70), ([5, 64], TABLE.to(device))
    logits, of_pages = torch.zeros(70, 80, device=device), torch.zeros(2, 128, dtype=torch.bfloat16, device=device)
    assert ft.mqa_logits(*rows, *windows, out=logits) is logits
    assert torch.equal(logits, ft.mqa_logits(*rows, *windows))
    assert ft.paged_mqa_logits(*keys, *pages, out=of_pages) is of_pages
    assert torch.equal(of_pages, ft.paged_mqa_logits(*keys, *pages, out_dtype=torch.bfloat16))
    with pytest.raises(finegemm.InvalidArgument, match="width: is 7, but out has 80 columns"):
        ft.mqa_logits(*rows, *windows, out=logits, width=7)
    x, weights = values(device, 5, 14, K).bfloat16(), values(device, 24, K)
    for slices in (None, 3):
        shape = (5, 14) if slices is None else (slices, 5, 14)
        out = (torch.zeros(*shape, 24, device=device), torch.zeros(shape, device=device))
        assert ft.prenorm_gemm(x, weights, out=out, num_splits=slices) is out
        assert same(out, ft.prenorm_gemm(x, weights, num_splits=slices))
    with pytest.raises(finegemm.InvalidArgument, match="out: is written to, which autograd does not see"):
        ft.prenorm_gemm(x, weights.requires_grad_(), out=out, num_splits=3)


def test_what_is_selected_is_written_where_out_says(device):
    rows, pages = (*indexer(device), [3] * 70, [9] * 70), (*paged(device), [5, 64], TABLE.to(device))
    numbers = (values(device, 70, 80),)
    for select, given in ((ft.topk, numbers), (ft.mqa_topk, rows), (ft.paged_mqa_topk, pages)):
        indices = select(*given, 4, sorted=True)
        out, best = torch.zeros_like(indices), torch.zeros(indices.shape, device=device)
        bins = torch.zeros(len(indices), 256, dtype=torch.int32, device=device)
        assert select(*given, out=out, values=best, histogram=bins, sorted=True) is out and torch.equal(out, indices)
        found = select(*given, 4, values=torch.zeros_like(best), sorted=True)
        assert torch.equal(found, indices) and torch.equal(best, best.sort(descending=True).values)
        only = torch.zeros_like(bins)
        assert select(*given, 0, histogram=only) is only and torch.equal(only, bins)
        for k, wrong in ((None, "k: must be given where out is not"), (0, "k: is 0, which is for a histogram alone")):
            with pytest.raises(finegemm.InvalidArgument, match=wrong):
                select(*given, k)
    logits = torch.zeros(70, 80, device=device)
    ft.mqa_topk(*rows, 4, logits=logits)
    assert torch.equal(logits, ft.mqa_logits(*rows))
    with pytest.raises(finegemm.InvalidArgument, match="out: is written to, which autograd does not see"):
        ft.topk(numbers[0].requires_grad_(), 4, histogram=only)


def test_what_is_written_is_part_of_a_graph(device):
    def select(x):
        best = x.new_empty(x.shape[0], 5)
        return ft.topk(x, 5, values=best, ends=[80] * 70), best

    x = values(device, 70, 80)
    assert same(torch.compile(select, fullgraph=True, backend="aot_eager")(x), select(x))


def test_a_layer_of_experts_is_written_where_out_says_and_keeps_leading_dimensions(device):
    x, ids, *of_experts, weights = layer_of_experts(device)
    x, ids, weights = (t.view(7, 10, -1) for t in (x, ids, weights))
    out = torch.zeros_like(x)
    assert ft.moe(x, ids, *of_experts, weights, gate_limit=1.0, out=out) is out
    assert out.any()
    assert torch.equal(out, ft.moe(x, ids, *of_experts, weights, gate_limit=1.0))
    assert not torch.equal(out, ft.moe(x, ids, *of_experts, gate_limit=1.0))


def test_a_layer_of_experts_takes_biases(device):
    layer = layer_of_experts(device)
    experts, n, hidden = layer[2].shape
    biases = {"gate_up_bias": values(device, experts, n), "down_bias": values(device, experts, hidden).bfloat16()}
    with_biases = ft.moe(*layer, **biases)
    assert not torch.equal(with_biases, ft.moe(*layer))
    compiled = torch.compile(lambda *x: ft.moe(*x, **biases), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*layer), with_biases)
    out = torch.zeros_like(with_biases)
    assert torch.equal(ft.moe(*layer, out=out, **biases), with_biases)
    biases["down_bias"].requires_grad_()
    with pytest.raises(finegemm.Unsupported):
        ft.moe(*layer, **biases).sum().backward()


def test_a_compiler_knows_what_is_written(device):
    def twice(a, sfa, b, sfb):
        out = torch.zeros(M, N, device=device)
        ft.gemm(a, sfa, b, sfb, out=out)
        return out + out

    a = pair(device)
    compiled = torch.compile(twice, fullgraph=True, backend="aot_eager")(*a)
    assert torch.equal(compiled, 2 * ft.gemm(*a, out_dtype=torch.float32))


def test_out_is_refused_where_autograd_records(device):
    a, sfa, b, sfb = pair(device)
    out = torch.zeros(M, N, device=device)
    with pytest.raises(finegemm.InvalidArgument, match=r"^out: is written to, which autograd does not see"):
        ft.gemm(a, sfa.clone().requires_grad_(), b, sfb, out=out)
    assert not out.any()
    with torch.no_grad():
        assert ft.gemm(a, sfa.clone().requires_grad_(), b, sfb, out=out).any()


def test_leading_dimensions_stay(device):
    a, sfa, b, sfb = pair(device)
    bias, c = torch.ones(N, device=device), values(device, M, N).bfloat16()
    want = ft.gemm(a, sfa, b, sfb, bias=bias, c=c, alpha=0.5, beta=2.0)
    out = ft.gemm(a.view(2, 65, K), sfa.view(2, 65, -1), b, sfb, bias=bias, c=c.view(2, 65, N), alpha=0.5, beta=2.0)
    assert torch.equal(out, want.view(2, 65, N))
    x = values(device, 2, 5, K)
    codes, scales = ft.quantize_rows(x)
    assert codes.shape == x.shape and scales.shape == (2, 5, 2)
    assert torch.equal(ft.dequantize(codes, scales).view(10, K), ft.dequantize(*ft.quantize_rows(x.view(10, K))))


@pytest.mark.parametrize("kind", (torch.int32, torch.int64, list))
def test_offsets_are_integers_of_any_kind(kind, device):
    def integers(*numbers):
        return list(numbers) if kind is list else torch.tensor(numbers, dtype=kind, device=device)

    want = finegemm.grouped_gemm(*experts(device), offsets=torch.tensor(OFFSETS, dtype=torch.int32, device=device))
    for form, layout in {
        "offsets": integers(*OFFSETS),
        "prefix_sums": integers(*OFFSETS[1:]),
    }.items():
        assert torch.equal(ft.grouped_gemm(*experts(device), **{form: layout}, alignment=1), want)


def test_masked_groups_and_heads_have_a_dimension_of_their_own(device):
    a, sfa, b, sfb = experts(device)
    want = torch.stack([ft.gemm(a, sfa, *expert) for expert in zip(b, sfb, strict=True)])
    masked = ft.grouped_gemm(*(torch.stack([x, x]) for x in (a, sfa)), b, sfb, masked_m=[M, 3])
    assert torch.equal(masked[0], want[0]) and torch.equal(masked[1, :3], want[1, :3])
    heads = ft.grouped_gemm(*(torch.stack([x, x], 1) for x in (a, sfa)), b, sfb, heads=True)
    assert torch.equal(heads, want.transpose(0, 1))


def test_equations_have_results_of_their_own_shapes(device):
    a, sfa, b, sfb = experts(device)
    codes, scales = (torch.stack([x, x], 1) for x in (a, sfa))
    want = ft.grouped_gemm(codes, scales, b, sfb, heads=True)
    assert torch.equal(ft.einsum("bhr,hdr->bhd", codes, b, sfa=scales, sfb=sfb), want)
    out = torch.zeros_like(want)
    assert ft.einsum("bhr,hdr->bhd", codes, b, sfa=scales, sfb=sfb, out=out) is out and torch.equal(out, want)
    x = torch.randn(3, 16, 64, device=device).bfloat16()
    compiled = torch.compile(lambda y: ft.einsum("bmk,bnk->mn", y, y, out_dtype=torch.float32), backend="eager")
    torch.testing.assert_close(compiled(x), torch.einsum("bmk,bnk->mn", x.float(), x.float()), rtol=1e-5, atol=1e-4)
    with pytest.raises(finegemm.InvalidArgument, match=r"^equation: is 'bmk,bnk->nm', must be 'bhr"):
        ft.einsum("bmk,bnk->nm", x, x)


@pytest.mark.parametrize(
    "call, sentence",
    (
        (lambda x, g: ft.grouped_gemm(*g), "^offsets, .*: none given, must be one"),
        (
            lambda x, g: ft.grouped_gemm(*g, offsets=OFFSETS, heads=True),
            "^offsets, .*: offsets, heads given, must be one",
        ),
        (lambda x, g: ft.k_grouped_gemm(*x), "^offsets and sizes: none given, must be one; pass one"),
        (lambda x, g: ft.k_grouped_gemm(*x, sizes=[256], offsets=[0, 256]), "^offsets and sizes: both given"),
        (lambda x, g: ft.gemm(*x, accumulate=True), "^accumulate: is True, but out is None; pass the float32"),
        (lambda x, g: ft.k_grouped_gemm(*x, sizes=[256], accumulate=True), "^accumulate: is True, but out is None"),
        (
            lambda x, g: ft.gemm(*x, out=torch.zeros(M, N), out_dtype=torch.bfloat16),
            r"^out_dtype: is torch\.bfloat16, but",
        ),
        (lambda x, g: ft.gemm(x[0][:, :128], *x[1:]), "b: has 256 columns, but a has 128"),
    ),
)
def test_wrong_arguments_are_explained(call, sentence, device):
    with pytest.raises(finegemm.InvalidArgument, match=sentence):
        call(pair("cpu"), experts("cpu"))


@pytest.mark.parametrize("order", (("finegemm.torch", "finegemm.deep_gemm"), ("finegemm.deep_gemm", "finegemm.torch")))
def test_it_lives_beside_the_operators_of_deep_gemm(order, device):
    code = f"""
import torch, finegemm
import {order[0]}
torch.ops.finegemm.gemm if {order[0]!r} == "finegemm.deep_gemm" else torch.ops.finegemm.gemm_new
import {order[1]}, finegemm.transformers
assert "turned" in str(torch.ops.finegemm.gemm.default._schema)
assert "batch_invariant" in str(torch.ops.finegemm.gemm_new.default._schema)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_sizes_on_the_cpu_serve_tensors_of_a_gpu(device):
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):  # which need no GPU
        a, sf = torch.empty(64, K, dtype=torch.float8_e4m3fn, device="cuda"), torch.empty(64, 2, device="cuda")
        product = ft.k_grouped_gemm(a, sf, a, sf, sizes=[128, 128])
    assert product.device.type == "cuda" and product.shape == (2, 64, 64)
