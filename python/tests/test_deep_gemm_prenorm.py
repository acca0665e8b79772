"""finegemm.deep_gemm's product before a norm: values, slices, what is refused. Skipped without torch."""

import pytest

from finegemm import deep_gemm
from finegemm.deep_gemm import envs
from torch_support import DEVICES, torch


@pytest.fixture(autouse=True, params=DEVICES)
def device(request):
    """Where tensors are made that say nothing of it."""
    torch.set_default_device(request.param)
    yield request.param
    torch.set_default_device(None)


def problem(m=13, k=1280, wide=0):
    """b has numbers of TF32, which nothing rounds."""
    torch.manual_seed(5)
    b = (torch.randn(24, k).view(torch.int32) & ~0x1FFF).view(torch.float32)
    return torch.randn(m, k + wide, dtype=torch.bfloat16)[:, :k], b


def exact(a, b):
    return a.double() @ b.double().T, a.double().square().sum(-1)


@pytest.mark.parametrize("splits", (None, 1, 16))
def test_results_are_as_near_as_programs_ask(splits, device):
    a, b = problem(wide=64)
    slices = () if splits is None else (splits,)
    d, s = torch.full((*slices, 13, 24), torch.nan), torch.full((*slices, 13), torch.nan)
    assert deep_gemm.tf32_hc_prenorm_gemm(a, b, d, s, splits) is None
    found = (d, s) if splits is None else (d.sum(0), s.sum(0))
    for x, y in zip(found, exact(a, b), strict=True):
        assert deep_gemm.testing.calc_diff(x.double(), y) < {"cpu": 1e-10, "cuda": 1e-8}[device]


def test_no_rows_are_no_error():
    a, b = problem(m=0)
    deep_gemm.tf32_hc_prenorm_gemm(a, b, torch.empty(2, 0, 24), torch.empty(2, 0), num_splits=2)


def test_arguments_are_named_as_they_were_written():
    a, b = problem()
    d, s = torch.empty(4, 13, 24), torch.empty(4, 13)
    cases = (
        ("num_splits: is 3, but d has 4 slices", lambda: deep_gemm.tf32_hc_prenorm_gemm(a, b, d, s, 3)),
        ("sqr_sum: has shape [4, 12]", lambda: deep_gemm.tf32_hc_prenorm_gemm(a, b, d, s[:, 1:], 4)),
        ("sqr_sum: has 2 dimensions", lambda: deep_gemm.tf32_hc_prenorm_gemm(a, b, d[0], s)),
        ("b: has dtype bf16, must be f32", lambda: deep_gemm.tf32_hc_prenorm_gemm(a, b.bfloat16(), d, s, 4)),
    )
    for sentence, call in cases:
        with pytest.raises(RuntimeError) as error:
            call()
        assert str(error.value).startswith(sentence), error.value
    with pytest.raises(TypeError, match=r"^num_splits: must be an integer"):
        deep_gemm.tf32_hc_prenorm_gemm(a, b, d, s, 4.0)


def test_kernels_are_printed_on_demand(monkeypatch, capsys):
    monkeypatch.setattr(envs, "settings", lambda: envs.Settings(context=None, prints_configs=True))
    monkeypatch.setattr(envs, "_printed", set())
    for m in (13, 13, 0):
        deep_gemm.tf32_hc_prenorm_gemm(*problem(m), torch.empty(4, m, 24), torch.empty(4, m), 4)
    kernel = "FineGEMM_prenorm_64x24_tf32_hc_prenorm_gemm"
    assert capsys.readouterr().out == f"prenorm_gemm m=13 n=24 k=1280 num_splits=4: {kernel}\n"
