"""torch tensors: zero-copy, on CPU and on a GPU. Skipped where torch is not installed or has no Hopper GPU."""

import numpy as np
import pytest

import finegemm
from support import assert_rounded, operands, product
from torch_support import as_doubles, needs_gpu, tensors, torch


def test_cpu_tensors_run_on_the_cpu():
    args = operands(33, 136, 272)
    out = finegemm.gemm(*tensors(args), numerics="exact")
    assert out.dtype == torch.bfloat16 and out.device.type == "cpu"
    assert_rounded(as_doubles(out), product(*args))


def test_quantised_tensors_are_of_torch():
    x = torch.randn(16, 256, dtype=torch.bfloat16)
    q, scales = finegemm.quantize_rows(x)
    assert q.dtype == torch.float8_e4m3fn and scales.dtype == torch.float32
    torch.testing.assert_close(q.float() * scales.repeat_interleave(128, 1), x.float(), rtol=2.0**-4, atol=1e-3)


exchange_api = pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason=f"torch {torch.__version__} has no C exchange API"
)


@pytest.fixture
def older_torch(monkeypatch):
    """Before torch had the C exchange API."""
    monkeypatch.setattr(torch.Tensor, "__dlpack_c_exchange_api__", None, raising=False)


@exchange_api
def test_tensors_are_read_without_python(monkeypatch):
    # Anything else would cost each call some microseconds for each matrix.
    args = tensors(operands(16, 32, 128))
    want = finegemm.gemm(*args)
    monkeypatch.setattr(torch.utils.dlpack, "to_dlpack", None)
    assert torch.equal(finegemm.gemm(*args), want)


def test_older_torch_is_read_too(older_torch):
    args = operands(33, 136, 272)
    assert_rounded(as_doubles(finegemm.gemm(*tensors(args), numerics="exact")), product(*args))


def test_parameters_are_tensors():
    a, sfa, b, sfb = tensors(operands(16, 32, 128))
    out = finegemm.gemm(a, sfa, b, torch.nn.Parameter(sfb))
    assert torch.equal(out, finegemm.gemm(a, sfa, b, sfb))


def test_sparse_tensors_are_refused_by_name():
    a, sfa, b, sfb = tensors(operands(16, 32, 128))
    with pytest.raises(finegemm.InvalidArgument, match=r"sfa: Tensor of torch\.float32 cannot be passed"):
        finegemm.gemm(a, sfa.to_sparse(), b, sfb)


def test_meta_tensors_are_refused_by_name():
    a, sfa, b, sfb = tensors(operands(16, 32, 128))
    for changed in ((a.to("meta"), sfa, b, sfb), (a, sfa.to("meta"), b, sfb)):
        with pytest.raises(finegemm.InvalidArgument, match=r"^s?f?a: is a meta tensor, which has no memory; pass a"):
            finegemm.gemm(*changed)


@pytest.fixture(params=[pytest.param("new", marks=exchange_api), "older"])
def each_torch(request):
    if request.param == "older":
        request.getfixturevalue("older_torch")


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_fake_tensors_are_refused_by_name(each_torch):
    fake = pytest.importorskip("torch._subclasses.fake_tensor").FakeTensorMode()
    a, sfa, b, sfb = tensors(operands(16, 32, 128))
    with pytest.raises(finegemm.InvalidArgument, match="sfa: has no memory, as fake and meta tensors have none"):
        finegemm.gemm(a, fake.from_tensor(sfa), b, sfb)


def test_outputs_that_require_grad_are_refused_where_autograd_records(each_torch):
    args = tensors(operands(16, 32, 128))
    d, x, q = (torch.zeros(shape) for shape in ((16, 32), (16, 128), (16, 128)))
    d, q, scales = d.bfloat16().requires_grad_(), q.byte(), torch.zeros(16, 1, requires_grad=True)
    for name, call in (
        ("d", lambda: finegemm.gemm(*args, d)),
        ("scales", lambda: finegemm.quantize_rows(x, q, scales)),
    ):
        with pytest.raises(finegemm.InvalidArgument, match=rf"^{name}: requires grad, .* pass {name}\.detach\(\), or"):
            call()
        with torch.no_grad():
            call()
    assert torch.equal(d.detach(), finegemm.gemm(*args)) and not finegemm.gemm(*args).requires_grad


def negated(x):
    """Views of x's values that are still to be negated, with several kinds of strides."""
    for memory in (-x, (-x).mT.contiguous().mT if x.dim() > 1 else -x):
        view = torch._neg_view(memory)
        yield from (view, view.as_strided(x.shape, memory.stride()), torch.nn.Parameter(view, requires_grad=False))
    if x.dtype == torch.float32:
        imaginary = torch.complex(torch.zeros_like(x), -x).conj().imag
        yield from (imaginary, imaginary.flatten()[:, None])  # strides of 2; of 2 and 1


def calls_with_each_tensor():
    """Functions of one tensor, which they pass on by its name, and such tensors."""
    a, sfa, b, sfb = tensors(operands(16, 32, 128))
    x, d, rows = torch.randn(16, 128), torch.zeros(16, 32), torch.randn(32)
    q, scales, counts = torch.empty(16, 128, dtype=torch.uint8), torch.zeros(16, 1), torch.tensor([0, 16]).int()
    yield "sfa", sfa, lambda v: finegemm.gemm(a, v, b, sfb)
    yield "sfb", sfb, lambda v: finegemm.gemm(a, sfa, b, v)
    yield "d", d, lambda v: finegemm.gemm(a, sfa, b, sfb, v)
    yield "c", d, lambda v: finegemm.gemm(a, sfa, b, sfb, d.clone(), c=v)
    yield "bias", rows, lambda v: finegemm.gemm(a, sfa, b, sfb, d, bias=v)
    yield "a", x.bfloat16(), lambda v: finegemm.gemm(v, None, x.bfloat16(), None)
    yield "b", x.half(), lambda v: finegemm.gemm(x.half(), None, v, None)
    yield "sfb", sfb[None], lambda v: finegemm.grouped_gemm(a, sfa, b[None], v, offsets=counts)
    yield "offsets", counts, lambda v: finegemm.grouped_gemm(a, sfa, b[None], sfb[None], offsets=v)
    yield "sfa", sfa, lambda v: finegemm.k_grouped_gemm(a, v, b, scales[:1].expand(32, 1), sizes=[128])
    for quantize in (finegemm.quantize_rows, finegemm.quantize_blocks):
        for given in (x, x.half(), x.bfloat16()):
            yield "x", given, quantize
    yield "scales", scales, lambda v: finegemm.quantize_rows(x, q, v)
    yield "sf", sfa, finegemm.scale_layout
    yield "out", scales, lambda v: finegemm.scale_layout(sfa, v)


def test_views_that_are_still_to_be_negated_are_refused(each_torch):
    for name, plain, call in calls_with_each_tensor():
        call(plain)
        for view in negated(plain):
            assert view.is_neg()
            with pytest.raises(finegemm.InvalidArgument, match=rf"^{name}: is a view that negates .* pass {name}\."):
                call(view)


def test_other_eight_bit_floats_are_refused_and_not_misread():
    a, sfa, b, sfb = tensors(operands(16, 32, 128))
    with pytest.raises(finegemm.InvalidArgument, match=r"a: .*float8_e5m2fnuz"):
        finegemm.gemm(a.float().to(torch.float8_e5m2fnuz), sfa, b, sfb)


def test_older_torch_has_them_refused_too(older_torch):
    test_other_eight_bit_floats_are_refused_and_not_misread()


@needs_gpu
def test_gpu_tensors_run_on_the_gpu_bit_for_bit_as_the_cpu_model():
    args = operands(130, 264, 1040)
    out = finegemm.gemm(*tensors(args, "cuda"))
    assert out.is_cuda
    np.testing.assert_array_equal(as_doubles(out), finegemm.gemm(*args, numerics="hopper").astype(np.float64))


@needs_gpu
@pytest.mark.parametrize("torch_is", [pytest.param("new", marks=exchange_api), "older"])
def test_work_is_queued_on_the_current_stream(torch_is, request):
    if torch_is == "older":
        request.getfixturevalue("older_torch")
    a, sfa, b, sfb = tensors(operands(64, 128, 512), "cuda")
    want = finegemm.gemm(a, sfa, b, sfb)
    torch.cuda.synchronize()
    late, stream = torch.zeros_like(sfa), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)  # the scales arrive late; only work on the same stream sees them
        late.copy_(sfa)
        out = finegemm.gemm(a, late, b, sfb)
    stream.synchronize()
    assert torch.equal(out, want)


@needs_gpu
def test_a_graph_captures_and_replays_the_call():
    a, sfa, b, sfb = tensors(operands(64, 128, 512), "cuda")
    want = finegemm.gemm(a, sfa, b, sfb)
    out, graph = torch.zeros_like(want), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        finegemm.gemm(a, sfa, b, sfb, out)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, want)


@needs_gpu
def test_quantisation_agrees_with_the_cpu():
    x = torch.randn(200, 1024, dtype=torch.bfloat16)
    for quantize in (finegemm.quantize_rows, finegemm.quantize_blocks):
        (q, s), (q_gpu, s_gpu) = quantize(x), quantize(x.cuda())
        assert torch.equal(s, s_gpu.cpu()) and torch.equal(q.view(torch.uint8), q_gpu.cpu().view(torch.uint8))


@needs_gpu
def test_matrices_on_different_devices_are_refused():
    a, sfa, b, sfb = tensors(operands(16, 32, 128), "cuda")
    with pytest.raises(finegemm.InvalidArgument, match="sfa"):
        finegemm.gemm(a, sfa.cpu(), b, sfb)
