"""Products without scales for GPU checks: operands with NaN in all that is no part of them, and what D must be.

What a kernel gives follows to the bit from the f32 sums of another one that has as many parts of K (docs/numerics.md,
"Without scales"): of those without parts only one has to be held against double."""

import abc
import itertools
import math

import torch

from cost_model import key_of
from gpu_cases import Guarded, differing, in_blocks
from gpu_grouped_cases import Rows
from gpu_library import BLOCKS, COLUMNS, DTYPES, INDICES, MASKED, Library

# Types of A and B, and what one rounding to them takes: relative to what is rounded, and at least.
ROUNDING = {torch.bfloat16: (2.0**-8, 2.0**-134), torch.float16: (2.0**-11, 2.0**-25)}
NAMES = {torch.bfloat16: "bf16", torch.float16: "f16"}  # as lines of text and records call them
# Whether A and B are MN-major, [K, M] and [K, N] in memory, by the words that names of kernels have.
LAYOUTS = {"nt": (False, False), "nn": (False, True), "tn": (True, True), "tt": (True, False)}
LAYOUTS_OF_K = ("nt", "tn")


def layouts_of(form: int) -> tuple[str, ...]:
    """Layouts of groups of rows: those that share a matrix begin at any row, where TMA loads no columns of A."""
    return tuple(LAYOUTS) if form == MASKED else ("nt", "nn")


def outputs(of: torch.dtype) -> tuple[torch.dtype, torch.dtype]:
    """What D may be."""
    return of, torch.float32


def fields_of(layout: str) -> dict[str, int]:
    """What explain takes of a layout."""
    return {f"{x}_mn_major": 1 for x, is_so in zip("ab", LAYOUTS[layout], strict=True) if is_so}


def normal(
    generator, of: torch.dtype, *shape: int, padding: int = 0, gap: int = 0, mn_major: bool = False
) -> torch.Tensor:
    """Standard normal values, NaN in the `padding` elements behind a row and in the `gap` rows behind a matrix.

    `mn_major`: columns are contiguous, as rows are else, and begin at multiples of 16 bytes."""
    *stacks, rows, cols = shape
    if mn_major:
        return normal(generator, of, *stacks, cols, rows, padding=padding + -rows % 8, gap=gap).mT
    whole = torch.full((*stacks, rows + gap, cols + padding), math.nan, device=generator.device, dtype=of)
    part = whole[..., :rows, :cols]
    for matrix in part.view(-1, *part.shape[-2:]) if stacks else [part]:  # floats take twice the memory
        matrix.copy_(torch.randn(rows, cols, device=generator.device, generator=generator))
    return part


def parts_of_k(name: str) -> tuple[int, int]:
    """Ranks and k-slices, whose sums a kernel adds up."""
    tile_m, _, _, warpgroups, use, cluster, _ = key_of(name)
    return (cluster if use == "splitk" else 1), max(1, warpgroups * 64 // tile_m)


def product(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A B^T in double, and the sum of the products' magnitudes."""
    x, y = a.double(), b.double()
    return x @ y.t(), x.abs() @ y.abs().t()


def share_of_bound(d: torch.Tensor, exact: torch.Tensor, absolute: torch.Tensor, k) -> float:
    """The largest error over its bound: unscaled_sum_bound of src/ops/gemm/cpu.h, and one rounding. `k`: as
    many products each element is the sum of, or the same for all."""
    k = torch.as_tensor(k, dtype=torch.float64, device=d.device)
    bound = absolute * ((k + (k / 128).floor() + 2) * 2.0**-24).expm1() + k * 2.0**-125
    relative, least = ROUNDING.get(d.dtype, (0, 0))  # a sum in f32 is not rounded again
    bound = bound + (exact.abs() + bound) * relative + least
    error = (d.double() - exact).abs()
    share = torch.where(error > 0, error / bound, error)  # no k: no error and no bound
    return math.inf if bool(share.isnan().any()) else float(share.max()) if share.numel() else 0.0


class Case(abc.ABC):
    """One problem. D is always a stack: [stacks, M, N].

    m, n, k and `fields` are what explain takes of it; `parts` says of which operands each piece of D is the product.
    """

    of: torch.dtype
    layout: str
    m: int
    n: int
    k: int
    fields: dict[str, int]
    shape: tuple[int, int, int]
    operands: tuple[torch.Tensor, torch.Tensor]
    accumulates = True
    elsewhere = 0.0  # what is in D, once computed, where no product is

    @abc.abstractmethod
    def prepare(self, library: Library, d: torch.Tensor, **options): ...

    @abc.abstractmethod
    def parts(self) -> list:
        """(where in D, rows of A, rows of B)"""

    def explain(self, library: Library, output: torch.dtype, accumulate: int = 0) -> dict:
        fields = self.fields | ({"accumulate": 1} if accumulate else {})
        return library.explain(self.m, self.n, self.k, dtype=DTYPES[self.of], out_dtype=output, **fields)

    def names(self, library: Library, output: torch.dtype, accumulate: int = 0) -> list[str]:
        """Kernels that can take it, the planner's choice first."""
        account = self.explain(library, output, accumulate)
        chosen = account["chosen"]["name"]
        usable = [row["name"] for row in account["candidates"] if "rejected" not in row]
        return [chosen, *(name for name in usable if name != chosen)]

    def run(self, library: Library, output: torch.dtype, old: torch.Tensor | None = None, **options) -> torch.Tensor:
        """D, which was `old` and is then added to, or else of Guarded.VALUE. Raises where more than D was written."""
        device = self.operands[0].device
        out = Guarded(*self.shape, dtype=output, device=device)
        if old is not None:
            out.d.copy_(old)
        self.prepare(library, out.d, **options, **({"accumulate": 1} if old is not None else {}))()
        if not out.intact():
            raise AssertionError(f"{self}, {options}: wrote outside of D")
        return out.d.clone()

    def wanted(self, sums: torch.Tensor, output: torch.dtype, old: torch.Tensor | None = None) -> torch.Tensor:
        """The bits that any kernel gives, of the f32 sums that one gave."""
        return sums.to(output) if old is None else old + sums

    def names_without_parts(self, library: Library) -> list[str]:
        """Of the kernels that can take it with D in f32 those that add up no parts of K."""
        return [name for name in self.names(library, torch.float32) if parts_of_k(name) == (1, 1)]

    def sums(self, library: Library, config: str | None = None) -> torch.Tensor:
        """D in f32 of one kernel without parts of K; raises where it is not within the bound of the double product."""
        config = config or self.names_without_parts(library)[0]
        sums = self.run(library, torch.float32, config=config)
        self.check_bound(sums, config)
        return sums

    def check_bound(self, d: torch.Tensor, what: str, old: torch.Tensor | None = None) -> None:
        # Where no product is: no k, so that only what must be there is within the bound.
        exact = torch.full(self.shape, self.elsewhere, dtype=torch.float64, device=d.device)
        absolute, k = torch.zeros_like(exact), torch.zeros_like(exact)
        for where, a, b in self.parts():
            exact[where], absolute[where] = product(a, b)
            k[where] = a.shape[1]
        if old is not None:
            exact, absolute, k = exact + old, absolute + old.abs(), k + 1
        share = share_of_bound(d, exact, absolute, k)
        if share > 1:
            raise AssertionError(f"{self}, {what}: {share:.3g} of the bound, or rows without a group were written")

    def check(self, library: Library, sums: torch.Tensor, output: torch.dtype, old=None, config="", **options) -> None:
        """`sums`: those of any kernel without parts of K."""
        d = self.run(library, output, old, config=config, **options)
        if parts_of_k(config) != (1, 1):
            self.check_bound(d, f"{config}, D in {output}", old)
        elif count := differing(d, self.wanted(sums, output, old)):
            raise AssertionError(f"{self}, D in {output}, {config}: {count} elements are not those of another kernel")


class One(Case):
    def __init__(self, m: int, n: int, k: int, generator, of: torch.dtype, padding: int = 0, layout: str = "nt"):
        self.of, self.layout = of, layout
        self.m, self.n, self.k, self.shape, self.fields = m, n, k, (1, m, n), fields_of(layout)
        self.operands = tuple(
            normal(generator, of, rows, k, padding=padding, mn_major=mn_major)
            for rows, mn_major in zip((m, n), LAYOUTS[layout], strict=True)
        )

    def __str__(self) -> str:
        return f"{self.layout} {self.m}x{self.n}x{self.k} of {self.of}"

    def prepare(self, library, d, **options):
        a, b = self.operands
        return library.prepare(a, None, b, None, d[0], **options)

    def parts(self):
        return [(0, *self.operands)]


class OfRows(Case):
    """Groups of rows in any form; rows of A without a group are NaN."""

    accumulates = False

    def __init__(
        self, rows: Rows, n: int, k: int, generator, of: torch.dtype, padding: int = 0, gap: int = 0, layout="nt"
    ):
        self.of, self.layout = of, layout
        self.rows, self.n, self.k = rows, n, k
        self.m, self.shape = max(1, rows.stacks * rows.m), (rows.stacks, rows.m, n)
        self.fields = {"groups": rows.groups, "alignment": rows.planned_alignment} | fields_of(layout)
        self.elsewhere = 0.0 if rows.form == INDICES else Guarded.VALUE
        a, b = (
            normal(generator, of, *shape, k, padding=padding, gap=gap, mn_major=mn_major)
            for shape, mn_major in zip(((rows.stacks, rows.m), (rows.groups, n)), LAYOUTS[layout], strict=True)
        )
        a[~rows.owned(a.device)] = math.nan
        self.operands = a, b
        self.numbers = torch.tensor(rows.numbers, dtype=torch.int32, device=a.device)

    def __str__(self) -> str:
        return (
            f"{self.rows.groups} groups, form {self.rows.form}, {self.layout} {self.m}x{self.n}x{self.k} of {self.of}"
        )

    def prepare(self, library, d, **options):
        a, b = self.operands
        if self.rows.form != MASKED:
            a, d = a[0], d[0]
        of = {"alignment": self.rows.alignment}
        return library.prepare_grouped(a, None, b, None, d, self.numbers, self.rows.form, **of, **options)

    def parts(self):
        a, b = self.operands
        found = []
        for group, begin, end in self.rows.spans:
            where = self.rows.matrix_of(group), slice(begin, end)
            if end > begin:
                found.append((where, a[where], b[group]))
        return found


class OfK(Case):
    """Groups of K with so many k-blocks each; what lies before and after them is NaN."""

    def __init__(
        self, m: int, n: int, blocks: list[int], generator, of: torch.dtype, before=0, after=0, padding=0, layout="nt"
    ):
        self.of, self.layout = of, layout
        self.ends = list(itertools.accumulate((128 * size for size in blocks), initial=128 * before))
        self.m, self.n, self.k = m, n, max(128, self.ends[-1] + 128 * after)
        self.shape, self.fields = (len(blocks), m, n), {"k_groups": len(blocks)} | fields_of(layout)
        self.operands = tuple(
            normal(generator, of, rows, self.k, padding=padding, mn_major=mn_major)
            for rows, mn_major in zip((m, n), LAYOUTS[layout], strict=True)
        )
        for x in self.operands:
            x[:, : self.ends[0]], x[:, self.ends[-1] :] = math.nan, math.nan
        self.offsets = torch.tensor(self.ends, dtype=torch.int32, device=generator.device)

    def __str__(self) -> str:
        return f"{self.layout} {self.m}x{self.n}, groups of K that end at {self.ends} of {self.k}, of {self.of}"

    def prepare(self, library, d, way="device", **options):
        """`way`: where the offsets are, or that operands lie in blocks."""
        a, b = self.operands
        if way == "blocks":
            a, b = (in_blocks(x, self.ends) for x in (a, b))
        layout, offsets = (BLOCKS if way == "blocks" else COLUMNS), self.offsets
        if way != "device":
            offsets = offsets.cpu()
        return library.prepare_k_grouped(a, None, b, None, d, offsets, layout, **options)

    def parts(self):
        a, b = self.operands
        return [(g, a[:, i:j], b[:, i:j]) for g, (i, j) in enumerate(itertools.pairwise(self.ends))]
