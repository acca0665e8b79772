"""finegemm.transformers: a small mixture of experts, quantised on the fly, beside plain float32 products.

Skipped where torch, transformers or accelerate are not installed.
"""

import sys

import pytest

import finegemm
from finegemm import transformers as ours
from torch_support import DEVICES, torch

pytest.importorskip("transformers", minversion="5.17", reason="transformers 5.17 or later is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")

from transformers import FineGrainedFP8Config, Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.integrations import finegrained_fp8
from transformers.quantizers.quantizer_finegrained_fp8 import FineGrainedFP8HfQuantizer

pytestmark = pytest.mark.parametrize("device", DEVICES)
MODES = ("eager", "batched_mm", "grouped_mm")
EXPERTS, HIDDEN, INTERMEDIATE = 6, 256, 384


def as_blocks(x, rows):
    """Scales as a matrix of the weight's shape, for blocks of 128 columns and `rows` rows."""
    return x.repeat_interleave(rows, -2).repeat_interleave(128, -1)


def in_float32(x, weight, scales):
    """A plain product of x, quantised for each row and 128 columns, in float32."""
    q, sfa = finegemm.quantize_rows(x.contiguous())
    m, k = x.shape
    n = weight.shape[0]
    a = q.float() * as_blocks(sfa, 1)[:m, :k]
    b = weight.float() * as_blocks(scales.float(), 128)[:n, :k]
    return (a.double() @ b.double().T).to(x.dtype)


def plain_linear(x, weight, scales, block_size, output_dtype, activation_scale=None):
    out = in_float32(x.reshape(-1, x.shape[-1]), weight, scales)
    return out.view(*x.shape[:-1], -1)


def plain_grouped(x, weight, scales, *, offsets, tokens_per_expert, block_size):
    out, begin = x.new_full((x.shape[0], weight.shape[1]), float("nan")), 0
    for expert, end in enumerate(offsets.tolist()):
        out[begin:end] = in_float32(x[begin:end], weight[expert], scales[expert])
        begin = end
    return out


def plain_batched(x, weight, scales, *, expert_ids, block_size):
    out = x.new_full((x.shape[0], weight.shape[1]), float("nan"))
    for row, expert in enumerate(expert_ids.tolist()):
        if expert < weight.shape[0]:
            out[row] = in_float32(x[row : row + 1], weight[expert], scales[expert])[0]
    return out


PLAIN = finegrained_fp8.FineGrainedFP8(plain_linear, plain_batched, plain_grouped)


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    monkeypatch.setattr(finegrained_fp8, "_FINEGRAINED_FP8", None)
    monkeypatch.setenv("TRANSFORMERS_DISABLE_DEEPGEMM_LINEAR", "1")
    ours.install()


@pytest.fixture
def model(device, tmp_path, monkeypatch):
    if device == "cpu":  # where transformers makes no FP8 model of its own accord
        monkeypatch.setattr(FineGrainedFP8HfQuantizer, "validate_environment", lambda *args, **options: None)
    torch.manual_seed(3)
    config = Qwen3MoeConfig(
        vocab_size=64,
        hidden_size=HIDDEN,
        intermediate_size=256,
        moe_intermediate_size=INTERMEDIATE,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        num_experts=EXPERTS,
        num_experts_per_tok=2,
        initializer_range=0.2,
    )
    Qwen3MoeForCausalLM(config).to(torch.bfloat16).save_pretrained(tmp_path)
    return Qwen3MoeForCausalLM.from_pretrained(
        tmp_path, dtype=torch.bfloat16, device_map=device, quantization_config=FineGrainedFP8Config()
    ).eval()


def calls_of(model, device):
    """Each FP8 module that a forward pass calls, with what it is given and what it returns."""
    calls = []
    kinds = (finegrained_fp8.FP8Linear, finegrained_fp8.FP8Experts)
    hooks = [
        module.register_forward_hook(lambda module, given, out: calls.append((module, given, out)))
        for module in model.modules()
        if isinstance(module, kinds)
    ]
    with torch.no_grad():
        logits = model(torch.arange(40, device=device).view(2, 20)).logits
    for hook in hooks:
        hook.remove()
    assert logits.isfinite().all()
    return calls


def difference(x, y):
    return float((x.double() - y.double()).norm() / y.double().norm())


def of_sums(device):
    """What sums of FP8 products may differ by: tensor cores keep about 14 bits of them, the CPU backend a float's."""
    return 2.0**-12 if torch.device(device).type == "cuda" else 1e-6


@pytest.mark.parametrize("mode", MODES)
def test_each_module_is_as_with_float32_products(model, device, mode, monkeypatch, record_property):
    model.set_experts_implementation(mode)
    calls = calls_of(model, device)
    monkeypatch.setattr(finegrained_fp8, "_FINEGRAINED_FP8", PLAIN)
    seen, largest = {"FP8Linear": 0, "FP8Experts": 0}, {"FP8Linear": 0.0, "FP8Experts": 0.0}
    for module, given, out in calls:
        kind = type(module).__name__
        seen[kind] += 1
        with torch.no_grad():
            plain = module(*given)
        # Both round to bf16: where the sums end between two numbers, not always to the same one. A module of experts
        # quantises such a result, whose codes then may differ by a step.
        bound = 2.0**-8 if isinstance(module, finegrained_fp8.FP8Linear) else 2.0**-5
        largest[kind] = max(largest[kind], difference(out, plain))
        assert largest[kind] < bound, (module, given[0].shape)
    assert seen == {"FP8Linear": 8, "FP8Experts": 2}
    for kind, worst in largest.items():
        record_property(kind, worst)


def weights(device, dtype=torch.float32):
    w = torch.randn(EXPERTS, 264, 256, device=device)
    scales = torch.rand(EXPERTS, 3, 2, device=device) + 0.5
    return w.to(torch.float8_e4m3fn), scales.to(dtype)


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16, torch.float32))
def test_rows_of_no_expert_take_no_part(device, dtype):
    weight, scales = weights(device)
    x = torch.randn(7, 256, device=device).to(dtype)
    x[[2, 5]] = float("nan")
    ids = torch.tensor([4, 0, EXPERTS, 4, 1, EXPERTS, 0], device=device)
    used = ids < EXPERTS
    out = ours.matmul_batched(x, weight, scales, expert_ids=ids, block_size=[128, 128])
    want = plain_batched(x, weight, scales, expert_ids=ids, block_size=None)
    assert out.dtype == dtype and difference(out[used], want[used]) < 2.0**-7
    ends = torch.tensor([2, 3, 3, 3, 5, 5], dtype=torch.int32, device=device)
    rows = x[[1, 6, 4, 0, 3, 2, 5]]
    grouped = ours.matmul_grouped(rows, weight, scales, offsets=ends, tokens_per_expert=None, block_size=(128, 128))
    assert torch.equal(grouped[:5], out[[1, 6, 4, 0, 3]])


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16, torch.float32))
def test_a_linear_layer_has_the_type_that_is_asked_for(device, dtype):
    weight, scales = (t[0] for t in weights(device))
    x = torch.randn(2, 3, 256, device=device).to(torch.bfloat16)
    out = ours.matmul_2d(x, weight, scales, [128, 128], dtype)
    assert out.shape == (2, 3, 264) and out.dtype == dtype
    want = in_float32(x.view(-1, 256).float(), weight, scales).view(out.shape)
    assert difference(out, want) < 2 * torch.finfo(dtype).eps + of_sums(device)
    unquantised = x.float() @ (weight.float() * as_blocks(scales, 128)[:264]).T
    assert difference(out, unquantised) < 2.0**-4  # the rounding of x to e4m3


def test_one_scale_for_all_of_a_weight_or_of_activations(device):
    weight, x = weights(device)[0], torch.randn(5, 256, device=device).to(torch.bfloat16)
    scale = torch.tensor(0.25, device=device)
    blocks = torch.full((3, 2), 0.25, device=device)
    want = ours.matmul_2d(x, weight[0], blocks, [128, 128], torch.bfloat16)
    for single in (scale, scale.view(1), scale.view(1, 1)):
        assert torch.equal(ours.matmul_2d(x, weight[0], single, None, torch.bfloat16), want)
    with_e8m0 = blocks.to(torch.float8_e8m0fnu)
    assert torch.equal(ours.matmul_2d(x, weight[0], with_e8m0, [128, 128], torch.bfloat16), want)
    codes = (x.float() / 0.25).clamp(-448, 448).to(torch.float8_e4m3fn)
    static = ours.matmul_2d(x, weight[0], scale, None, torch.float32, activation_scale=scale)
    assert difference(static, codes.float() @ weight[0].float().T / 16) < of_sums(device)
    with pytest.raises(RuntimeError, match=r"^block_size: is \(64, 64\), must be \(128, 128\), or the whole weight"):
        ours.matmul_2d(x, weight[0], torch.ones(5, 4, device=device), [64, 64], torch.bfloat16)


def test_views_that_are_still_to_be_negated_are_read_by_their_values(device):
    weight, scales = (t[0] for t in weights(device))
    x, scale = torch.randn(5, 256, device=device).to(torch.bfloat16), torch.full((1, 1), 0.25, device=device)

    def lazy(t):
        return torch._neg_view(-t)

    want = ours.matmul_2d(x, weight, scales, [128, 128], torch.float32)
    assert torch.equal(ours.matmul_2d(lazy(x), weight, lazy(scales), [128, 128], torch.float32), want)
    want = ours.matmul_2d(x, weight, scale, None, torch.bfloat16, scale)
    assert torch.equal(ours.matmul_2d(lazy(x), weight, lazy(scale), None, torch.bfloat16, lazy(scale)), want)


def test_what_cannot_be_served_is_said(device, monkeypatch):
    monkeypatch.delattr(finegrained_fp8, "_FINEGRAINED_FP8")
    with pytest.raises(finegemm.Unsupported, match=r"^transformers: has no place for kernels of fine-grained FP8; pip"):
        ours.install()
    monkeypatch.setitem(sys.modules, "transformers.integrations", None)
    with pytest.raises(finegemm.Unsupported, match=r"^transformers: cannot be imported; pip install"):
        ours.install()


def test_a_compiled_layer_has_a_node_for_a_product(device):
    weight, scales = weights(device)
    x, nodes = torch.randn(7, 256, device=device).to(torch.bfloat16), []
    ids = torch.tensor([4, 0, 2, 4, 1, 3, 0], device=device)

    def count(graph, inputs):
        nodes.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    def layer(x):
        experts = ours.matmul_batched(x, weight, scales, expert_ids=ids)
        return experts + ours.matmul_2d(x, weight[0], scales[0], [128, 128], torch.bfloat16)

    assert torch.equal(torch.compile(layer, fullgraph=True, backend=count)(x), layer(x))
    assert sum("finegemm" in node for node in nodes) == 2
