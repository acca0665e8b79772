"""Models with finegemm.torch's layers: conversion, weights of checkpoints, serving, and training beside BF16."""

import pathlib
import re

import numpy as np
import pytest

import finegemm
from support import program
from test_checkpoints import safetensors
from torch_support import DEVICES, TOLERANCE, ft, relative, torch

pytestmark = pytest.mark.parametrize("device", DEVICES)
nn = torch.nn


class Net(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(256, 128), nn.SiLU(), nn.Linear(128, 256)) for _ in "ab")
        self.experts = ft.GroupedLinear(2, 256, 128)
        self.odd, self.head = nn.Linear(256, 10), nn.Linear(256, 64)
        self.tied = self.blocks[0][0]
        self.to(device)

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return self.head(x), self.odd(x), self.experts(x, [0, 5, x.shape[0]]), self.tied(x)


def not_head(name, module):
    return name != "head"


def x_of(device, rows=20):
    return torch.randn(rows, 256, generator=torch.Generator().manual_seed(0)).to(device)


def kinds(model):
    return {name: type(module) for name, module in model.named_modules() if hasattr(module, "in_features")}


def test_linear_layers_become_those_that_a_filter_wants(device):
    model = Net(device)
    parameters, state = list(model.parameters()), list(model.state_dict())
    want = model(x_of(device))
    assert ft.convert_to_training(model, not_head) is model
    assert all(map(lambda p, q: p is q, parameters, model.parameters())) and list(model.state_dict()) == state
    found = kinds(model)
    assert found.pop("head") is nn.Linear and found.pop("odd") is nn.Linear  # 10 is no multiple of 16
    assert found.pop("experts") is ft.GroupedLinear and set(found.values()) == {ft.Linear}
    assert model.tied is model.blocks[0][0]
    got = model(x_of(device))
    assert all(0 < relative(x, y) < 2 * TOLERANCE for x, y in zip(got, want, strict=True))
    ft.convert_to_serving(model)
    assert kinds(model)["experts"] is ft.QuantizedGroupedLinear and kinds(model)["head"] is ft.QuantizedLinear
    with torch.no_grad():
        for x, y in list(zip(model(x_of(device)), got, strict=True))[1:]:
            assert torch.equal(x, y)  # the same codes, once and for all


def test_a_single_layer_is_a_model(device):
    layer = nn.Linear(64, 32, device=device).eval()
    new = ft.convert_to_training(layer)
    assert type(new) is ft.Linear and new.weight is layer.weight and not new.training


def test_serving_form_has_half_the_memory_and_keeps_its_types(device):
    layer = nn.Linear(256, 384, device=device)
    served = ft.convert_to_serving(layer).to(torch.bfloat16)
    state = served.state_dict()
    assert {name: x.dtype for name, x in state.items()} == {
        "weight": torch.float8_e4m3fn,
        "weight_scale_inv": torch.float32,
        "bias": torch.bfloat16,
    }
    assert state["weight"].nbytes + state["weight_scale_inv"].nbytes < layer.weight.nbytes / 3.9
    again = ft.QuantizedLinear(256, 384, device=device, dtype=torch.bfloat16)
    again.load_state_dict(state)
    x = x_of(device).bfloat16()
    assert torch.equal(again(x), served(x)) and again(x).dtype == torch.bfloat16


def test_gradients_go_through_a_served_layer_as_low_rank_adapters_need(device):
    layer, x = nn.Linear(256, 128, device=device), x_of(device).requires_grad_()
    served = ft.convert_to_serving(layer)
    dy = torch.randn(20, 128, device=device)
    got = torch.autograd.grad(served(x), (x, served.bias), dy)
    want = torch.autograd.grad(ft.linear(x, layer.weight, layer.bias), (x, layer.bias), dy)
    assert all(map(torch.equal, got, want))


@pytest.fixture
def checkpoint(tmp_path, device):
    """Codes with scales for blocks, for rows, and values without any; the values of each."""
    random = np.random.default_rng(3)
    stored, values = {}, {}
    for name, rows_of_scales in {"up": 1, "down": None, "e0": 1, "e1": 1, "rows": 128}.items():
        w = random.standard_normal((128, 256)).astype(np.float32)
        if rows_of_scales is None:
            stored[f"{name}.weight"], values[name] = ("F32", w), w
            continue
        q, s = (finegemm.quantize_blocks if rows_of_scales == 1 else finegemm.quantize_rows)(w)
        if rows_of_scales == 128:
            s = np.repeat(s[:, :1], 2, 1)
        stored[f"{name}.weight"] = ("F8_E4M3", q)
        stored[f"{name}.weight_scale_inv"] = ("F32", s if rows_of_scales == 1 else s[:, :1].copy())
        codes = torch.from_numpy(q.view(np.uint8)).view(torch.float8_e4m3fn)
        values[name] = ft.dequantize(codes, torch.from_numpy(s)).numpy()
    safetensors(tmp_path / "model.safetensors", **stored)
    return tmp_path, {name: torch.from_numpy(x).to(device) for name, x in values.items()}


class Stored(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.up, self.down, self.rows = (nn.Linear(256, 128, bias=False, device=device) for _ in range(3))
        self.experts = ft.GroupedLinear(2, 256, 128, device=device)


def of_checkpoint(name):
    return ["e0", "e1"] if name == "experts" else name


@pytest.mark.parametrize("made_on", ("meta", "device"))
@pytest.mark.parametrize("form", ("training", "serving"))
def test_layers_take_weights_of_a_checkpoint_in_either_form(form, made_on, checkpoint, device):
    folder, values = checkpoint
    model = Stored(made_on if made_on == "meta" else device)
    convert = ft.convert_to_training if form == "training" else ft.convert_to_serving
    found = ft.load_checkpoint(convert(model), folder, of_checkpoint, device=device)
    assert found["up"] == "up.weight_scale_inv, F32 [1, 2] for 128x128 blocks" and len(found) == 4
    x = x_of(device)
    with torch.no_grad():
        for name in ("up", "down", "rows"):
            want = torch.nn.functional.linear(x, values[name])
            assert 0 < relative(getattr(model, name)(x), want) < TOLERANCE
        each = torch.stack([values["e0"], values["e1"]])
        if form == "training":
            assert torch.equal(model.up.weight, values["up"]) and torch.equal(model.experts.weight, each)
        else:
            assert torch.equal(ft.dequantize(model.up.weight, model.up.weight_scale_inv), values["up"])
            experts = ft.dequantize(model.experts.weight, model.experts.weight_scale_inv)
            assert torch.equal(experts, each)
        assert torch.equal(model.experts(x, [0, 20, 20]), ft.linear(x, each[0]))


def test_scales_of_rows_have_no_gradient_of_data(checkpoint, device):
    model = ft.convert_to_serving(Stored(device))
    ft.load_checkpoint(model, checkpoint[0], lambda name: name if name == "rows" else None)
    y = model.rows(x_of(device).requires_grad_())
    with pytest.raises(finegemm.Unsupported, match="linear: weights with a scale for each row have no gradient"):
        y.sum().backward()


def test_what_does_not_fit_is_explained(checkpoint, device):
    model = ft.convert_to_serving(nn.ModuleDict({"up": nn.Linear(128, 128)}))
    with pytest.raises(finegemm.InvalidArgument, match=r"^checkpoint: up is \[128, 256\] there, must be \[128, 128\]"):
        ft.load_checkpoint(model, checkpoint[0])
    with pytest.raises(finegemm.InvalidArgument, match=r"^rename: gives 1 names for experts, must be 2; give one"):
        ft.load_checkpoint(Stored(device), checkpoint[0])


@pytest.fixture
def one_thread():
    """Threads of torch that wait for one another take many times as long where other programs run too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("experts", (0, 4))
def test_losses_follow_those_of_bf16(experts, device):
    """bench/torch_curves.py trains for 300 steps; here the losses must fall, and by as much."""
    models, curves = program("bench/torch_models.py"), {}
    for grouped in (models.PlainExperts, ft.GroupedLinear):
        torch.manual_seed(0)
        model = models.Model(dim=64, layers=1, heads=2, hidden=64, experts=experts, grouped=grouped).to(device)
        if grouped is ft.GroupedLinear:
            models.in_fp8(model)
            assert any(isinstance(module, ft.Linear) for module in model.modules())
        curves[grouped] = models.train(model, 30, 4, device, rate=5e-3)
    bf16, fp8 = (torch.tensor(losses).view(-1, 10).mean(1) for losses in curves.values())
    assert bf16[-1] < 0.9 * bf16[0]
    torch.testing.assert_close(fp8, bf16, rtol=0.01, atol=0)
    assert curves[ft.GroupedLinear] != curves[models.PlainExperts]


def test_what_the_page_shows_runs(device):
    page = pathlib.Path(__file__).parents[2] / "docs/torch.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    shown = {}
    for block in blocks:
        exec(block, shown)
    assert len(blocks) == 5 and shown["y"].shape == (8, 100, 256) and shown["out"].any()
