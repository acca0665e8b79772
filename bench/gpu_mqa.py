"""Checks of an indexer's scores on a GPU: bits of the CPU backend, what surrounds the logits, repeats, and times."""

import abc
import functools
import itertools
import json

import torch

from gpu_fixture import ROOT, Fixture, TooSlow
from gpu_library import Library
from gpu_timing import median_times

FILLED, UNTOUCHED, COMPRESSED = range(3)
EXACT, ABS = range(2)
HEADS, DIMS, PAGES = (8, 16, 32, 64), (32, 64, 128), (4, 16, 32, 64)
BITS = {torch.float32: torch.int32, torch.bfloat16: torch.int16}
CANARY = {torch.float32: 0x7FC0DEAD, torch.bfloat16: 0x7FDE}  # a NaN that no kernel makes
NAN_CODE = 0x7F
MOST_PRODUCTS = 400_000  # of heads and keys: what the CPU takes tenths of a second for
# What 132 SMs multiply in a microsecond.
FLOP_PER_US = 132 * 8192 * 1830
FEW = ROOT / "bench/results/mqa_few_h200.json"  # few requests, and what their bytes and last products take alone
REACHED = 0.95  # of what bounds a call alone


def recorded_bounds() -> dict[tuple, float]:
    """By heads, requests, queries of each, and keys: microseconds, on a GPU of the kind of the record."""
    record = json.loads(FEW.read_text())
    if record["gpu"] != torch.cuda.get_device_name():
        return {}
    us = {(row["shape"][2], *row["shape"][:2], row["shape"][4]): row["us"] for row in record["rows"]}
    return {shape: times["bytes_and_last"] for shape, times in us.items() if "bytes_and_last" in times}


def codes(shape, generator) -> torch.Tensor:
    """e4m3, mostly of normal numbers; of any code now and then."""
    normal = (torch.randn(shape, device="cuda", generator=generator) * 2).to(torch.float8_e4m3fn).view(torch.uint8)
    low = torch.randint(0, 127, shape, device="cuda", generator=generator, dtype=torch.uint8)
    which = torch.randint(0, 50, shape, device="cuda", generator=generator)
    return torch.where(which == 0, low, normal)


def scales(shape, generator) -> torch.Tensor:
    return torch.rand(shape, device="cuda", generator=generator) * 0.1 + 0.001


class Problem(abc.ABC):
    """What rows and pages have alike: queries, weights, options, and logits in memory full of canaries."""

    kernel = ""

    def __init__(self, random, heads=0, dim=0, relu=None):
        self.heads, self.dim = heads or random.choice(HEADS), dim or random.choice(DIMS)
        self.relu = random.choice((EXACT, ABS)) if relu is None else relu
        self.dtype = random.choice(list(BITS))
        self.padding = random.choice((0, 1, 5, 64))
        self.num_sms = random.choice((0, 0, 1, 37, 131))
        self.form, self.queries, self.width = FILLED, 1, 1

    @abc.abstractmethod
    def make(self, random, generator) -> None: ...

    @abc.abstractmethod
    def operands(self) -> tuple: ...

    @staticmethod
    @abc.abstractmethod
    def call(library: Library): ...

    def make_queries(self, random, generator) -> None:
        q = codes((self.queries, self.heads, self.dim), generator)
        if random.random() < 0.2:
            q[random.randrange(self.queries), random.randrange(self.heads), random.randrange(self.dim)] = NAN_CODE
        self.q = q.view(torch.float8_e4m3fn)
        w = torch.randn(self.queries, self.heads + random.choice((0, 3)), device="cuda", generator=generator)
        w *= 2.0 ** random.randint(-40, 40)
        if random.random() < 0.2:
            bad = random.choice((0.0, -0.0, float("inf"), float("-inf"), float("nan"), 3e38, 1e-45))
            w[random.randrange(self.queries), random.randrange(self.heads)] = bad
        self.w = w[:, : self.heads]

    def logits(self, device: str) -> tuple[torch.Tensor, torch.Tensor]:
        """All memory, and the logits in it."""
        pitch = self.width + self.padding
        whole = torch.full((self.queries * pitch + 256,), CANARY[self.dtype], dtype=BITS[self.dtype], device=device)
        return whole, whole[128 : 128 + self.queries * pitch].view(self.dtype).view(-1, pitch)[:, : self.width]

    def run(self, library: Library, device: str, **options) -> torch.Tensor:
        whole, d = self.logits(device)
        self.into(library, d, device, **options)
        return whole

    def into(self, library: Library, d: torch.Tensor, device: str = "cuda", **options) -> None:
        chosen = {"form": self.form, "relu": self.relu, "num_sms": self.num_sms} | options
        self.call(library)(*(t.to(device=device) for t in self.operands()), d, **chosen)

    def name(self) -> str:
        end = "_abs" if self.relu == ABS and self.heads >= 32 and self.kernel == "mqa_logits" else ""
        return f"FineGEMM_{self.kernel}_h{self.heads}_d{self.dim}{end}"

    def __str__(self):
        return str({k: v for k, v in vars(self).items() if not isinstance(v, torch.Tensor)})


class Rows(Problem):
    kernel = "mqa_logits"

    def __init__(self, random, **wish):
        super().__init__(random, **wish)
        self.form = random.choice((FILLED, UNTOUCHED, COMPRESSED))
        self.queries = random.choice((1, 2, 7, 64, random.randint(1, 300)))
        self.keys = random.choice((1, 63, 64, 65, 500, random.randint(1, 3000)))

    def make(self, random, generator) -> None:
        self.make_queries(random, generator)
        k = codes((self.keys, self.dim), generator)
        self.k_scales = scales((self.keys,), generator)
        most = max(1, MOST_PRODUCTS // (self.queries * self.heads))
        starts = [random.randint(-3, self.keys + 3) for _ in range(self.queries)]
        ends = [start + random.choice((-2, 0, random.randint(0, most))) for start in starts]
        self.starts, self.ends = (torch.tensor(x, dtype=torch.int32, device="cuda") for x in (starts, ends))
        self.unseen_are_nan(k, starts, ends)
        self.k = k.view(torch.float8_e4m3fn)
        longest = max(min(e, self.keys) - max(s, 0) for s, e in zip(starts, ends, strict=True))
        self.width = max(1, longest + random.randint(-3, 9)) if self.form == COMPRESSED else self.keys

    def unseen_are_nan(self, k, starts, ends) -> None:
        seen = torch.zeros(self.keys + 1, dtype=torch.int32)
        for start, end in zip(starts, ends, strict=True):
            start, end = max(start, 0), min(end, self.keys)
            if start < end:
                seen[start] += 1
                seen[end] -= 1
        unseen = (seen.cumsum(0)[:-1] == 0).to(device="cuda")
        k[unseen] = NAN_CODE
        self.k_scales[unseen] = float("nan")

    def operands(self):
        return self.q, self.k, self.k_scales, self.w, self.starts, self.ends

    @staticmethod
    def call(library: Library):
        return library.mqa_logits


class Pages(Problem):
    kernel = "paged_mqa_logits"

    def __init__(self, random, **wish):
        super().__init__(random, **wish)
        self.form = random.choice((FILLED, UNTOUCHED))
        self.each = random.randint(1, 8)
        self.requests = random.choice((1, 3, 40, random.randint(1, 200)))
        self.queries = self.requests * self.each
        self.page = random.choice(PAGES)
        self.own_lengths = random.random() < 0.5

    def make(self, random, generator) -> None:
        self.make_queries(random, generator)
        most = max(1, MOST_PRODUCTS // (self.queries * self.heads))
        none = random.random() < 0.1
        last = [0 if none or random.random() < 0.1 else random.randint(0, most) for _ in range(self.requests)]
        self.set_lengths(last)
        self.width = max(1, most + random.randint(-9, 99))
        table_pages = -(-most // self.page) + random.randint(0, 3)
        used = [-(-length // self.page) for length in last]
        pages = sum(used) + 3
        self.make_cache(random, generator, pages)
        order = torch.randperm(pages, generator=torch.Generator().manual_seed(random.randrange(1 << 30)))
        table = torch.full((self.requests, table_pages + random.choice((0, 5))), -1, dtype=torch.int32)
        filled = 0
        for b, n in enumerate(used):
            table[b, :n] = order[filled : filled + n]
            table[b, n:] = random.choice((-1, 0, 1 << 30))
            filled += n
        self.table = table.to(device="cuda")[:, :table_pages]
        self.keep_seen_slots(last, used, order)

    def set_lengths(self, last: list[int]) -> None:
        lengths = torch.tensor(last, dtype=torch.int32)[:, None]
        if self.own_lengths:
            lengths = (lengths - torch.arange(self.each - 1, -1, -1, dtype=torch.int32)).clamp(min=0)
        self.lengths = lengths.to(device="cuda").contiguous()

    def make_cache(self, random, generator, pages: int) -> None:
        pitch = self.page * (self.dim + 4) + random.choice((0, 16, 48))
        cache = torch.full((pages, pitch), NAN_CODE, dtype=torch.uint8, device="cuda")
        cache[:, : self.page * self.dim] = codes((pages, self.page * self.dim), generator)
        of_scales = scales((pages, self.page), generator).view(torch.uint8).view(pages, -1)
        cache[:, self.page * self.dim : self.page * (self.dim + 4)] = of_scales
        self.cache = cache[:, : self.page * (self.dim + 4)].view(torch.float8_e4m3fn)

    def keep_seen_slots(self, last: list[int], used: list[int], order: torch.Tensor) -> None:
        """NaN in every slot that no request sees."""
        unseen = torch.ones(len(order), self.page, dtype=torch.bool)
        filled = 0
        for length, n in zip(last, used, strict=True):
            for p in range(n):
                unseen[order[filled + p], : length - p * self.page] = False
            filled += n
        bytes_of = self.cache.view(torch.uint8)
        slots = unseen.to(device="cuda").repeat_interleave(self.dim, 1)
        bytes_of[:, : self.page * self.dim][slots] = NAN_CODE
        bytes_of[:, self.page * self.dim :][unseen.to(device="cuda").repeat_interleave(4, 1)] = 0xFF

    def operands(self):
        return self.q, self.cache, self.w, self.lengths, self.table

    @staticmethod
    def call(library: Library):
        return library.paged_mqa_logits


class Mqa(Fixture):
    def mqa(self):
        """Random problems of rows and of pages: GPU and CPU give the same bits, and write nothing else."""
        for kind in (Rows, Pages):
            for _ in range(self.options.shapes):
                self.one_mqa(kind)
        return {"rows": self.options.shapes, "pages": self.options.shapes}

    def one_mqa(self, kind, **wish):
        problem = kind(self.random, **wish)
        problem.make(self.random, self.generator)
        by_gpu, by_cpu = (problem.run(self.tested, device) for device in ("cuda", "cpu"))
        if not torch.equal(by_gpu.cpu(), by_cpu):
            count = int((by_gpu.cpu() != by_cpu).sum())
            raise AssertionError(f"GPU and CPU differ in {count} elements: {problem}")
        return problem

    def mqa_schedule(self):
        """Random lengths: GPU and CPU write the same schedule."""
        for _ in range(self.options.shapes):
            requests, each = self.random.choice((1, 5, 256, 4000)), self.random.randint(1, 8)
            slots = self.random.choice((1, 66, 132, 1000))
            most = self.random.choice((0, 3, 300, 70000))
            lengths = torch.randint(0, most + 1, (requests, self.random.choice((1, each))), dtype=torch.int32)
            found = []
            for device in ("cuda", "cpu"):
                schedule = torch.full((slots + 1, 2), -7, dtype=torch.int32, device=device)
                self.tested.paged_mqa_schedule(lengths.to(device=device), each, schedule)
                found.append(schedule.cpu())
            if not torch.equal(*found):
                raise AssertionError(f"schedules differ: {requests} requests, {each} queries, {slots} slots, {most}")
        return {"problems": self.options.shapes}

    def mqa_repeat(self):
        """The same bits each time: from two streams, with any number of SMs, overlapping, and from a graph."""
        for kind in (Rows, Pages) * 4:
            problem = self.one_mqa(kind)
            wanted = problem.run(self.tested, "cuda")
            found = [problem.logits("cuda") for _ in range(2)]
            streams = [torch.cuda.Stream() for _ in found]
            torch.cuda.synchronize()
            for run in range(self.RUNS):
                for stream, (whole, d) in zip(streams, found, strict=True):
                    with torch.cuda.stream(stream):
                        whole.fill_(CANARY[problem.dtype])
                        problem.into(self.tested, d, num_sms=run % 132, pdl=run % 2 == 1)
                torch.cuda.synchronize()
                if not all(torch.equal(whole, wanted) for whole, _ in found):
                    raise AssertionError(f"elements differ when repeated: {problem}")
        return {"problems": 8, "runs": self.RUNS}

    def mqa_graph(self):
        """A graph that is captured once follows lengths that change, to none at all."""
        problem = self.one_mqa(Pages)
        wholes = [problem.logits("cuda") for _ in range(2)]
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            problem.into(self.tested, wholes[0][1])
        longest = problem.lengths[:, -1].tolist()
        for run in range(20):
            last = [0 if run == 0 else self.random.randint(0, length) for length in longest]
            keep = problem.lengths
            problem.set_lengths(last)
            keep.copy_(problem.lengths)  # where the graph reads them
            problem.lengths = keep
            for whole, _ in wholes:
                whole.fill_(CANARY[problem.dtype])
            graph.replay()
            problem.into(self.tested, wholes[1][1])
            torch.cuda.synchronize()
            if not torch.equal(wholes[0][0], wholes[1][0]):
                raise AssertionError(f"elements differ from a graph: {problem}")
        return {"replays": 20}

    def mqa_devices(self):
        """On each GPU the same bits."""
        problem = self.one_mqa(Rows)
        found = [problem.run(self.tested, f"cuda:{i}").cpu() for i in range(torch.cuda.device_count())]
        if not all(torch.equal(x, found[0]) for x in found):
            raise AssertionError(f"elements differ between GPUs: {problem}")
        return {"gpus": len(found)}

    def mqa_tall(self, queries: int = 33000, keys: int = 66000):
        """More than 2^31 logits: rows have the bits that they have by themselves."""
        heads, dim = 64, 128
        q = codes((queries, heads, dim), self.generator).view(torch.float8_e4m3fn)
        k = codes((keys, dim), self.generator).view(torch.float8_e4m3fn)
        w, sfk = torch.randn(queries, heads, device="cuda"), scales((keys,), self.generator)
        starts = torch.zeros(queries, dtype=torch.int32, device="cuda")
        ends = torch.arange(keys - queries, keys, dtype=torch.int32, device="cuda")
        d = torch.empty(queries, keys, dtype=torch.bfloat16, device="cuda")
        self.tested.mqa_logits(q, k, sfk, w, starts, ends, d)
        for first in (0, queries // 2, queries - 64):
            part = slice(first, first + 64)
            alone = torch.empty(64, keys, dtype=torch.bfloat16, device="cuda")
            self.tested.mqa_logits(q[part], k, sfk, w[part], starts[part], ends[part], alone)
            if not torch.equal(alone.view(torch.int16), d[part].view(torch.int16)):
                raise AssertionError(f"elements differ from row {first} on")
        return {"elements": queries * keys}

    def small_mqa(self):
        """Every kernel on several problems: what the sanitizers run."""
        kernels = set()
        for kind, heads, dim, relu in itertools.product((Rows, Pages), HEADS, DIMS, (EXACT, ABS)):
            for _ in range(2):
                problem = kind(self.random, heads=heads, dim=dim, relu=relu)
                problem.make(self.random, self.generator)
                problem.run(self.tested, "cuda")
                kernels.add(problem.name())
        schedule = torch.empty(133, 2, dtype=torch.int32, device="cuda")
        self.tested.paged_mqa_schedule(torch.full((9, 2), 700, dtype=torch.int32, device="cuda"), 2, schedule)
        torch.cuda.synchronize()
        return {"kernels": len(kernels) + 1}

    def mqa_speed(self):
        """Times of causal windows and of decoding, and what the tensor cores or memory alone would take.

        The latter are no bounds that can be reached where few requests take microseconds, or where four queries of each
        keep all units of an SM busy: there bytes with the last products of each ring, or the same call whose pages lie
        in L2, bound it.
        """
        found, recorded = {}, recorded_bounds()
        for heads, dim, (queries, keys) in itertools.product((64, 32), DIMS, ((2048, 8192), (8192, 8192))):
            t = median_times(self.timed_rows(heads, dim, queries, keys), self.options.rounds)
            pairs = queries * (keys - queries / 2)
            found[f"H{heads} D{dim} {queries}x{keys}"] = self.of_bound(t, pairs * heads * dim, pairs * 4)
        for heads, batch, each, keys in (
            *((64, batch, 1, keys) for batch in (1, 8, 32, 256) for keys in (8192, 65536)),
            *((heads, 256, each, 8192) for heads in (64, 32) for each in (1, 2, 4)),
            (64, 4096, 1, 8192),
        ):
            t = median_times(self.timed_pages(heads, batch, each, keys), self.options.rounds)
            of_keys, moved = batch * keys, batch * keys * (132 + 4 * each)
            name = f"H{heads} B{batch} next_n {each} of {keys}"
            alone = max(t.get("from_l2", 0), recorded.get((heads, batch, each, keys), 0))
            found[name] = self.of_bound(t, of_keys * each * heads * 128, moved, alone)
        late = [name for name, row in found.items() if " next_n " in name and row["us"]["exact"] > row["late_us"]]
        if late:
            raise TooSlow(
                f"take more than 1.15 of their bound and 4 us, and than what bounds them alone: {late}: {found}"
            )
        return found

    def of_bound(self, us: dict, products: float, moved: float, alone: float = 0) -> dict:
        """`alone`: what a part of the call takes, in microseconds."""
        bound = max(2 * products / FLOP_PER_US, moved / self.bytes_per_us)
        return {
            "us": {name: round(t, 1) for name, t in us.items()},
            "bound_us": round(bound, 1),
            "late_us": round(max(1.15 * bound + 4, alone / REACHED), 1),
        }

    def timed_rows(self, heads: int, dim: int, queries: int, keys: int) -> dict:
        q = codes((queries, heads, dim), self.generator).view(torch.float8_e4m3fn)
        k = codes((keys, dim), self.generator).view(torch.float8_e4m3fn)
        w, sfk = torch.randn(queries, heads, device="cuda"), scales((keys,), self.generator)
        starts = torch.zeros(queries, dtype=torch.int32, device="cuda")
        ends = torch.arange(keys - queries, keys, dtype=torch.int32, device="cuda") + 1
        d = torch.empty(queries, keys, device="cuda")
        call = functools.partial(self.tested.mqa_logits, q, k, sfk, w, starts, ends, d)
        return {
            "exact": functools.partial(call, form=UNTOUCHED),
            "abs": functools.partial(call, form=UNTOUCHED, relu=ABS),
            "exact filled": call,
            "abs filled": functools.partial(call, relu=ABS),
        }

    def timed_pages(self, heads: int, batch: int, each: int, keys: int) -> dict:
        dim, page = 128, 64
        pages = batch * keys // page
        cache = torch.randint(0, 127, (pages, page * (dim + 4)), device="cuda", dtype=torch.uint8)
        cache[:, page * dim :] = scales((pages, page), self.generator).view(torch.uint8).view(pages, -1)
        q = codes((batch * each, heads, dim), self.generator).view(torch.float8_e4m3fn)
        w = torch.randn(batch * each, heads, device="cuda")
        lengths = torch.full((batch, 1), keys, dtype=torch.int32, device="cuda")
        table = torch.randperm(pages, device="cuda").int().view(batch, -1)
        d = torch.empty(batch * each, keys, device="cuda")
        of_bytes = cache.view(torch.float8_e4m3fn)
        call = functools.partial(self.tested.paged_mqa_logits, q, of_bytes, w, lengths, table, d, form=UNTOUCHED)
        calls = {"exact": call, "abs": functools.partial(call, relu=ABS)}
        if each > 2:
            few = (q, of_bytes, w, lengths, table % min(pages, 256), d)
            calls["from_l2"] = functools.partial(self.tested.paged_mqa_logits, *few, form=UNTOUCHED)
        return calls
