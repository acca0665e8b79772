"""Operands for GPU checks, and what their product must be."""

import itertools
import math

import torch

from gpu_library import HOPPER, Library

LAYOUTS = ("row", "mn", "odd")  # of scales: row-major, MN-major, row-major with a stride fit for no wide load
NAN_CODE = 0x7F
E4M3 = torch.float8_e4m3fn
CODES = (E4M3, torch.float8_e5m2)  # of FP8
PIECE = 1 << 26  # so many values are floats at a time
Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]  # a, sfa, b, sfb
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}  # by the bytes of an element


def blocks(extent: int) -> int:
    return -(-extent // 128)


def rounded_up(x: int, to: int) -> int:
    return -(-x // to) * to


def empty_codes(count: int, rows: int, k: int, padding: int, gap: int, device, dtype=E4M3) -> torch.Tensor:
    """[count, rows, k]; NaN in the `padding` bytes behind a row and in the `gap` rows behind a matrix."""
    whole = torch.full((count, rows + gap, k + padding), NAN_CODE, dtype=torch.uint8, device=device)
    return whole[:, :rows, :k].view(dtype)


def empty_scales(count: int, rows: int, cols: int, layout: str, gap: int, device) -> torch.Tensor:
    """[count, rows, cols], NaN around; `layout`: one of LAYOUTS."""
    if layout == "mn":
        return torch.full((count, cols, rows + gap), math.nan, device=device)[:, :, :rows].transpose(1, 2)
    extra = 3 if layout == "odd" else 0
    whole = torch.full((count, rows + gap, cols + extra), math.nan, device=device)
    return whole[:, :rows, extra // 2 : extra // 2 + cols]


def pieces(count: int, rows: int, cols: int):
    """Slices that cover a stack: of its matrices and, where one has more than PIECE values, of rows in whole blocks."""
    tall = max(1, PIECE // (128 * cols)) * 128
    many = max(1, PIECE // (min(tall, rows) * cols))
    for matrix in range(0, count, many):
        for row in range(0, rows, tall):
            yield slice(matrix, matrix + many), slice(row, row + tall)


def largest_of(dtype: torch.dtype) -> float:
    """The largest code that quantisation makes."""
    return 127.0 if dtype == torch.int8 else torch.finfo(dtype).max


def quantise(values: torch.Tensor, height: int, dtype=E4M3):
    """Codes and scales of f32 in whole blocks: the largest magnitude of `height` rows x 128 values becomes that of the
    type."""
    count, rows, cols = values.shape
    tiles = values.view(count, rows // height, height, cols // 128, 128)
    most = largest_of(dtype)
    scales = tiles.abs().amax((2, 4), keepdim=True).clamp(min=1e-4) / most
    codes = (tiles / scales).clamp(-most, most)
    return (codes.round() if dtype == torch.int8 else codes).to(dtype).view_as(values), scales[:, :, 0, :, 0]


def quantised(
    count: int, rows: int, k: int, height: int, layout: str, generator, padding: int = 0, gap: int = 0, dtype=E4M3
):
    """Codes [count, rows, k] of standard normal values and their scales, each of `height` rows x 128 values."""
    device, cols = generator.device, 128 * blocks(k)
    codes = empty_codes(count, rows, k, padding, gap, device, dtype)
    scales = empty_scales(count, -(-rows // height), blocks(k), layout, gap, device)
    for matrices, part in pieces(count, rounded_up(rows, height), cols):  # floats take four times the memory
        piece = codes[matrices, part].view(torch.uint8)
        some, tall, _ = piece.shape
        values = torch.randn(some, rounded_up(tall, height), cols, device=device, generator=generator)
        values[:, tall:] = 0  # blocks at the edges are smaller
        values[:, :, k:] = 0
        q, s = quantise(values, height, dtype)
        piece.copy_(q[:, :tall, :k].view(torch.uint8))
        scales[matrices, part.start // height : part.stop // height] = s
    return codes, scales


def operands(
    m: int, n: int, k: int, layout: str, generator, padding: int = 0, row_b_scales: bool = False, types=(E4M3, E4M3)
) -> Operands:
    """a, sfa, b, sfb of these types; rows of a and of b lie `padding` bytes apart."""
    a, sfa = quantised(1, m, k, 1, layout, generator, padding, dtype=types[0])
    b, sfb = quantised(1, n, k, 1 if row_b_scales else 128, layout, generator, padding, dtype=types[1])
    return a[0], sfa[0], b[0], sfb[0]


def in_blocks(x: torch.Tensor, ends: list[int]) -> torch.Tensor:
    """The columns of groups of K as blocks one behind the other, in as much memory as x has; NaN is of no group."""
    rows, k = x.shape
    memory = torch.full((rows * k,), math.nan, device=x.device).to(x.dtype)
    bits = BITS[x.element_size()]
    for begin, end in itertools.pairwise(ends):
        memory.view(bits)[rows * begin : rows * end] = x.view(bits)[:, begin:end].reshape(-1)
    return memory.view(rows, k)


class Guarded:
    """A matrix D, or a stack of them, inside larger ones whose rest must stay as it was."""

    VALUE = 7.0

    def __init__(self, *shape: int, dtype=torch.bfloat16, device="cuda", edge: int = 16):
        *stacks, m, n = shape
        self.edge = edge
        self.all = torch.full((*stacks, m + 2 * edge, n + 2 * edge), self.VALUE, device=device, dtype=dtype)
        self.d = self.all[..., edge : edge + m, edge : edge + n]

    def intact(self) -> bool:
        first, *last = self.edge, *(edge - self.edge for edge in self.all.shape[-2:])
        rows = self.all[..., first : last[0], :]
        outside = (self.all[..., :first, :], self.all[..., last[0] :, :], rows[..., :first], rows[..., last[1] :])
        return not sum((part != self.VALUE).sum() for part in outside)


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


def unequal(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """How many elements have other bits; not waited for."""
    bits = BITS[x.element_size()]
    return (x.view(bits) != y.view(bits)).sum()


def differing(x: torch.Tensor, y: torch.Tensor) -> int:
    return int(unequal(x, y) if x.device == y.device else unequal(x.cpu(), y.cpu()))


def moved(runs: int, call, d: torch.Tensor, start: torch.Tensor | None = None) -> int:
    """How many elements of D have other bits in any of so many more runs; D is `start` before each, or all 7."""
    first, different = None, torch.zeros((), device=d.device, dtype=torch.int64)
    for _ in range(runs + 1):
        d.fill_(Guarded.VALUE) if start is None else d.copy_(start)
        call()
        first = d.clone() if first is None else first
        different += unequal(first, d)
    return int(different)


def expanded(codes: torch.Tensor, s: torch.Tensor, height: int) -> torch.Tensor:
    """codes * scales in double; a scale covers `height` rows and 128 columns."""
    rows, cols = codes.shape
    return codes.double() * s.double().repeat_interleave(height, 0)[:rows].repeat_interleave(128, 1)[:, :cols]


def bound(a, sfa, b, sfb, exact: torch.Tensor) -> torch.Tensor:
    """The bound that docs/numerics.md derives: 136 truncations to 13 bits in a block, roundings in FP32 and in bf16."""

    def magnitude(codes):
        size = codes.double().abs()
        return torch.where(size > 0, size.clamp(min=2.0**-6), size)  # subnormals keep the exponent of 2^-6

    cols = a.shape[1]
    absolute = (magnitude(a) * sfa.double().repeat_interleave(128, 1)[:, :cols]) @ (
        magnitude(b) * sfb.double().repeat_interleave(128, 0)[: b.shape[0]].repeat_interleave(128, 1)[:, :cols]
    ).t()
    total = absolute * (4 * 34 * 2.0**-13 * 1.02 + (blocks(cols) + 9) * 2.0**-23)
    return total + (exact.abs() + total) * 2.0**-8 + 2.0**-133
