"""Codes of e5m2, and types of D beside the usual ones: what passes through Python."""

import numpy as np
import pytest

import finegemm
from support import operands
from torch_support import DEVICES, relative, tensors, torch

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def expanded(q, scales, height):
    rows = scales.repeat_interleave(height, 0)[: q.shape[0]]
    return q.float() * rows.repeat_interleave(128, 1)[:, : q.shape[1]]


@pytest.mark.parametrize("device", DEVICES)
def test_quantisation_writes_e5m2_if_asked(device):
    x = torch.randn(33, 272, device=device).to(torch.bfloat16)
    for quantize, height in ((finegemm.quantize_rows, 1), (finegemm.quantize_blocks, 128)):
        q, scales = quantize(x, dtype="float8_e5m2")
        assert q.dtype == E5M2 and q.float().abs().max() == 57344
        assert relative(expanded(q, scales, height), x) < 0.07
        into = quantize(x, torch.empty_like(q))[0]
        assert torch.equal(into.view(torch.uint8), q.view(torch.uint8)), "the type of q says it, too"
    columns, scales, rows, _ = finegemm.quantize_columns(x, rows=True, dtype="float8_e5m2")
    assert columns.dtype == rows.dtype == E5M2
    assert relative(expanded(columns, scales, 1)[:, :33], x.T) < 0.07


def test_codes_of_weights_have_one_type_in_both_orders():
    w = torch.randn(32, 144)
    given = torch.empty(32, 144, dtype=E5M2)
    q, _, transposed = finegemm.quantize_weights(w, given)
    assert transposed.dtype == E5M2 and torch.equal(transposed.t().contiguous().view(torch.uint8), q.view(torch.uint8))
    with pytest.raises(finegemm.InvalidArgument, match="transposed: has dtype e4m3, must be e5m2"):
        finegemm.quantize_weights(w, given, transposed=torch.empty(144, 32, dtype=E4M3))
    with pytest.raises(finegemm.InvalidArgument, match="q: has column stride 32"):
        finegemm.quantize_blocks(w, torch.empty(144, 32, dtype=E5M2).t())


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_are_products_of_e5m2_and_e4m3(device):
    dy = torch.randn(64, 256, device=device).to(torch.bfloat16)
    w = torch.randn(136, 256, device=device).to(torch.bfloat16)
    q, scales = finegemm.quantize_rows(dy, dtype="float8_e5m2")
    codes, blocks = finegemm.quantize_blocks(w)
    want = expanded(q, scales, 1) @ expanded(codes, blocks, 128).T
    assert relative(finegemm.gemm(q, scales, codes, blocks), want) < 0.005
    c, bias = want.to(torch.bfloat16), torch.randn(136, device=device)
    got = finegemm.gemm(q, scales, codes, blocks, alpha=-0.5, beta=2.0, c=c, bias=bias)
    assert relative(got, 1.5 * want + bias) < 0.01
    rows, of_rows = finegemm.quantize_rows(w)
    d = torch.zeros(136, 64, device=device)
    finegemm.gemm(rows, of_rows, q, scales, d, accumulate=True)
    assert relative(d, (expanded(q, scales, 1) @ expanded(rows, of_rows, 1).T).T) < 1e-3


@pytest.mark.parametrize("device", DEVICES)
def test_groups_of_k_have_d_of_two_bytes_too(device):
    a, sfa, b, sfb = tensors(operands(16, 32, 256, row_b_scales=True), device)
    for dtype in (torch.bfloat16, torch.float16):
        d = torch.empty(2, 16, 32, dtype=dtype, device=device)
        finegemm.k_grouped_gemm(a, sfa, b, sfb, d, sizes=[128, 128])
        for g in range(2):
            part = [x[:, 128 * g : 128 * (g + 1)] for x in (a, b)], [x[:, g : g + 1] for x in (sfa, sfb)]
            (of_a, of_b), (scales_a, scales_b) = part
            want = finegemm.gemm(of_a, scales_a, of_b, scales_b, out_dtype="float32")
            assert relative(d[g], want) < 0.004


def test_two_of_e5m2_and_other_codes_are_refused():
    x = torch.randn(16, 128)
    q, scales = finegemm.quantize_rows(x, dtype="float8_e5m2")
    with pytest.raises(finegemm.InvalidArgument, match=r"^a: is multiplied in e5m2 by e5m2"):
        finegemm.gemm(q, scales, q, scales)
    with pytest.raises(finegemm.InvalidArgument, match=r"^dtype: is 'bfloat16', must be .*, float8_e5m2 or int8"):
        finegemm.quantize_rows(x, dtype="bfloat16")
    with pytest.raises(finegemm.InvalidArgument, match=r"^dtype: is given, but so is q"):
        finegemm.quantize_rows(x, q, dtype="float8_e5m2")
    with pytest.raises(finegemm.Unsupported, match=r"^q: NumPy cannot pass float8_e5m2 on"):
        finegemm.quantize_rows(np.ones((16, 128), np.float32), dtype="float8_e5m2")
