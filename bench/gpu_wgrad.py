"""What gpu_check.py checks and times of GEMMs with scales for each row of both operands: gradients of weights."""

import itertools
import json
import math
import random
import time

import torch

from gpu_cases import E4M3, LAYOUTS, Guarded, differing, in_blocks, model, operands, sample_rows, unequal
from gpu_fixture import ROOT, Fixture
from gpu_grouped import table_cases
from gpu_grouped_cases import random_launch
from gpu_library import BLOCKS, COLUMNS, HOPPER
from gpu_timing import median_times
from records import write_record

# M, N, K: D is [M, N] in f32 and added to.
WGRAD_ROWS = (
    (2112, 4096, 7168),
    (576, 4096, 7168),
    (24576, 4096, 1536),
    (32768, 4096, 512),
    (7168, 4096, 16384),
    (4096, 4096, 7168),
    (7168, 4096, 2048),
)
# Groups, M, N, K of each as expected: D is [groups, M, N] in f32 and added to.
K_GROUPED_ROWS = (
    (4, 4096, 7168, 8192),
    (4, 7168, 2048, 8192),
    (8, 4096, 7168, 4096),
    (8, 7168, 2048, 4096),
    (16, 4096, 7168, 2048),
    (16, 7168, 2048, 2048),
)
# Long kernels that run without a rest take 5 to 8% more after a while, as the card lowers its clock. So what others
# compare with comes alone and first.
REST_S = 0.5
METHOD = (
    "bench/gpu_timing.py: CUPTI, L2 flushed, the planner's choice alone after a rest, then the ways to call it in "
    "turn, then all kernels in turn"
)
# Ways to give groups of K: columns with sizes on the device or on the host, blocks with sizes on the host.
WAYS = ("device", "host", "blocks")


def kernel_names(output: str) -> list:
    """Of the kernels of this kind that can be named; `output`: "f32", "bf16" or "kgrouped", which are of any."""
    budget = json.loads((ROOT / "tests/golden/kernel_budget.json").read_text())
    end = {"f32": "_1d1d_f32", "bf16": "_1d1d", "kgrouped": "_kgrouped"}[output]
    return [
        name.removeprefix("FineGEMM_e4m3_gemm_")
        for name in budget
        if name.endswith(end) and "_1d1d" in name and "_grouped" not in name and "e5m2" not in name
    ]


def output_of(config: str | None) -> torch.dtype:
    """D of groups of K as a kernel writes it; float32 where none is named."""
    if config is None or "_f32" in config:
        return torch.float32
    return torch.float16 if "_f16" in config else torch.bfloat16


class KGroups:
    """Operands of groups with so many k-blocks each; `before` and `after` them lie some of no group, with NaN."""

    def __init__(
        self, m, n, blocks, layout, generator, before=0, after=0, padding=0, types=(E4M3, E4M3), output=torch.float32
    ):
        ends = [128 * (before + sum(blocks[:i])) for i in range(len(blocks) + 1)]
        self.k = ends[-1] + 128 * after
        self.operands = operands(m, n, self.k, layout, generator, padding, True, types)
        for s in (self.operands[1], self.operands[3]):
            s[:, :before] = math.nan
            s[:, before + sum(blocks) :] = math.nan
        device = generator.device
        self.offsets = torch.tensor(ends, device=device, dtype=torch.int32)
        self.adds = output == torch.float32  # if it is asked to
        self.out = Guarded(len(blocks), m, n, dtype=output, device=device)
        self.d = self.out.d
        self.d.copy_(torch.randn(self.d.shape, device=device, generator=generator) * 1000)
        self.old = self.d.clone()

    def prepare(self, library, d=None, way="device", offsets=None, **options):
        """`offsets`: in the place of a copy, where they are on the host."""
        a, sfa, b, sfb = self.operands
        if way == "blocks":
            a, b = self.blocks(a), self.blocks(b)
        if offsets is None:
            offsets = self.offsets if way == "device" else self.offsets.cpu()
        layout = BLOCKS if way == "blocks" else COLUMNS
        return library.prepare_k_grouped(a, sfa, b, sfb, self.d if d is None else d, offsets, layout, **options)

    def blocks(self, x):
        return in_blocks(x, self.offsets.tolist())

    def model(self, library, rows, accumulate, config):
        """D as the CPU's model of the hardware has it; numbers that break the rules are clamped, group by group."""
        if config is None:  # the choice for all rows, not for some of them
            groups, m, n = self.d.shape
            config = library.explain(m, n, self.k, k_groups=groups, accumulate=accumulate)["chosen"]["name"]
        a, sfa, b, sfb = self.operands
        x = (a[rows].cpu(), sfa[rows].cpu(), b.cpu(), sfb.cpu())
        d, numbers = self.old[:, rows].cpu(), self.offsets.tolist()
        calls = [(d, self.offsets.cpu())]
        if numbers != sorted(numbers) or any(not 0 <= end <= self.k or end % 128 for end in numbers):
            ends = [128 * min(max(0, end) // 128, self.k // 128) for end in numbers]
            pairs = [(i, max(i, j)) for i, j in itertools.pairwise(ends)]
            calls = [(d[g : g + 1], torch.tensor(pair, dtype=torch.int32)) for g, pair in enumerate(pairs)]
        for part, offsets in calls:
            library.k_grouped_gemm(*x, part, offsets, numerics=HOPPER, accumulate=accumulate, config=config)
        return d

    def wrong(self, library, rows, accumulate, config=None) -> str:
        """What is not as the CPU's model of the hardware has it, or is around D and was written to."""
        if count := differing(self.d[:, rows].contiguous(), self.model(library, rows, accumulate, config)):
            return f"{count} elements differ from the model"
        return "" if self.out.intact() else "wrote outside of D"

    def differs(self, library, way, **options) -> str:
        """Whether D, computed another way, is not what it is now."""
        first = self.d.clone()
        self.d.copy_(self.old)
        self.prepare(library, way=way, **options)()
        if count := differing(self.d, first):
            return f"{count} elements differ between {way} and {WAYS[0]}"
        return "" if self.out.intact() else f"{way} wrote outside of D"


class Wgrad(Fixture):
    def takes(self, name, m):
        """A tile of half as many rows is for fewer rows."""
        tile_m = int(name[1 : name.index("n")])
        return tile_m == 64 or m > tile_m // 2

    def names_for(self, m, n, k, output) -> list:
        """Of the kernels that can take such a product: few k-blocks cannot be shared."""
        dtype = torch.float32 if output == "f32" else torch.bfloat16
        account = self.tested.explain(m, n, k, row_b_scales=1, out_dtype=dtype)
        return [x["name"] for x in account["candidates"] if "rejected" not in x]

    def one_product(self, m, n, k, layout, config, output, accumulate, padding=0, rows=16):
        """One GEMM: its bits against the model's, and what lies around D."""
        x = operands(m, n, k, layout, self.generator, padding, row_b_scales=True)
        out = Guarded(m, n, dtype=torch.float32 if output == "f32" else torch.bfloat16)
        out.d.copy_(torch.randn(m, n, device="cuda", generator=self.generator) * 1000)
        old = out.d.clone()
        self.tested.gemm(*x, out.d, config=config, accumulate=accumulate)
        picked = sample_rows(m, rows, self.generator)
        # The choice for all rows, not for some of them.
        kind = {"out_dtype": out.d.dtype, "row_b_scales": 1, "accumulate": accumulate}
        kernel = config or self.tested.explain(m, n, k, **kind)["chosen"]["name"]
        wrong = differing(out.d[picked], model(self.tested, *x, picked, kernel, old, accumulate))
        what = f"{m}x{n}x{k} {config}, {layout} scales, padding {padding}, accumulate {accumulate}"
        if wrong:
            raise AssertionError(f"{what}: {wrong} elements differ from the model")
        if not out.intact():
            raise AssertionError(f"{what}: wrote outside of D")

    def one_d_one_d(self):
        """Random shapes with every kernel, all layouts, odd M, tails of K; then runs with the same bits."""
        names = {output: kernel_names(output) for output in ("f32", "bf16")}
        count = 0
        while count < self.options.shapes // 2:
            m = self.random.choice((1, 2, 3, 7, 15, 33, 64, 65, 100, 128, 129, 200, 257, 384, 500, 777, 1000))
            n = 8 * self.random.randint(1, 150)
            k = self.random.choice((16 * self.random.randint(1, 200), 512 * self.random.randint(1, 6)))
            output = self.random.choice(("f32", "f32", "bf16"))
            accumulate = self.random.randint(0, 1) if output == "f32" else 0
            for config in (None, self.random.choice(self.names_for(m, n, k, output))):
                layout, padding = self.random.choice(LAYOUTS), self.random.choice((0, 0, 16, 112))
                self.one_product(m, n, k, layout, config, output, accumulate, padding)
                count += 1
        for m, n, k in WGRAD_ROWS:
            for layout in ("mn", "row"):
                self.one_product(m, n, k, layout, None, "f32", 1, rows=4)
        self.repeat_one_d_one_d(names)
        return {"gemms": count + 2 * len(WGRAD_ROWS), "kernels": sum(map(len, names.values()))}

    def repeat_one_d_one_d(self, names):
        """D is added to again and again, from the same start: the same bits after each run."""
        for output, layout in (("f32", "mn"), ("f32", "row"), ("bf16", "mn"), ("bf16", "row")):
            for name in names[output]:
                x = operands(640, 2112, 2048, layout, self.generator, row_b_scales=True)
                dtype, accumulate = (torch.float32, 1) if output == "f32" else (torch.bfloat16, 0)
                start = torch.randn(640, 2112, device="cuda", generator=self.generator).to(dtype)
                again = torch.empty_like(start)
                call = self.tested.prepare(*x, again, config=name, accumulate=accumulate)
                self.repeated(f"{name}, {layout}", call, again, start)

    def small_one_d_one_d(self):
        """Every kernel once: what the sanitizers run."""
        for output in ("f32", "bf16"):
            for name in kernel_names(output):
                m = next(m for m in (5, 70, 257) if self.takes(name, m))
                for k, layout in ((1552, self.random.choice(LAYOUTS)), (1536, "row")):  # rings go around
                    self.one_product(m, 136, k, layout, name, output, int(output == "f32"), rows=4)
        for name in kernel_names("kgrouped"):
            m = next(m for m in (5, 70, 257) if self.takes(name, m))
            for accumulate, layout in ((0, self.random.choice(("mn", "odd"))), (1, "row")):  # two kernels for some
                self.one_k_grouped(m, 136, [3, 0, 1, 13], layout, name, accumulate, 4, 1, 2, 16)
        self.one_k_grouped(70, 136, [1, 0, 2] * 25, "mn", None, 1, 4)  # listed in memory

    def one_k_grouped(self, m, n, blocks, layout, config, accumulate, rows=16, before=0, after=0, padding=0):
        p = KGroups(m, n, blocks, layout, self.generator, before, after, padding, output=output_of(config))
        accumulate = int(accumulate and p.adds)
        launch = random_launch(self.random)
        if not config:  # fewer SMs may be another choice
            del launch["num_sms"]
        options = {"config": config, "accumulate": accumulate} | launch
        p.prepare(self.tested, **options)()
        wrong = p.wrong(self.tested, sample_rows(m, rows, self.generator), accumulate, config)
        for way in WAYS[1:]:
            wrong = wrong or p.differs(self.tested, way, **options)
        if wrong:
            raise AssertionError(
                f"{m}x{n}, blocks {blocks} from {before} to {after} before the end, {layout} scales, "
                f"padding {padding}, {options}: {wrong}"
            )

    def k_grouped(self):
        """Random groups, empty ones too, with every kernel and in every way, added to D or not, more groups than a
        launch takes; then many runs with the same bits."""
        names, count = kernel_names("kgrouped"), 0
        while count < self.options.shapes // 4:
            m = self.random.choice((1, 2, 7, 33, 64, 65, 100, 128, 129, 257, 384, 500, 777))
            n = 8 * self.random.randint(1, 120)
            groups = self.random.choice((1, 2, 3, 5, 8, 24))
            most = self.random.choice((0, 1, 2, 9, 30))
            blocks = [self.random.choice((0, self.random.randint(0, most))) for _ in range(groups)]
            before, after = self.random.choice(((0, 0), (1, 0), (2, 3)))
            if sum(blocks) + before + after == 0:
                after = 1
            for config in (None, self.random.choice([x for x in names if self.takes(x, m)])):
                layout, padding = self.random.choice(LAYOUTS), self.random.choice((0, 0, 16, 112))
                for accumulate in (0, 1):
                    self.one_k_grouped(m, n, blocks, layout, config, accumulate, 8, before, after, padding)
                    count += 1
        for layout in LAYOUTS:
            self.one_k_grouped(300, 136, [1] * 1024, layout, None, 1, rows=4)
        self.one_k_grouped(64, 8, [1] * 20_000, "mn", None, 1, rows=4)
        # Empty groups between parts of vectors of scales: no warp may be left out for a round of the ring.
        sparse = [0, 0, 0, 0, 2, 1, 0, 0, 4, 0, 7, 0, 0, 0, 1, 0, 0, 9, 0, 0, 0, 1, 6, 8]
        for name in names:
            self.one_k_grouped(257, 800, sparse, "row", name, 0, 8, 2, 3)
        self.wild_k_offsets()
        self.repeat_k_grouped(names)
        self.blocks_in_turn()
        self.captured_k_grouped()
        return {"gemms": count + len(LAYOUTS), "kernels": len(names)}

    def gradients_beyond_31_bits(self):
        """A, B or D of gradients with more than 2^31 elements: dense, and in groups of K."""
        shapes, of_k = ((66_000, 33_000, 128),), ((40_000, 32_768, [1, 1]), (16_640, 136, [600, 424]))
        for m, n, k in shapes:
            self.one_product(m, n, k, "row", None, "f32", 1, rows=4)
            torch.cuda.empty_cache()
        for m, n, blocks in of_k:
            self.one_k_grouped(m, n, blocks, "row", None, 1, rows=4)
            torch.cuda.empty_cache()
        return {"dense": shapes, "of_k": of_k}

    def wild_k_offsets(self):
        """Offsets that break the rules write nothing outside of D; what they read is the CPU's too."""
        for numbers in ((-(2**31), 2**31 - 1, -1, 5, 2**30), (1024, 0, 1024, 100, 99), (640, 640, 128, 2**31 - 1, 0)):
            p = KGroups(300, 136, [2, 2, 2, 2], "mn", self.generator)
            p.offsets.copy_(torch.tensor(numbers, dtype=torch.int32))
            p.prepare(self.tested)()
            if wrong := p.wrong(self.tested, sample_rows(300, 8, self.generator), 0):
                raise AssertionError(f"offsets {numbers}: {wrong}")

    def repeat_k_grouped(self, names):
        for name in names:
            p = KGroups(640, 2112, [7, 0, 16, 1, 3], "mn", self.generator, output=output_of(name))
            again = p.old.clone()
            call = p.prepare(self.tested, again, config=name, accumulate=int(p.adds))
            self.repeated(name, call, again, p.old, runs=5 * self.RUNS)

    def blocks_in_turn(self):
        """Calls with other sizes follow one another at once: none may see the tensor maps of the next one."""
        problems = [KGroups(300, 264, sizes, "mn", self.generator) for sizes in ([5, 0, 2] * 9, [1, 7, 3] * 9)]
        for p in problems:
            p.prepare(self.tested)()
        wanted = [p.d.clone() for p in problems]
        calls = [p.prepare(self.tested, way="blocks", pdl=1) for p in problems]
        different = torch.zeros((), device="cuda", dtype=torch.int64)
        for i in range(2 * self.RUNS):
            p, want = problems[i % 2], wanted[i % 2]
            p.d.zero_()
            calls[i % 2]()
            calls[1 - i % 2]()
            different += unequal(p.d, want)
        if int(different):
            raise AssertionError(f"blocks of other sizes in turn: {int(different)} elements moved")

    def captured_k_grouped(self):
        """A graph keeps the sizes that were on the host when it was captured."""
        for way in WAYS[1:]:
            p = KGroups(200, 136, [3, 0, 4, 1] * 5, "mn", self.generator)
            p.prepare(self.tested)()
            want, offsets, graph = p.d.clone(), p.offsets.cpu(), torch.cuda.CUDAGraph()
            call = p.prepare(self.tested, way=way, offsets=offsets)
            with torch.cuda.graph(graph):
                call()
            p.d.zero_()
            offsets.zero_()
            graph.replay()
            if differing(p.d, want) or not p.out.intact():
                raise AssertionError(f"a replayed graph and a direct call differ, {way}")

    def times_of(self, *sets: dict) -> dict:
        """Microseconds of the calls of each set, which are timed in turn."""
        us: dict[str, float] = {}
        time.sleep(REST_S)
        for calls in sets:
            us |= {name: round(t, 2) for name, t in median_times(calls, self.options.rounds).items()}
        return us

    def k_grouped_speed(self):
        """Gradients of experts' weights, added to D in f32: the planner's choice and each kernel."""
        chance, rows = random.Random(0), []
        for _ in table_cases(chance):  # all tables are drawn one after the other
            pass
        for groups, m, n, expected in K_GROUPED_ROWS:
            sizes = [max(1, int(expected * chance.uniform(0.7, 1.3))) for _ in range(groups)]
            blocks = [-(-size // 128) for size in sizes]
            p = KGroups(m, n, blocks, "mn", self.generator)
            d = p.old.zero_()
            us = self.times_of(
                {"finegemm": p.prepare(self.tested, d, accumulate=1)},
                {
                    "sizes on the host": p.prepare(self.tested, d, way="host", accumulate=1),
                    "blocks": p.prepare(self.tested, d, way="blocks", accumulate=1),
                },
                {
                    name: p.prepare(self.tested, d, accumulate=1, config=name)
                    for name in kernel_names("kgrouped")
                    if self.takes(name, m) and "_f32" in name
                },
            )
            tflops = round(2e-6 * m * n * p.k / us["finegemm"], 1)
            shape = [m, n, p.k]
            line = self.tested.explain(m, n, p.k, k_groups=groups, accumulate=1)["line"]
            row = {"problem": line, "groups": groups, "expected_k": expected, "shape": shape, "tflop_per_s": tflops}
            rows.append(row | {"us": us})
            print(json.dumps(rows[-1]), flush=True)
            del p, d
            torch.cuda.empty_cache()
        record = self.machine() | {
            "method": f"{METHOD}, median of {self.options.rounds}, the sum over the launches of a call; groups have "
            "0.7 to 1.3 of the expected k, drawn after the table of groups in this order and rounded up to blocks",
            "rows": rows,
        }
        write_record(self.options.out / f"k_grouped_{self.card}.json", record)
        return {"tflops": [row["tflop_per_s"] for row in rows]}

    def wgrad(self):
        """Gradients of weights, added to D in f32: the planner's choice, other scales and outputs, each kernel."""
        rows, tflops = [], []
        for m, n, k in WGRAD_ROWS:
            a, sfa, b, sfb = operands(m, n, k, "mn", self.generator, row_b_scales=True)
            d = torch.zeros(m, n, device="cuda")
            half = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
            row_major = (a, sfa.contiguous(), b, sfb.contiguous())
            us = self.times_of(
                {"finegemm": self.tested.prepare(a, sfa, b, sfb, d, accumulate=1)},
                {
                    "row-major scales": self.tested.prepare(*row_major, d, accumulate=1),
                    "overwritten": self.tested.prepare(a, sfa, b, sfb, d),
                    "bf16": self.tested.prepare(a, sfa, b, sfb, half),
                },
                {
                    name: self.tested.prepare(a, sfa, b, sfb, d, accumulate=1, config=name)
                    for name in kernel_names("f32")
                    if self.takes(name, m)
                },
            )
            kind = {"row_b_scales": 1, "out_dtype": torch.float32, "accumulate": 1}
            line = self.tested.explain(m, n, k, **kind)["line"]
            rows.append({"problem": line, "kind": "wgrad", "shape": [m, n, k], "us": us})
            tflops.append(round(2e-6 * m * n * k / us["finegemm"]))
            print(json.dumps(rows[-1]), flush=True)
        record = self.machine() | {"method": f"{METHOD}, median of {self.options.rounds}", "rows": rows}
        (self.options.out / f"wgrad_{self.card}.json").write_text(json.dumps(record, indent=1) + "\n")
        return {"tflops": tflops}
