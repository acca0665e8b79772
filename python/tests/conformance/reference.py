"""What the functions of DeepGEMM's interface compute, in float64, by their specification: nothing here is ours.

FP8 stands for e4m3, a scale for what its codes are multiplied by.
"""

from torch_support import DEVICES, torch

BF16, F16, F32, F64, INT = torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int32
FP8 = torch.float8_e4m3fn
BLOCK = 128
# calc_diff of a result and the exact product of the same codes: half a unit in the last place, squared and averaged, is
# 1.4e-6 of bfloat16 and 2e-8 of float16. The sums of FP8 keep 14 bits of each block's greatest term.
MOST = {BF16: 5e-6, F16: 1e-6, F32: 1e-6}
MOST_OF_BF16 = {BF16: 5e-6, F16: 1e-6, F32: 1e-8}
MOST_OF_UNQUANTISED = 1e-3  # what the specification asks for of FP8


def cases(small, large=()):
    """(device, case) of each: the large ones are for GPUs alone."""
    on_each = [(device, case) for device in DEVICES for case in small]
    return on_each + [("cuda", case) for case in large if "cuda" in DEVICES]


def ceil(a, b):
    return -(-a // b)


def align(a, b):
    return ceil(a, b) * b


def randn(*shape, device, dtype=BF16, seed=0):
    generator = torch.Generator(device).manual_seed(seed + sum(shape))
    return torch.randn(*shape, device=device, generator=generator).to(dtype)


def integers(values, device):
    return torch.tensor(list(values), dtype=INT, device=device)


def rows_to_fp8(x, power_of_two=False):
    """Codes and scales [..., rows, ceil(k/128)] of 1 row and 128 of K: section 18."""
    return _to_fp8(x, 1, power_of_two)


def blocks_to_fp8(x, power_of_two=False):
    """Codes and scales [..., ceil(rows/128), ceil(k/128)]."""
    return _to_fp8(x, BLOCK, power_of_two)


def _to_fp8(x, rows, power_of_two):
    *front, n, k = x.shape
    padded = torch.nn.functional.pad(x.float(), (0, -k % BLOCK, 0, -n % rows))
    cells = padded.view(*front, ceil(n, rows), rows, ceil(k, BLOCK), BLOCK)
    scales = cells.abs().amax((-3, -1), keepdim=True).clamp(1e-4) / 448
    if power_of_two:
        scales = torch.exp2(torch.ceil(torch.log2(scales)))
    codes = (cells * (1 / scales)).to(FP8).view(padded.shape)[..., :n, :k]
    return codes.contiguous(), scales.squeeze((-3, -1)).contiguous()


def value(codes, scales):
    """What codes [..., rows, k] stand for. Scales are of each row or of 128, which their shape says."""
    *_, n, k = codes.shape
    if scales.shape[-2] != n:
        scales = scales.repeat_interleave(BLOCK, -2)[..., :n, :]
    return codes.double() * scales.double().repeat_interleave(BLOCK, -1)[..., :k]


def calc_diff(x, y):
    x, y = x.double(), y.double()
    of = float((x * x + y * y).sum())
    return 1 - 2 * float((x * y).sum()) / of if of else 0.0


def assert_close(d, exact, most=MOST, unquantised=None):
    """All of `d` is near, in the mean and at each place: an element is off by a rounding and what sums of FP8 lose."""
    assert d.shape == exact.shape
    if d.numel() == 0:
        return
    assert calc_diff(d, exact) < most[d.dtype]
    if unquantised is not None:
        assert calc_diff(d, unquantised) < MOST_OF_UNQUANTISED
    off = (d.double() - exact).abs()
    assert bool((off <= exact.abs() * 2**-8 + 2**-8 * exact.square().mean().sqrt()).all())


def tma_form(scales):
    """The same in MN-major memory whose columns begin at multiples of 16 bytes; what is between holds NaN."""
    *front, rows, columns = scales.shape
    memory = torch.full((*front, columns, align(rows, 4)), float("nan"), device=scales.device)
    view = memory.transpose(-1, -2)[..., :rows, :]
    view.copy_(scales)
    return view


def spoiled(codes, scales, rows):
    """The operand with NaN in codes and scales of the rows."""
    codes, scales = codes.clone(), scales.clone()
    codes.view(torch.uint8)[rows] = 0x7F
    scales[rows] = float("nan")
    return codes, scales
