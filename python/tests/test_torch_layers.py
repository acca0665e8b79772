"""finegemm.torch's layers: their gradients, what they keep, and what of torch they work with."""

import copy
import functools
import io
import itertools

import pytest

import finegemm
from torch_support import DEVICES, TOLERANCE, ft, relative, torch

pytestmark = pytest.mark.parametrize("device", DEVICES)
N, K, GROUPS = 144, 272, 4
OFFSETS = (0, 37, 37, 200, 210)  # one group has no rows
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def values(device, *shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def linear_case(device, dtype=torch.bfloat16, weight_dtype=None, rows=70):
    x, dy = values(device, rows, K, dtype=dtype), values(device, rows, N, dtype=dtype, seed=1)
    weight, bias = (values(device, *shape, dtype=weight_dtype or dtype, seed=2) for shape in ((N, K), (N,)))
    return x.requires_grad_(), weight.requires_grad_(), bias.requires_grad_(), dy


def gradients(call, inputs, dy):
    y = call(*inputs)
    return y, *torch.autograd.grad(y, inputs, dy.to(y.dtype))


def in_double(call, inputs, dy):
    return gradients(call, [x.detach().double().requires_grad_() for x in inputs], dy.double())


def assert_rounded(out, want, magnitude, terms):
    """`want` rounded to the type of `out`, after a sum of `terms` whose magnitudes add up to `magnitude`: of float32 on
    a CPU, and with what tensor cores cut off within 128 terms (docs/numerics.md)."""
    digits = {torch.bfloat16: 8, torch.float16: 11, torch.float32: 24}[out.dtype]
    lost = terms * 2.0**-24 + (131 * 2.0**-13 if out.is_cuda else 0)
    bound = 2.0**-digits * want.abs() + lost * magnitude
    assert ((out.double() - want).abs() <= 1.001 * bound).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("power_of_two_scales", (False, True))
def test_gradients_are_those_of_float64_within_the_rounding_to_codes(dtype, power_of_two_scales, device):
    *inputs, dy = linear_case(device, dtype)
    got = gradients(lambda *args: ft.linear(*args, power_of_two_scales=power_of_two_scales), inputs, dy)
    want = in_double(torch.nn.functional.linear, inputs, dy)
    for x, y in zip(got[:3], want[:3], strict=True):
        assert x.dtype == dtype and 0 < relative(x, y) < TOLERANCE
    assert relative(got[3], want[3]) < 2.0**-8  # the bias is not of codes


def test_each_product_is_that_of_the_codes_rounded_once(device):
    """Rows of x and dy by 1x128, weights by 128x128 blocks, columns of both by 128x1: each of the three products."""
    x, weight, bias, dy = linear_case(device, torch.bfloat16, torch.float32)
    y, dx, dw, _ = gradients(ft.linear, (x, weight, bias), dy)

    def product(a, b, extra=0.0):
        a, b = a.double(), b.double()
        return a @ b.t() + extra, a.abs() @ b.abs().t(), a.shape[1]

    with torch.no_grad():
        w = ft.dequantize(*ft.quantize_blocks(weight), dtype=torch.float64)
        rows_x, rows_dy = (ft.dequantize(*ft.quantize_rows(z), dtype=torch.float64) for z in (x, dy))
        columns_x, columns_dy = (ft.dequantize(*ft.quantize_columns(z), dtype=torch.float64) for z in (x, dy))
        assert_rounded(y, *product(rows_x, w, bias.double()))
        assert_rounded(dx, *product(rows_dy, w.t()))
        assert_rounded(dw, *product(columns_dy, columns_x))


def plain_groups(x, weight, offsets=OFFSETS):
    y = torch.zeros(x.shape[0], weight.shape[1], dtype=x.dtype, device=x.device)
    for g, (i, j) in enumerate(itertools.pairwise(offsets)):
        y[i:j] = x[i:j] @ weight[g].t()
    return y


def grouped_case(device, dtype=torch.bfloat16, rows=OFFSETS[-1]):
    x, dy = values(device, rows, K, dtype=dtype), values(device, rows, N, dtype=dtype, seed=1)
    return x.requires_grad_(), values(device, GROUPS, N, K, dtype=dtype, seed=2).requires_grad_(), dy


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_groups_are_those_of_float64(dtype, device):
    x, weight, dy = grouped_case(device, dtype)
    offsets = torch.tensor(OFFSETS, device=device)
    got = gradients(lambda x, w: ft.grouped_linear(x, w, offsets, all_rows=True), (x, weight), dy)
    want = in_double(plain_groups, (x, weight), dy)
    for y, exact in zip(got[:2], want[:2], strict=True):
        assert y.dtype == dtype and 0 < relative(y, exact) < TOLERANCE
    assert not got[2][1].any()
    for g in (0, 2, 3):
        assert 0 < relative(got[2][g], want[2][g]) < TOLERANCE


def test_rows_of_no_group_are_zero_forward_and_backward(device):
    x, weight, dy = grouped_case(device, rows=230)
    offsets = [10 + i for i in OFFSETS]
    dy[:10] = dy[220:] = torch.nan
    y, dx, dw = gradients(lambda x, w: ft.grouped_linear(x, w, offsets), (x, weight), dy)
    for rows in (y, dx):
        assert not rows[:10].any() and not rows[220:].any() and rows[10:220].any()
    inner = gradients(lambda x, w: ft.grouped_linear(x, w, OFFSETS), (x[10:220], weight), dy[10:220])
    assert torch.equal(dw, inner[2]) and torch.equal(dx[10:220], inner[1])


def test_no_rows_are_rows_too(device):
    *inputs, dy = linear_case(device, rows=0)
    y, dx, dw, db = gradients(ft.linear, inputs, dy)
    assert y.shape == (0, N) and dx.shape == (0, K) and not dw.any() and not db.any()
    x, weight, dy = grouped_case(device, rows=0)
    y, dx, dw = gradients(lambda x, w: ft.grouped_linear(x, w, [0] * 5), (x, weight), dy)
    assert y.shape == (0, N) and dw.shape == weight.shape and not dw.any()


def test_leading_dimensions_and_strides_are_any(device):
    x, weight, bias, dy = linear_case(device)
    want = gradients(ft.linear, (x, weight, bias), dy)
    turned = x.detach().view(2, 35, K).transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    dense = gradients(ft.linear, (turned, weight, bias), dy.view(2, 35, N))
    assert dense[0].shape == (2, 35, N)
    for one, other in zip(want, dense, strict=True):
        assert torch.equal(one.flatten(), other.flatten())
    summed = ft.linear(x, weight, bias).float().sum()  # its gradient has no memory for each element
    assert torch.autograd.grad(summed, x)[0].any()


def test_what_needs_no_gradient_costs_nothing(device):
    x, weight, bias, dy = linear_case(device)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        y = ft.linear(x.detach(), weight.detach(), bias)
        assert not kept
        ft.linear(x, weight.detach())
        assert [t.shape for t in kept] == [(K, N), (2, 3)]
        kept.clear()
        ft.linear(x.detach(), weight)
        assert [t.shape for t in kept] == [(K, 80), (K, 1)]
    y.backward(dy)
    assert bias.grad.any()


def test_gradients_of_gradients_raise(device):
    x, weight, _, dy = linear_case(device)
    (dx,) = torch.autograd.grad(ft.linear(x, weight), x, dy.requires_grad_(), create_graph=True)
    with pytest.raises(finegemm.Unsupported, match="has no gradient"):
        dx.float().sum().backward()


@pytest.mark.parametrize("grouped", (False, True))
def test_gradients_are_added_to_main_grad(grouped, device):
    layer = ft.GroupedLinear(GROUPS, K, N, device) if grouped else ft.Linear(K, N, device=device)
    x = values(device, OFFSETS[-1], K)
    arguments = (OFFSETS,) if grouped else ()
    layer(x, *arguments).square().sum().backward()
    want, layer.weight.grad = layer.weight.grad, None
    layer.weight.main_grad = torch.zeros_like(layer.weight)
    for _ in range(2):
        layer(x, *arguments).square().sum().backward()
    assert layer.weight.grad is None
    torch.testing.assert_close(layer.weight.main_grad, 2 * want, rtol=1e-6, atol=1e-6 * float(want.abs().max()))


@pytest.fixture
def quantised(monkeypatch):
    """How many times weights have been quantised since it was emptied."""
    calls = []

    def count(plain, *arguments, **keywords):
        calls.append(1)
        return plain(*arguments, **keywords)

    for name in ("quantize_blocks", "quantize_weights"):
        monkeypatch.setattr(ft.autograd, name, functools.partial(count, getattr(ft.autograd, name)))
    return calls


CHANGES = {
    "optimizer": lambda layer: torch.optim.SGD(layer.parameters(), lr=0.1).step(),
    "in place": lambda layer: layer.weight.mul_(2),
    "another": lambda layer: setattr(layer, "weight", torch.nn.Parameter(layer.weight * 2)),
    "load": lambda layer: layer.load_state_dict({k: v * 2 for k, v in layer.state_dict().items()}),
    "by hand": lambda layer: (layer.weight.data.mul_(2), layer.weight_cache.clear()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_weights_are_quantised_when_they_have_changed(change, quantised, device):
    layer, x = ft.Linear(K, N, device=device), values(device, 16, K).requires_grad_()
    for _ in range(3):
        layer(x).square().sum().backward()
    assert len(quantised) == 1
    before = layer(x)
    with torch.no_grad():
        CHANGES[change](layer)
    after = layer(x)
    assert len(quantised) == 2 and not torch.equal(before, after)
    assert torch.equal(after, ft.linear(x, layer.weight, layer.bias))


def test_a_weight_that_is_computed_is_quantised_each_time(device):
    class Twice(torch.nn.Module):
        def forward(self, x):
            return 2 * x

    layer, x = ft.Linear(K, N, device=device), values(device, 16, K)
    torch.nn.utils.parametrize.register_parametrization(layer, "weight", Twice())
    with torch.no_grad():
        for factor in (1, -1, 3, 0.5):
            layer.parametrizations.weight.original.mul_(factor)
            assert torch.equal(layer(x), ft.linear(x, layer.weight, layer.bias))


def test_an_optimizer_that_writes_to_data_is_noticed(quantised, device):
    class OldStyle(torch.optim.SGD):
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.data.mul_(2)

    layer, x = ft.Linear(K, N, device=device), values(device, 16, K)
    before = layer(x)
    version = layer.weight._version
    OldStyle(layer.parameters(), lr=0.1).step()
    assert layer.weight._version == version
    assert not torch.equal(layer(x), before) and len(quantised) == 2


def test_evaluation_quantises_once_and_without_the_transposed_codes(quantised, device):
    layer, x = ft.Linear(K, N, device=device), values(device, 16, K).requires_grad_()
    with torch.no_grad():
        first = layer(x)
        assert torch.equal(layer(x), first) and len(quantised) == 1
    assert layer.weight_cache.get(layer.weight, False, False).transposed is None
    with torch.inference_mode():
        inner = ft.Linear(K, N, device=device)
        assert torch.equal(inner(x), inner(x))


def test_copies_and_files_are_without_codes(device):
    layer, x = ft.Linear(K, N, device=device), values(device, 16, K)
    want = layer(x)
    assert torch.equal(copy.deepcopy(layer)(x), want)
    file = io.BytesIO()
    torch.save(layer, file)
    assert file.tell() < 2 * layer.weight.nbytes
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(x), want)


@pytest.mark.parametrize("use_reentrant", (False, True))
def test_activation_checkpointing_gives_the_same_gradients(use_reentrant, device):
    model = torch.nn.Sequential(ft.Linear(K, N, device=device), torch.nn.SiLU(), ft.Linear(N, K, device=device))
    x = values(device, 40, K).requires_grad_()

    def run(call):
        model.zero_grad()
        x.grad = None
        call(x).square().sum().backward()
        return [x.grad, *(p.grad for p in model.parameters())]

    want = run(model)
    got = run(lambda x: torch.utils.checkpoint.checkpoint(model, x, use_reentrant=use_reentrant))
    assert all(map(torch.equal, got, want))


@pytest.mark.parametrize("grouped", (False, True))
def test_one_compiled_graph_has_the_gradients_of_every_number_of_rows(grouped, device):
    torch.compiler.reset()
    layer = ft.GroupedLinear(GROUPS, K, N, device) if grouped else ft.Linear(K, N, device=device)
    offsets = (torch.tensor(OFFSETS, device=device) // 4,) if grouped else ()
    counter = pytest.importorskip("torch._dynamo.testing").CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=counter)
    frames = []
    for rows in (53, 64, 77):
        x = values(device, rows, K).requires_grad_()
        got, want = (
            torch.autograd.grad(call(x, *offsets).square().sum(), (x, layer.weight)) for call in (compiled, layer)
        )
        assert all(map(torch.equal, got, want))
        frames.append(counter.frame_count)
    assert frames == frames[:1] * 3


def test_autocast_says_the_dtype(device):
    layer, x = ft.Linear(K, N, device=device), values(device, 16, K)
    with torch.autocast(device, dtype=torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16 and torch.equal(y, layer(x.bfloat16()))


def test_sizes_that_no_kernel_takes_are_explained(device):
    with pytest.raises(finegemm.InvalidArgument, match="must be a multiple of 16"):
        ft.linear(values(device, 4, 40), values(device, 16, 40))


def test_a_cuda_graph_sees_weights_that_change_after_it_was_made(device):
    if device == "cpu":
        pytest.skip("a CUDA graph needs a GPU")
    layers = ft.Linear(K, N, device=device), ft.GroupedLinear(GROUPS, K, N, device)
    x, offsets = values(device, OFFSETS[-1], K), torch.tensor(OFFSETS, device=device)
    for layer, arguments in zip(layers, ((), (offsets,)), strict=True):
        with torch.no_grad():
            layer(x, *arguments)  # loads kernels
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = layer(x, *arguments)
            layer.weight.mul_(2)
            graph.replay()
            assert torch.equal(y, layer(x, *arguments))


def test_every_public_name_is_documented(device):
    for name in ft.__all__:
        assert getattr(ft, name).__doc__, name
