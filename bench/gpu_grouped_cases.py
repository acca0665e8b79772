"""Groups of rows for GPU checks: which rows each has, in every form, and operands with garbage in all others."""

import dataclasses
import math

import torch

from gpu_cases import E4M3, NAN_CODE, Guarded, differing, quantised, rounded_up
from gpu_library import HOPPER, INDICES, MASKED, OFFSETS, ON, PREFIX_SUMS, Library


@dataclasses.dataclass
class Rows:
    """`m` rows in each of `stacks` matrices; spans: (group, first row, the row behind the last one)."""

    form: int
    numbers: list
    m: int
    spans: list
    alignment: int = 128
    stacks: int = 1
    groups: int = 0

    @property
    def planned_alignment(self) -> int:
        """What a kernel is chosen for: the other forms have none."""
        return self.alignment if self.form in (INDICES, PREFIX_SUMS) else 0

    def matrix_of(self, group: int) -> int:
        return group if self.form == MASKED else 0

    def total(self) -> int:
        return sum(end - begin for _, begin, end in self.spans)

    def busy(self) -> int:
        return sum(end > begin for _, begin, end in self.spans)

    def owned(self, device) -> torch.Tensor:
        """[stacks, m]: whether a row has a group."""
        mask = torch.zeros(self.stacks, self.m, dtype=torch.bool)
        for group, begin, end in self.spans:
            mask[self.matrix_of(group), begin:end] = True
        return mask.to(device)


def masked_rows(sizes: list, capacity: int) -> Rows:
    spans = [(g, 0, size) for g, size in enumerate(sizes)]
    return Rows(MASKED, list(sizes), capacity, spans, stacks=len(sizes), groups=len(sizes))


def offset_rows(sizes: list, first: int = 0, spare: int = 0) -> Rows:
    numbers = [first]
    for size in sizes:
        numbers.append(numbers[-1] + size)
    spans = [(g, numbers[g], numbers[g + 1]) for g in range(len(sizes))]
    return Rows(OFFSETS, numbers, numbers[-1] + spare, spans, groups=len(sizes))


def prefix_rows(sizes: list, alignment: int, spare: int = 0) -> Rows:
    spans, end = [], 0
    for g, size in enumerate(sizes):
        begin = rounded_up(end, alignment)
        end = begin + size
        spans.append((g, begin, end))
    return Rows(PREFIX_SUMS, [e for _, _, e in spans], end + spare, spans, alignment, groups=len(sizes))


def index_rows(sizes: list, alignment: int, order: list, spare: int = 0) -> Rows:
    """`order`: the groups as their rows follow one another."""
    spans, numbers = [], list[int]()
    for g in order:
        numbers += [-1] * (rounded_up(len(numbers), alignment) - len(numbers))
        spans.append((g, len(numbers), len(numbers) + sizes[g]))
        numbers += [g] * sizes[g]
    numbers += [-1] * spare
    return Rows(INDICES, numbers, len(numbers), spans, alignment, groups=len(sizes))


def small_rows() -> tuple:
    """Few rows in every form, some groups without any."""
    sizes = [3, 0, 70, 1]
    return (
        offset_rows(sizes, first=2, spare=3),
        prefix_rows(sizes, 64, spare=5),
        index_rows(sizes, 128, [2, 0, 3, 1], spare=7),
        masked_rows(sizes, 77),
    )


def random_rows(random, form: int) -> Rows:
    groups = random.choice((random.randint(1, 8), random.randint(1, 70), random.randint(1, 70)))
    largest = 300
    if random.random() < 0.03:
        groups, largest = 4096, 2  # as many as there may be
    sizes = [random.choice((0, 1, random.randint(0, largest), random.randint(0, largest))) for _ in range(groups)]
    if random.random() < 0.06:
        sizes = [0] * groups
    alignment, spare = random.choice((64, 128, 256)), random.randint(1, 77)
    if form == MASKED:
        return masked_rows(sizes, max(sizes) + spare)
    if form == OFFSETS:
        return offset_rows(sizes, random.choice((0, random.randint(0, 99))), spare)
    if form == PREFIX_SUMS:
        return prefix_rows(sizes, alignment, spare)
    return index_rows(sizes, alignment, random.sample(range(groups), groups), spare)


def random_launch(random) -> dict:
    """Ways to launch that change no bit."""
    return {"num_sms": random.choice((0, 0, 8, 40, 131)), "pdl": random.randint(0, 1)}


class Problem:
    """Operands on the device of `generator`. padding: bytes between rows; gap: rows between the matrices of a stack."""

    VALUE = Guarded.VALUE

    def __init__(
        self,
        rows: Rows,
        n: int,
        k: int,
        layout: str,
        generator,
        padding: int = 0,
        gap: int = 0,
        row_b_scales=False,
        types=(E4M3, E4M3),
        output=torch.bfloat16,
    ):
        self.rows, self.n, self.k, self.generator, self.row_b_scales = rows, n, k, generator, row_b_scales
        device = generator.device
        self.owned = rows.owned(device)
        a, sfa = quantised(rows.stacks, rows.m, k, 1, layout, generator, padding, gap, types[0])
        a.view(torch.uint8)[~self.owned] = NAN_CODE
        sfa[~self.owned] = math.nan
        height = 1 if row_b_scales else 128
        self.b, self.sfb = quantised(rows.groups, n, k, height, layout, generator, padding, gap, types[1])
        # Rows of D begin with whole lines of L2, as they do without edges.
        self.out = Guarded(rows.stacks, rows.m, n, dtype=output, device=device, edge=64)
        d = self.out.d
        single = rows.form != MASKED
        self.a, self.sfa, self.d = (t[0] if single else t for t in (a, sfa, d))
        self.stacked = a, sfa, d
        self.numbers = torch.tensor(rows.numbers, dtype=torch.int32, device=device)

    def prepare(self, library: Library, **options):
        rows = self.rows
        operands = self.a, self.sfa, self.b, self.sfb, self.d, self.numbers
        return library.prepare_grouped(*operands, rows.form, alignment=rows.alignment, **options)

    def explain(self, library: Library, expected_m: int = 0) -> dict:
        rows = self.rows
        m, of = rows.m * rows.stacks, {"groups": rows.groups, "expected_m": expected_m}
        of["alignment"] = rows.planned_alignment
        return library.explain(m, self.n, self.k, row_b_scales=int(self.row_b_scales), **of)

    def sample(self, random, groups: int, rows: int):
        """(group, rows of its matrix): some groups and of each some rows, the first and the last one among them."""
        busy = [span for span in self.rows.spans if span[2] > span[1]]
        for group, begin, end in random.sample(busy, min(groups, len(busy))):
            yield group, sorted({begin, end - 1, *(random.randrange(begin, end) for _ in range(rows - 2))})

    def way_of_model(self, dtype: torch.dtype) -> dict:
        """How the CPU is asked for a kernel's bits. With scales for each row of B the tensor cores multiply scales, as
        in this kernel."""
        if not self.row_b_scales:
            return {"batch_invariant": ON}
        suffix = {torch.bfloat16: "", torch.float16: "_f16", torch.float32: "_f32"}[self.d.dtype]
        return {"config": f"m128n128s5w2_1d1d{'_i8' if dtype == torch.int8 else ''}{suffix}"}

    def sums_wrong(self, d: torch.Tensor, group: int, at: int, picked: list, library: Library) -> str:
        """What is wrong with these rows of a group, in matrix `at` of a stack, or nothing."""
        a, sfa, _ = self.stacked
        want = torch.empty(len(picked), self.n, dtype=d.dtype)
        operands = (t.cpu() for t in (a[at, picked], sfa[at, picked], self.b[group], self.sfb[group]))
        library.gemm(*operands, want, numerics=HOPPER, **self.way_of_model(a.dtype))
        count = differing(d[at, picked], want)
        return f"{count} elements differ from the model" if count else ""

    def wrong(self, library: Library, random, groups: int, rows: int) -> str:
        """What is wrong with D, or nothing: a sample's bits against the CPU's model, what may not be written."""
        d = self.stacked[2]
        for group, picked in self.sample(random, groups, rows):
            if wrong := self.sums_wrong(d, group, self.rows.matrix_of(group), picked, library):
                return f"rows {picked} of group {group}: {wrong}"
        if not bool(torch.isfinite(d[self.owned]).all()):
            return "garbage of rows without a group reached a group"
        if not bool((d[~self.owned] == (0 if self.rows.form == INDICES else self.VALUE)).all()):
            return "rows without a group are not as they must be"
        return "" if self.out.intact() else "wrote outside of D"
