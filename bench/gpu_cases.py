"""Operands for GPU checks, and what their product must be."""

import torch

from gpu_library import HOPPER, Library

DENSE_ROWS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
DENSE_NK = ((2112, 7168), (576, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048))


def blocks(extent: int) -> int:
    return -(-extent // 128)


def scales(rows: int, cols: int, layout: str, generator) -> torch.Tensor:
    """f32 in (0.001, 0.011). layout: "row", "mn" (MN-major) or "odd": row-major, its stride fit for no wide load."""
    values = torch.rand(rows, cols, device="cuda", generator=generator) * 0.01 + 0.001
    if layout == "mn":
        return values.t().contiguous().t()
    if layout == "odd":
        wide = torch.empty(rows, cols + 3, device="cuda")
        wide[:, 1 : 1 + cols] = values
        return wide[:, 1 : 1 + cols]
    return values


def operands(m: int, n: int, k: int, layout: str, generator, padding: int = 0, row_b_scales: bool = False):
    """a, sfa, b, sfb; values are normal with a deviation of 60, rows `padding` bytes apart."""

    def codes(rows):
        values = torch.randn(rows, k + padding, device="cuda", generator=generator) * 60
        return values.to(torch.float8_e4m3fn)[:, :k]

    rows_of_sfb = n if row_b_scales else blocks(n)
    return (
        codes(m),
        scales(m, blocks(k), layout, generator),
        codes(n),
        scales(rows_of_sfb, blocks(k), layout, generator),
    )


class Guarded:
    """A matrix D inside a larger one whose rest must stay as it was."""

    VALUE = 7.0

    def __init__(self, m: int, n: int, dtype=torch.bfloat16):
        self.all = torch.full((m + 32, n + 32), self.VALUE, device="cuda", dtype=dtype)
        self.d = self.all[16 : 16 + m, 16 : 16 + n]

    def intact(self) -> bool:
        m, n = self.d.shape
        outside = (self.all[:16], self.all[16 + m :], self.all[16 : 16 + m, :16], self.all[16 : 16 + m, 16 + n :])
        return all(bool((part == self.VALUE).all()) for part in outside)


def model(library: Library, a, sfa, b, sfb, rows: torch.Tensor, config: str, old=None, accumulate=0) -> torch.Tensor:
    """The bits that the CPU's model of the hardware gives for some rows of D. `old`: D before, where it is not bf16."""
    d = torch.empty(len(rows), b.shape[0], dtype=torch.bfloat16) if old is None else old[rows].cpu()
    x = (a[rows].cpu(), sfa[rows].cpu(), b.cpu(), sfb.cpu(), d)
    library.gemm(*x, numerics=HOPPER, config=config, accumulate=accumulate)
    return d


def sample_rows(m: int, count: int, generator) -> torch.Tensor:
    """The first and the last row, and others between them."""
    if m <= count:
        return torch.arange(m, device="cuda")
    inner = torch.randint(1, m - 1, (count - 2,), device="cuda", generator=generator)
    return torch.cat([inner, torch.tensor([0, m - 1], device="cuda")]).sort().values


def differing(x: torch.Tensor, y: torch.Tensor) -> int:
    bits = torch.int32 if x.dtype == torch.float32 else torch.int16
    return int((x.cpu().view(bits) != y.cpu().view(bits)).sum())


def expanded(codes: torch.Tensor, s: torch.Tensor, height: int) -> torch.Tensor:
    """codes * scales in double; a scale covers `height` rows and 128 columns."""
    rows, cols = codes.shape
    return codes.double() * s.double().repeat_interleave(height, 0)[:rows].repeat_interleave(128, 1)[:, :cols]


def bound(a, sfa, b, sfb, exact: torch.Tensor) -> torch.Tensor:
    """The bound that docs/numerics.md derives: 136 truncations to 13 bits in a block, roundings in FP32 and in bf16."""

    def magnitude(codes):
        size = codes.double().abs()
        return torch.where(size > 0, size.clamp(min=2.0**-6), size)  # subnormals keep the exponent of 2^-6

    rows, cols = a.shape
    absolute = (magnitude(a) * sfa.double().repeat_interleave(128, 1)[:, :cols]) @ (
        magnitude(b) * sfb.double().repeat_interleave(128, 0)[: b.shape[0]].repeat_interleave(128, 1)[:, :cols]
    ).t()
    total = absolute * (4 * 34 * 2.0**-13 * 1.02 + (blocks(cols) + 9) * 2.0**-23)
    return total + (exact.abs() + total) * 2.0**-8 + 2.0**-133
