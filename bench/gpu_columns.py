"""Checks of quantisation of columns on a GPU: bits of the CPU backend, what surrounds the outputs, bandwidth."""

import functools
import itertools
import math

import torch

from gpu_cases import CODES, blocks
from gpu_fixture import Fixture, TooSlow
from gpu_library import Library
from gpu_timing import median_times

CANARY = 0x5A  # in each byte that is not written
TYPES = (torch.bfloat16, torch.float16, torch.float32)


def columns_for(rows: int, groups: int) -> int:
    """The least columns of codes."""
    return (rows + 127 * groups) // 128 * 128 if groups else -(-rows // 16) * 16


def canaries(rows: int, cols: int, dtype, device: str) -> torch.Tensor:
    size = torch.empty((), dtype=dtype).element_size()
    return torch.full((rows, cols * size), CANARY, dtype=torch.uint8, device=device).view(dtype)


class Problem:
    """A random quantisation of columns, with rows or without, with groups or without. Outputs are parts of memory."""

    def __init__(self, random, generator, dtype=None, rows: int | None = None, with_rows=None, groups=None, codes=None):
        self.codes = codes or random.choice(CODES)
        self.m = random.choice((0, 1, 127, 128, 129, 300, random.randint(1, 3000))) if rows is None else rows
        self.k = 16 * random.choice((1, 8, 9, 17, 64, random.randint(1, 160)))
        self.with_rows = random.random() < 0.5 if with_rows is None else with_rows
        self.power_of_two = random.random() < 0.5
        groups = random.choice((0, 0, 1, 7, 64, 300, 700)) if groups is None else groups
        self.offsets = self.random_offsets(random, groups) if groups else None
        spare = 128 * random.choice((0, 0, 1)) if groups else 16 * random.choice((0, 0, 7))
        self.columns, self.pad = columns_for(self.m, groups) + spare, 16 * random.choice((0, 3))
        self.mn_major = random.random() < 0.7
        x = torch.randn(self.m, self.k + 32, device="cuda", generator=generator) * 10 ** random.uniform(-6, 3)
        if self.m:
            x[0, :3] = torch.tensor([math.nan, math.inf, -math.inf])
            x[-1] = 0
        self.x = x.to(dtype or random.choice(TYPES))

    def random_offsets(self, random, groups: int) -> torch.Tensor:
        """Groups of any sizes, many empty; rows before and behind them may have none."""
        ends = sorted(random.randint(0, self.m) for _ in range(groups + 1))
        if random.random() < 0.5:
            ends[0], ends[-1] = 0, self.m
        return torch.tensor(ends, dtype=torch.int32)

    def memory(self, device: str) -> dict[str, torch.Tensor]:
        """All that is written, with what lies between and around."""
        down, across = self.k + 5, blocks(self.columns) + 3
        if self.mn_major:
            down, across = across, down
        groups = 0 if self.offsets is None else len(self.offsets)
        return {
            "q": canaries(self.k + 1, self.columns + self.pad, self.codes, device),
            "scales": canaries(down, across, torch.float32, device),
            "row_q": canaries(self.m + 1, self.k + self.pad, self.codes, device),
            "row_scales": canaries(self.m + 1, blocks(self.k) + 1, torch.float32, device),
            "begins": canaries(1, groups + 1, torch.int32, device),
        }

    def run(self, library: Library, memory: dict[str, torch.Tensor]) -> None:
        device = memory["q"].device
        scales = memory["scales"].t() if self.mn_major else memory["scales"]
        optional = {}
        if self.with_rows:
            optional["row_q"] = memory["row_q"][: self.m, : self.k]
            optional["row_scales"] = memory["row_scales"][: self.m, : blocks(self.k)]
        if self.offsets is not None:
            optional |= {"offsets": self.offsets.to(device), "begins": memory["begins"][0, :-1]}
        library.quantize_columns(
            self.x.to(device)[:, : self.k],
            memory["q"][: self.k, : self.columns],
            scales[: self.k, : blocks(self.columns)],
            power_of_two=self.power_of_two,
            **optional,
        )

    def __str__(self):
        groups = 0 if self.offsets is None else len(self.offsets) - 1
        kind = f"{self.m}x{self.k} {self.x.dtype} to {self.codes}, {groups} groups, pow2 {self.power_of_two}"
        return f"quantize_columns {kind}{', with rows' if self.with_rows else ''}"


def as_bytes(memory: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([t.reshape(-1).view(torch.uint8) for t in memory.values()])


class Columns(Fixture):
    def quantize_columns(self):
        """GPU and CPU give the same bits, for columns, rows and where groups begin, and write nothing else."""
        count = max(12, self.options.shapes // 10)
        cases = [{"rows": rows, "groups": groups} for rows, groups in itertools.product((128, 1, 0), (0, 1, 300))]
        for case in cases + [{}] * (count - len(cases)):
            problem = Problem(self.random, self.generator, **case)
            results = []
            for device in ("cuda", "cpu"):
                memory = problem.memory(device)
                problem.run(self.tested, memory)
                results.append({name: t.cpu() for name, t in memory.items()})
            for name, by_gpu in results[0].items():
                if not torch.equal(by_gpu.view(torch.uint8), results[1][name].view(torch.uint8)):
                    raise AssertionError(f"{problem}: GPU and CPU differ in {name}")
        return {"cases": count}

    def quantize_columns_repeat(self):
        """The same bits each time."""
        for dtype in TYPES:
            problem = Problem(self.random, self.generator, dtype, 1000, True, 32)
            memory = problem.memory("cuda")
            problem.run(self.tested, memory)
            first, moved = as_bytes(memory), torch.zeros((), dtype=torch.int64, device="cuda")
            for _ in range(self.RUNS):
                for t in memory.values():
                    t.view(torch.uint8).fill_(CANARY)
                problem.run(self.tested, memory)
                moved += (as_bytes(memory) != first).sum()
            if count := moved.item():
                raise AssertionError(f"{problem}: {count} elements moved in {self.RUNS} runs")
        return {"runs": self.RUNS}

    def quantize_columns_tall(self):
        """Where rows and offsets in bytes pass 2^31: x and codes of columns have more elements than that."""
        m, k = 70_000, 32_768
        x = torch.zeros(m, k, dtype=torch.bfloat16, device="cuda")
        probed = [0, 1, 65_536, m - 1]
        x[probed] = torch.randn(len(probed), k, device="cuda", generator=self.generator).bfloat16()
        columns = columns_for(m, 0)
        q = torch.empty(k, columns, dtype=torch.float8_e4m3fn, device="cuda")
        scales = torch.empty(blocks(columns), k, device="cuda")
        row_q = torch.empty(m, k, dtype=torch.float8_e4m3fn, device="cuda")
        row_scales = torch.empty(m, blocks(k), device="cuda")
        self.tested.quantize_columns(x, q, scales.t(), row_q, row_scales)
        want, want_scales = torch.empty_like(row_q), torch.empty_like(row_scales)
        self.tested.quantize("rows", x, want, want_scales)
        codes = want.view(torch.uint8)
        if not torch.equal(row_q.view(torch.uint8), codes) or not torch.equal(row_scales, want_scales):
            raise AssertionError("codes of rows differ from those of quantize_rows")
        for row in probed:
            first = row // 128 * 128
            part = x[first : first + 128].t().contiguous()
            want, want_scales = torch.empty(part.shape, dtype=q.dtype, device="cuda"), torch.empty(k, 1, device="cuda")
            self.tested.quantize("rows", part, want, want_scales)
            got = q[:, first : first + part.shape[1]].contiguous()
            same = torch.equal(got.view(torch.uint8), want.view(torch.uint8))
            if not same or not torch.equal(scales[first // 128], want_scales[:, 0]):
                raise AssertionError(f"codes of columns differ in rows {first} and on")
        return {"elements": m * k}

    def small_quantize_columns(self):
        """Every kernel for columns, with rows and groups."""
        for dtype, groups, codes in itertools.product(TYPES, (0, 3), CODES):
            problem = Problem(self.random, self.generator, dtype, 130, True, groups, codes)
            problem.run(self.tested, problem.memory("cuda"))

    def quantize_columns_bandwidth(self):
        """Quantisation of columns of bf16, alone and with rows, against copies of as many bytes.

        Scales are MN-major, as new ones are; with row-major ones of rows it is measured, too, but not judged: each is
        stored alone, an eighth of what memory writes at once.
        """
        out = {}
        for rows, cols, groups in ((4096, 7168, 0), (8192, 7168, 0), (65536, 7168, 32), (8192, 4096, 256)):
            x = torch.randn(rows, cols, device="cuda", generator=self.generator).bfloat16()
            columns = columns_for(rows, groups)
            q = torch.empty(cols, columns, dtype=torch.float8_e4m3fn, device="cuda")
            scales = torch.empty(blocks(columns), cols, device="cuda").t()
            numbers = {}
            if groups:
                offsets = torch.arange(groups + 1, device="cuda") * (rows // groups)
                numbers = {
                    "offsets": offsets.int(),
                    "begins": torch.empty(groups + 1, dtype=torch.int32, device="cuda"),
                }
            row_q = torch.empty(rows, cols, dtype=torch.float8_e4m3fn, device="cuda")
            row_scales = torch.empty(blocks(cols), rows, device="cuda").t()
            columns_only = functools.partial(self.tested.quantize_columns, x, q, scales, **numbers)
            calls = {
                "columns": columns_only,
                "both": functools.partial(columns_only, row_q, row_scales),
                "row-major": functools.partial(columns_only, row_q, row_scales.contiguous()),
            }
            # A copy reads and writes its bytes; x has two for each element, the codes one, of rows another one.
            moved = {"columns": 2 * x.numel() + q.numel(), "both": 3 * x.numel() + q.numel()}
            for kind, count in moved.items():
                half = torch.empty(count // 2, dtype=torch.uint8, device="cuda").random_(generator=self.generator)
                calls[f"copy for {kind}"] = functools.partial(torch.empty_like(half).copy_, half)
            t = median_times(calls, self.options.rounds)
            copies = {kind: t[f"copy for {kind}"] for kind in moved}
            copies["row-major"] = copies["both"]
            out[f"{rows}x{cols}" + (f" {groups} groups" if groups else "")] = {
                kind: round(us / t[kind], 3) for kind, us in copies.items()
            } | {"us": {name: round(us, 1) for name, us in t.items()}}
        worst = min(row[kind] for row in out.values() for kind in ("columns", "both"))
        if worst < 0.8:
            raise TooSlow(f"quantisation of columns reaches {worst:.2f} of the bandwidth of a copy: {out}")
        return out
