"""What clients of DeepGEMM ask for: shapes by kind of call, operands, and calls on them in each layout of scales."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator

import torch

from dense_table import DENSE_SHAPES
from gpu_cases import E4M3, blocks, quantise, rounded_up
from gpu_grouped import EXPERT_NK, MASKED_SHAPES, RAGGED_SHAPES
from gpu_grouped_cases import Rows, index_rows, masked_rows, offset_rows, prefix_rows
from gpu_library import BLOCKS, MASKED, Library
from gpu_wgrad import K_GROUPED_ROWS, WGRAD_ROWS

ALIGNMENT = 128
TABLE = ("contig", "psum", "masked", "kgroup", "wgrad", "dense")
# Hidden and inner extents of models' experts; these are timed with so many rows each, whole and in parts of N.
MODELS = {
    "Qwen3-235B-A22B": (4096, 1536),
    "Qwen3-30B-A3B": (2048, 768),
    "GLM-4.5": (5120, 1536),
    "Kimi-K2": (7168, 2048),
    "MiniMax-M2": (3072, 1536),
    "DeepSeek-V4-Flash": (4096, 2048),
    "DeepSeek-V4-Pro": (7168, 3072),
}
EXPERTS_AT_HAND, EXPERT_ROWS, SLICES = 32, (1, 4, 16, 64), (256, 512, 768)


class Pool:
    """Codes of standard normal values, of which operands are views: there are enough for any stack of weights."""

    PIECE = 1 << 26

    def __init__(self, count: int, seed: int):
        generator = torch.Generator("cuda").manual_seed(seed)
        self.codes = torch.empty(rounded_up(count, self.PIECE), dtype=E4M3, device="cuda")
        for piece in self.codes.split(self.PIECE):
            values = torch.randn(1, self.PIECE >> 13, 1 << 13, device="cuda", generator=generator)
            piece.view(torch.uint8).copy_(quantise(values, 1)[0].view(torch.uint8).flatten())
        self.generator = generator

    def matrix(self, *shape: int) -> torch.Tensor:
        return self.codes[: torch.Size(shape).numel()].view(shape)

    def scales(self, *shape: int) -> torch.Tensor:
        """Row-major, about as large as those of normal values."""
        return torch.rand(shape, device="cuda", generator=self.generator) * 0.004 + 0.004


def mn_major(scales: torch.Tensor) -> torch.Tensor:
    """The same numbers, neighbouring rows side by side, columns a multiple of 16 bytes apart."""
    *stacks, rows, cols = scales.shape
    out = scales.new_empty(*stacks, cols, rounded_up(rows, 4))[..., :rows].transpose(-1, -2)
    return out.copy_(scales)


@dataclasses.dataclass
class Row:
    """A row of the table. `calls`: by layout of scales, the client's first, timed in turn; `others` after these.
    `product`: some rows of D, and what they must be."""

    kind: str
    shape: list[int]
    calls: dict[str, Callable[[], None]]
    account: dict  # what explain says
    named: Callable[[str], Callable[[], None]]  # the first call by another kernel
    d: torch.Tensor
    product: Callable[[], tuple[torch.Tensor, torch.Tensor]]  # (as computed, as it must be)
    others: dict[str, Callable[[], None]] = dataclasses.field(default_factory=dict)
    source: str = ""  # whose layer it is

    def wrong(self) -> str:
        """What is wrong with the last call's D, or nothing. D in bf16 is off by 2^-9 at most, and sums are in f32."""
        got, want = (x.double() for x in self.product())
        away = float((got - want).norm() / want.norm())
        return "" if away < 4e-3 else f"{self.kind} {self.shape}: off by {away:.2e}"


def product_of(a, sfa, b, sfb, height: int) -> torch.Tensor:
    """[rows, k] by [n, k], each with scales of 128 columns; those of B of `height` rows."""
    wide = b.float() * sfb.repeat_interleave(height, 0)[: b.shape[0]].repeat_interleave(128, 1)[:, : b.shape[1]]
    return (a.float() * sfa.repeat_interleave(128, 1)[:, : a.shape[1]]).double() @ wide.double().t()


class Clients:
    def __init__(self, tested: Library, sizes: dict):
        self.tested, self.sizes = tested, sizes
        self.a = Pool(1 << 29, 1)
        self.b = Pool(64 * 6144 * 7168, 2)
        self.memory = torch.empty(1 << 32, dtype=torch.uint8, device="cuda")  # of D

    def d(self, *shape: int, dtype=torch.bfloat16) -> torch.Tensor:
        bytes_ = torch.Size(shape).numel() * dtype.itemsize
        return self.memory[:bytes_].view(dtype).view(shape).zero_()

    def rows_of(self, kind: str, sizes: list[int], expected: int) -> Rows:
        if kind == "masked":
            return masked_rows(sizes, rounded_up(max(int(1.3 * expected) + 1, 128), 128))
        if kind == "contig":
            rows = index_rows(sizes, ALIGNMENT, list(range(len(sizes))))
        elif kind == "psum":
            rows = prefix_rows(sizes, ALIGNMENT)
        else:
            return offset_rows(sizes)
        rest = rounded_up(rows.m, ALIGNMENT) - rows.m
        rows.m += rest
        rows.numbers += [-1] * rest if kind == "contig" else []
        return rows

    def grouped(self, kind: str, sizes: list[int], expected: int, n: int, k: int) -> Row:
        rows = self.rows_of(kind, sizes, expected)
        stacks = (rows.stacks,) if rows.form == MASKED else ()
        a, sfa = self.a.matrix(*stacks, rows.m, k), self.a.scales(*stacks, rows.m, blocks(k))
        b, sfb = self.b.matrix(rows.groups, n, k), self.b.scales(rows.groups, blocks(n), blocks(k))
        d = self.d(*stacks, rows.m, n)
        numbers = torch.tensor(rows.numbers, dtype=torch.int32, device="cuda")
        told = expected if rows.form == MASKED else 0

        def call(scales, config=None):
            operands = (a, scales, b, sfb, d, numbers, rows.form)
            return self.tested.prepare_grouped(*operands, ALIGNMENT, told, config=config)

        group, begin, end = max(rows.spans, key=lambda span: span[2] - span[1])

        def product():
            at = slice(max(begin, end - 16), end)
            x, s, y = (t[group] if stacks else t for t in (a, sfa, d))
            return y[at], product_of(x[at], s[at], b[group], sfb[group], 128)

        columns = mn_major(sfa)
        fields = {"groups": rows.groups, "expected_m": told, "alignment": rows.planned_alignment}
        account = self.tested.explain(rows.m * rows.stacks, n, k, **fields)
        calls, others = {"finegemm": call(columns), "finegemm_row_major": call(sfa)}, {}
        if kind == "contig":
            others["dense_as_many_rows"] = self.tested.prepare(a, columns, b[0], sfb[0], d)
        shape = [rows.groups, expected, n, k]
        return Row(kind, shape, calls, account, lambda name: call(columns, name), d, product, others)

    def kgroup(self, groups: int, m: int, n: int, expected: int) -> Row:
        """Row-major scales are copied to columns first, as finegemm.deep_gemm's function does."""
        sizes = self.sizes["k"][f"{groups}x{expected}"]
        k, ends = sum(sizes), [0, *itertools.accumulate(sizes)]
        a, b = self.a.matrix(m, k), self.b.matrix(n, k)
        sfa, sfb = self.a.scales(m, k // 128), self.b.scales(n, k // 128)
        columns = mn_major(sfa), mn_major(sfb)
        d, offsets = self.d(groups, m, n, dtype=torch.float32), torch.tensor(ends, dtype=torch.int32)

        def call(x, y, config=None):
            options = {"layout": BLOCKS, "config": config, "accumulate": 1}
            return self.tested.prepare_k_grouped(a, x, b, y, d, offsets, **options)

        by_columns = call(*columns)

        def copied():
            for sf, to in zip((sfa, sfb), columns, strict=True):
                self.tested.scale_layout(sf, to)
            by_columns()

        def product():
            begin, end = ends[-2:]
            last = a.view(-1)[m * begin :].view(m, -1)[:16], b.view(-1)[n * begin :].view(n, -1)
            at = slice(begin // 128, end // 128)
            return d[-1, :16], product_of(last[0], sfa[:16, at], last[1], sfb[:, at], 1)

        calls = {"finegemm": copied, "finegemm_mn_major": by_columns}
        # As columns: for more than 11 groups blocks need a list of maps.
        one_launch = self.tested.prepare_k_grouped(a, columns[0], b, columns[1], d, offsets, accumulate=1)
        others = {"row_major_uncopied": call(sfa, sfb), "columns_in_one_launch": one_launch}
        account = self.tested.explain(m, n, k, k_groups=groups, accumulate=1)
        shape = [groups, m, n, expected]
        return Row("kgroup", shape, calls, account, lambda name: call(*columns, name), d, product, others)

    def product(self, kind: str, m: int, n: int, k: int) -> Row:
        """`wgrad`: scales for each row of B too, and D in f32, added to. `dense`: with MN-major scales."""
        adds = int(kind == "wgrad")
        height = 1 if adds else 128
        a, sfa, b, sfb = self.a.matrix(m, k), self.a.scales(m, blocks(k)), self.b.matrix(n, k), None
        sfb = self.b.scales(-(-n // height), blocks(k))
        d = self.d(m, n, dtype=torch.float32 if adds else torch.bfloat16)

        def call(x, y, config=None):
            return self.tested.prepare(a, x, b, y, d, config=config, accumulate=adds)

        columns = mn_major(sfa), mn_major(sfb) if adds else sfb
        both = {"finegemm_mn_major": call(*columns), "finegemm_row_major": call(sfa, sfb)}
        first = "finegemm_row_major" if adds else "finegemm_mn_major"
        calls = {"finegemm": both.pop(first), **both}
        fields = {"row_b_scales": adds, "accumulate": adds, "out_dtype": d.dtype}
        account = self.tested.explain(m, n, k, **fields)
        one = torch.ones((), device="cuda")

        def cublas():
            torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True)

        def copied():
            for sf, to in zip((sfa, sfb), columns, strict=True):
                self.tested.scale_layout(sf, to)
            calls["finegemm_mn_major"]()

        others = {"row_major_copied": copied} if adds else {}
        if not adds:
            calls["cublas_tensor"] = cublas
        picked = slice(max(0, m - 16), m)

        def rows():
            return d[picked], product_of(a[picked], sfa[picked], b, sfb, height)

        return Row(kind, [m, n, k], calls, account, lambda name: call(*columns, name), d, rows, others)

    def table(self, kind: str) -> Iterator[Row]:
        """The rows of a kind, one after the other: they share memory."""
        if kind == "kgroup":
            yield from (self.kgroup(*shape) for shape in K_GROUPED_ROWS)
        elif kind == "wgrad":
            yield from (self.product(kind, *shape) for shape in WGRAD_ROWS)
        elif kind == "dense":
            yield from (self.product(kind, *shape) for shape in DENSE_SHAPES)
        elif kind == "experts":
            yield from self.experts()
        else:
            shapes = MASKED_SHAPES if kind == "masked" else RAGGED_SHAPES
            for (groups, expected), (n, k) in itertools.product(shapes, EXPERT_NK):
                yield self.grouped(kind, self.sizes["rows"][f"{groups}x{expected}"], expected, n, k)

    def experts(self) -> Iterator[Row]:
        """Ragged groups of few rows: some experts of each model, both products of each."""
        for (model, (hidden, inner)), rows in itertools.product(MODELS.items(), EXPERT_ROWS):
            for n, k in [(2 * inner, hidden), (hidden, inner), *((n, hidden) for n in SLICES)]:
                row = self.grouped("experts", [rows] * EXPERTS_AT_HAND, rows, n, k)
                yield dataclasses.replace(row, source=f"{model}, part of N" if n in SLICES else model)
