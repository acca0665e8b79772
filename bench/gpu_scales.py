"""Checks of changes of scales' layout on a GPU: bits of the CPU backend, what surrounds the output, and bandwidth."""

import functools
import math
import statistics

import torch

from gpu_fixture import Fixture, TooSlow
from gpu_library import K_PREFIX_SUMS, K_SIZES, NO_GROUPS, ROW_GROUPS, Library
from gpu_timing import median_times

TRANSFORMS = ("transpose", "round", "pack", "unpack")
BUFFER_SETS = 5
CANARY = 0x7FC0DEAD  # a NaN where nobody reads, and what nobody overwrites
SPECIAL = (0, -(1 << 31), 0x7F800000, -0x800000, 0x7FC00001, 1, 0x7FFFFF, 0x7F7FFFFF)


def strided(memory: torch.Tensor, count: int, rows: int, cols: int, mn_major: bool, pitch: int, gap: int):
    """[count, rows, cols] in `memory`, as what its format is."""
    strides = (1, pitch) if mn_major else (pitch, 1)
    return memory.as_strided((count, rows, cols), (pitch * (cols if mn_major else rows) + gap, *strides))


class Problem:
    """A random change of layout. Input and output lie in memory that is longer, full of canaries."""

    def __init__(
        self,
        random,
        transform: str | None = None,
        grouped: bool | None = None,
        rows: int = 0,
        cols: int = 0,
        mn_major: bool | None = None,
    ):
        transform = transform or random.choice(TRANSFORMS)
        forms = (ROW_GROUPS, K_SIZES, K_PREFIX_SUMS) if transform == "pack" else (ROW_GROUPS,)
        grouped = random.random() < 0.5 if grouped is None else grouped
        self.form = random.choice(forms) if grouped else NO_GROUPS
        of_k = self.form in (K_SIZES, K_PREFIX_SUMS)
        self.from_packed, self.to_packed = transform == "unpack", transform == "pack"
        self.power_of_two = transform == "round" or (transform == "pack" and random.random() < 0.5)
        self.count = random.randint(1, 5) if self.form == NO_GROUPS else 1
        self.mn_major = mn_major
        self.rows = rows or random.choice((1, 5, 64, 127, 129, 300, random.randint(1, 9000)))
        self.alignment, self.scale_k = 1 << random.randint(0, 8), random.choice((32, 128))
        cols = cols or random.choice((1, 2, 3, 8, 56, 57, 64, 65, 144, random.randint(1, 300)))
        self.numbers, taken, words = self.groups(random)
        cols = max(taken, 1) if of_k else cols
        self.in_rows = self.rows if random.random() < 0.7 else -(-self.rows // 128)
        self.in_cols = -(-cols // 4) if self.from_packed else cols
        self.out_cols = (max(words, 1) if of_k else -(-cols // 4)) if self.to_packed else cols
        self.layouts = [self.layout(random, *extents) for extents in ((self.in_rows, self.in_cols), self.out_extents())]

    def out_extents(self):
        return self.rows, self.out_cols

    def groups(self, random):
        """The numbers, the columns of scales that groups of K have, and their words."""
        if self.form == NO_GROUPS:
            return None, 0, 0
        numbers, end, taken, words = [], 0, 0, 0
        for _ in range(random.choice((1, 3, 32, 300))):
            begin = -(-end // self.alignment) * self.alignment
            if self.form == ROW_GROUPS:
                end = max(end, min(begin + random.randint(0, 200), self.rows))
                numbers.append(end)
                continue
            k = random.choice((0, 1, self.scale_k, random.randint(0, 9 * self.scale_k)))
            scales = -(-k // self.scale_k)
            taken, words, end = taken + scales, words + -(-scales // 4), begin + k
            numbers.append(k if self.form == K_SIZES else end)
        return torch.tensor(numbers, dtype=torch.int32), taken, words

    def layout(self, random, rows: int, cols: int):
        mn_major = random.random() < 0.6 if self.mn_major is None else self.mn_major
        inner = rows if mn_major else cols
        return (
            mn_major,
            random.choice((inner, -(-inner // 4) * 4, inner + random.randint(1, 9))),
            4 * random.randint(0, 2),
        )

    def memory(self, rows: int, cols: int, layout) -> int:
        mn_major, pitch, gap = layout
        return self.count * (pitch * (cols if mn_major else rows) + gap) + 64

    def make(self, generator):
        """The input on the GPU: any bits, with zeros, infinities, NaN and subnormal numbers among them."""
        size = self.memory(self.in_rows, self.in_cols, self.layouts[0])
        whole = torch.full((size,), CANARY, dtype=torch.int32, device="cuda")
        sf = strided(whole, self.count, self.in_rows, self.in_cols, *self.layouts[0])
        bits = torch.randint(-(1 << 31), 1 << 31, sf.shape, device="cuda", generator=generator).int()
        special = torch.tensor(SPECIAL, dtype=torch.int64, device="cuda").int()
        which = torch.randint(0, 80, sf.shape, device="cuda", generator=generator)
        sf.copy_(torch.where(which < 8, special[which.clamp(max=7)], bits))
        self.whole, self.out_size = whole, self.memory(self.rows, self.out_cols, self.layouts[1])

    def run(self, library: Library, device: str) -> torch.Tensor:
        """All memory of the output, and what surrounds it."""
        whole, out = (
            self.whole.to(device=device),
            torch.full((self.out_size,), CANARY, dtype=torch.int32, device=device),
        )
        self.into(library, whole, out)
        return out

    def into(self, library: Library, whole: torch.Tensor, out: torch.Tensor) -> None:
        from_ = whole if self.from_packed else whole.view(torch.float32)
        to = out if self.to_packed else out.view(torch.float32)
        library.scale_layout(
            strided(from_, self.count, self.in_rows, self.in_cols, *self.layouts[0]),
            strided(to, self.count, *self.out_extents(), *self.layouts[1]),
            None if self.numbers is None else self.numbers.to(device=out.device),
            self.form,
            self.alignment,
            self.scale_k,
            self.power_of_two,
        )

    def __str__(self):
        return str({k: v for k, v in vars(self).items() if k not in ("whole", "numbers")})


class Scales(Fixture):
    def scale_layout(self):
        """Random problems: GPU and CPU give the same bits, and both leave alone what is not theirs."""
        for _ in range(self.options.shapes):
            self.one_scale_layout()
        return {"problems": self.options.shapes}

    def one_scale_layout(self):
        problem = Problem(self.random)
        problem.make(self.generator)
        by_gpu, by_cpu = (problem.run(self.tested, device) for device in ("cuda", "cpu"))
        if not torch.equal(by_gpu.cpu(), by_cpu):
            raise AssertionError(f"GPU and CPU differ: {problem}")
        return problem

    def scale_layout_repeat(self):
        """The same bits each time, from two streams, and from a graph that is captured once and replayed."""
        for _ in range(8):
            problem = self.one_scale_layout()
            wanted = problem.run(self.tested, "cuda")
            numbers = problem.numbers
            problem.numbers = (
                None if numbers is None else numbers.to(device="cuda")
            )  # no copy while a graph is captured
            outs = [torch.full_like(wanted, CANARY) for _ in range(2)]
            streams = [torch.cuda.Stream() for _ in outs]
            torch.cuda.synchronize()
            for _ in range(self.RUNS):
                for stream, out in zip(streams, outs, strict=True):
                    with torch.cuda.stream(stream):
                        out.fill_(CANARY)
                        problem.into(self.tested, problem.whole, out)
                torch.cuda.synchronize()
                if not all(torch.equal(out, wanted) for out in outs):
                    raise AssertionError(f"elements differ when repeated: {problem}")
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                problem.into(self.tested, problem.whole, outs[0])
            for _ in range(self.RUNS):
                outs[0].fill_(CANARY)
                graph.replay()
                torch.cuda.synchronize()
                if not torch.equal(outs[0], wanted):
                    raise AssertionError(f"elements differ from a graph: {problem}")
        return {"problems": 8, "runs": self.RUNS}

    def scale_layout_tall(self, rows: int = (1 << 31) // 56 + 4097):
        """More than 2^31 elements, row-major and MN-major."""
        cols = 56
        sf = torch.empty(rows, cols, dtype=torch.int32, device="cuda").random_(generator=self.generator)
        pitch = -(-rows // 4) * 4
        out = torch.empty_strided((rows, cols), (1, pitch), dtype=torch.int32, device="cuda")
        self.tested.scale_layout(sf.view(torch.float32), out.view(torch.float32))
        self.same_rows(out, lambda part: sf[part])
        packed = torch.empty_strided((rows, cols // 4), (1, pitch), dtype=torch.int32, device="cuda")
        for source in (sf, out):
            packed.fill_(CANARY)
            self.tested.scale_layout(source.view(torch.float32), packed)
            self.same_rows(packed, lambda part, source=source: self.packed(source[part]))
        back = out.view(torch.float32)
        self.tested.scale_layout(packed, back)
        self.same_rows(out, lambda part: (sf[part] >> 23 & 0xFF) << 23)
        return {"elements": rows * cols}

    @staticmethod
    def packed(bits: torch.Tensor) -> torch.Tensor:
        exponents = (bits >> 23 & 0xFF).unflatten(-1, (-1, 4))
        return (exponents << torch.tensor((0, 8, 16, 24), device=bits.device)).sum(-1, dtype=torch.int32)

    @staticmethod
    def same_rows(found: torch.Tensor, wanted) -> None:
        step = 1 << 22
        for first in range(0, len(found), step):
            part = slice(first, first + step)
            if not torch.equal(found[part], wanted(part)):
                raise AssertionError(f"elements differ from row {first} on of {len(found)}")

    def small_scale_layout(self):
        """Every kernel on several problems: what the sanitizers run."""
        kernels = [(transform, grouped) for transform in TRANSFORMS for grouped in (False, True)]
        problems = [Problem(self.random, *kernel) for kernel in 16 * kernels]
        # Most of the loads that a thread has in flight have no word here, and no place in the tile to take one from.
        problems += [Problem(self.random, "unpack", grouped=True, rows=n, cols=64, mn_major=True) for n in (1, 5)]
        # What threads store as they have loaded it, by columns and by rows, and rows that lie one behind the other.
        for rows, cols, mn_major in ((132, 64, True), (132, 64, False), (131, 64, False), (132, 57, False)):
            problem = Problem(self.random, "pack", grouped=False, rows=rows, cols=cols)
            problem.in_rows, problem.layouts = rows, [(mn_major, 132 if mn_major else cols, 0), (True, 132, 0)]
            problems.append(problem)
        for problem in problems:
            problem.make(self.generator)
            problem.run(self.tested, "cuda")
        torch.cuda.synchronize()
        return {"kernels": len(kernels)}

    def scale_layout_bandwidth(self):
        """Against a copy that moves as many bytes, from 8 MB on.

        Each in several sets of buffers, of which the median counts: a copy of 12 MB takes 4.4 to 4.8 us, by where its
        buffers lie.
        """
        rows = [
            *((1, mn, k, mn_major) for mn, k in ((32768, 64), (40960, 56), (131072, 57)) for mn_major in (False, True)),
            (1, 1 << 21, 1, False),
            (1, 1 << 18, 8, False),
            (1, 16384, 144, False),
            (32, 4096, 56, False),
            (1, 7168, 2048, True),
        ]
        found = {}
        for count, mn, k, mn_major in rows:
            for kind in ("transpose", "pack", "unpack"):
                if kind == "transpose" and mn_major:
                    continue  # is in place already
                name = f"{kind} {count}x{mn}x{k} {'MN-major' if mn_major else 'row-major'}"
                found[name] = self.beside_copies(kind, count, mn, k, mn_major)
        for name, mn, k, mn_major, form in (
            ("pack 32 groups of rows 131072x57", 131072, 57, False, ROW_GROUPS),
            ("pack 128 groups of K 7168x2048", 7168, 2048, True, K_SIZES),
        ):
            numbers = [mn // 32 * (g + 1) for g in range(32)] if form == ROW_GROUPS else [k // 128 * 128] * 128
            groups = {"numbers": torch.tensor(numbers, dtype=torch.int32, device="cuda"), "form": form}
            found[name] = self.beside_copies("pack", 1, mn, k, mn_major, **groups)
        worst = min(found, key=lambda name: found[name]["of_copy"])
        if found[worst]["of_copy"] < 0.8:
            raise TooSlow(f"{worst} reaches {found[worst]['of_copy']} of the bandwidth of a copy: {found}")
        return found | {"geomean": round(math.prod(x["of_copy"] for x in found.values()) ** (1 / len(found)), 3)}

    def beside_copies(self, *change, **groups) -> dict:
        sets, kept = [], []
        for i in range(BUFFER_SETS):
            kept.append(torch.empty(1 + i * 7_000_003, dtype=torch.uint8, device="cuda"))  # the next ones lie elsewhere
            sets.append(median_times(self.timed(*change, **groups), self.options.rounds))
        shares = [us["copy"] / us["ours"] for us in sets]
        return {
            "of_copy": round(statistics.median(shares), 3),
            "least": round(min(shares), 3),
            "us": {name: round(statistics.median(us[name] for us in sets), 1) for name in sets[0]},
        }

    def timed(self, kind: str, count: int, mn: int, k: int, mn_major: bool, **groups) -> dict:
        pitch, words = -(-mn // 4) * 4, -(-k // 4)

        def laid_out(cols: int, mn_major: bool):
            strides = (pitch * cols, 1, pitch) if mn_major else (mn * cols, cols, 1)
            size = count * (pitch if mn_major else mn) * cols
            bits = torch.randint(-(1 << 31), 1 << 31, (size,), device="cuda", generator=self.generator)
            return bits.int().as_strided((count, mn, cols), strides)

        cols = {"transpose": (k, k), "pack": (k, words), "unpack": (words, k)}[kind]
        sf, out = laid_out(cols[0], mn_major), laid_out(cols[1], True)
        half = torch.empty(2 * count * mn * sum(cols), dtype=torch.uint8, device="cuda")  # read, and written
        half.random_(generator=self.generator)
        copy = torch.empty_like(half)
        return {
            "ours": functools.partial(
                self.tested.scale_layout,
                sf if kind == "unpack" else sf.view(torch.float32),
                out if kind == "pack" else out.view(torch.float32),
                **groups,
            ),
            "copy": functools.partial(copy.copy_, half),
        }
