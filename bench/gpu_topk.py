"""Checks of selections on a GPU: bits of the CPU backend, what surrounds them, repeats, and times."""

import functools
import statistics
from typing import Any

import torch

import topk_library
from gpu_fixture import Fixture, TooSlow
from gpu_mqa import Pages, Rows, codes, scales
from gpu_timing import FLUSH_BYTES
from records import write_record
from topk_library import MOST, Selected

MOST_NUMBERS = 400_000  # that the CPU sorts in tenths of a second
# The table: queries and keys in rows, requests and keys in pages.
OF_ROWS = tuple((s, keys) for s in (512, 2048, 8192) for keys in (8192, 32768, 131072))
OF_PAGES = tuple((b, keys) for b in (1, 32, 256) for keys in (8192, 65536, 131072))
# What logits and the radix selection that was recorded first took on an H200, in microseconds: bench/results/
# topk_h200.json of 38247791, which is of 8efd4557.
FIRST_OF_ROWS = (98.5, 340.7, 1446.4, 315.7, 1268.5, 5656.0, 758.7, 4616.0, 22595.4)
FIRST_OF_PAGES = (21.0, 31.4, 39.2, 33.9, 123.6, 205.4, 99.6, 679.2, 1374.5)


def event_times(calls: dict, rounds: int) -> dict:
    """Microseconds from the begin of a call's first kernel to the end of its last: kernels of a call overlap.

    Each call is repeated by itself: behind another one its instructions would first have to be loaded.
    """
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    found: dict = {name: [] for name in calls}
    for name, call in calls.items():
        call()
        for _ in range(rounds):
            flush.zero_()  # the host is ahead when it ends
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            found[name].append((begin, end))
    torch.cuda.synchronize()
    return {name: statistics.median(b.elapsed_time(e) * 1e3 for b, e in pairs) for name, pairs in found.items()}


class Problem:
    """Rows of numbers with many equal ones, windows, and what is asked for."""

    def __init__(self, random, generator, rows=0, cols=0, k=0):
        self.rows = rows or random.choice((1, 2, 37, random.randint(1, 300)))
        most = max(1, min(150_000, MOST_NUMBERS // self.rows))
        self.cols = cols or min(most, random.choice((1, 64, random.randint(1, 5000), random.randint(1, most))))
        self.k = k or random.randint(1, random.choice((40, MOST)))
        self.sorted, self.num_sms = random.random() < 0.5, random.choice((0, 0, 1, 37))
        self.wish = {"values": random.random() < 0.5, "histogram": random.random() < 0.3}
        self.padding = random.choice((0, 0, 3))
        x = torch.randn(self.rows, self.cols + random.choice((0, 1, 4)), device="cuda", generator=generator)
        kind = random.randrange(4)
        x = (x, (x * 4).round(), torch.exp2(x * 30) * x.sign(), 1 + x * 1e-6)[kind]
        which = torch.randint(0, 400, x.shape, device="cuda", generator=generator)
        for i, odd in enumerate((float("nan"), float("inf"), float("-inf"), -0.0, 0.0)):
            x[which == i] = odd
        self.logits = x[:, : self.cols]
        self.starts = self.ends = None
        if random.random() < 0.5:
            wish = (-3, self.cols + 3, (2, self.rows))
            self.starts, self.ends = torch.randint(*wish, dtype=torch.int32, device="cuda", generator=generator)

    def empty(self, device: str) -> Selected:
        return Selected.empty(self.rows, self.k, device, padding=self.padding, **self.wish)

    def into(self, library, out: Selected, device: str = "cuda", **options) -> None:
        logits, *bounds = (None if t is None else t.to(device=device) for t in (self.logits, self.starts, self.ends))
        chosen = {"sorted": self.sorted, "num_sms": self.num_sms} | options
        topk_library.topk(library, out, logits, *bounds, **chosen)

    def run(self, library, device: str, **options) -> Selected:
        out = self.empty(device)
        self.into(library, out, device, **options)
        return out

    def __str__(self):
        return str({k: v for k, v in vars(self).items() if not isinstance(v, torch.Tensor)})


class OfLogits:
    """A problem of gpu_mqa.py, of which keys are selected."""

    def __init__(self, kind, random, generator):
        self.of = kind(random)
        self.of.make(random, generator)
        self.k, self.sorted = random.randint(1, random.choice((40, MOST))), random.random() < 0.5
        self.wish = {"values": True, "histogram": random.random() < 0.5}

    def empty(self, device: str) -> Selected:
        return Selected.empty(self.of.queries, self.k, device, **self.wish)

    def into(self, library, out: Selected, device: str = "cuda", **options) -> None:
        chosen = {"sorted": self.sorted, "relu": self.of.relu, "num_sms": self.of.num_sms} | options
        select: Any = topk_library.mqa_topk if isinstance(self.of, Rows) else topk_library.paged_mqa_topk
        select(library, out, *(t.to(device=device) for t in self.of.operands()), **chosen)

    run = Problem.run

    def __str__(self):
        return f"top {self.k}, sorted {self.sorted}, of {self.of}"


class Topk(Fixture):
    def topk(self):
        """Random problems of numbers, of rows and of pages: GPU and CPU select the same, and write nothing else."""
        for _ in range(self.options.shapes):
            self.same(Problem(self.random, self.generator))
        for kind in (Rows, Pages):
            for _ in range(self.options.shapes // 4):
                self.same(OfLogits(kind, self.random, self.generator))
        return {"numbers": self.options.shapes, "logits": self.options.shapes // 4 * 2}

    def same(self, problem):
        by_gpu, by_cpu = (problem.run(self.tested, device) for device in ("cuda", "cpu"))
        if not by_gpu.same(by_cpu):
            raise AssertionError(f"GPU and CPU differ: {problem}")
        return problem

    def any_problems(self):
        """One of each kind."""
        yield Problem(self.random, self.generator)
        for kind in (Rows, Pages):
            yield OfLogits(kind, self.random, self.generator)

    def topk_repeat(self):
        """The same bits each time: from two streams, with any number of SMs, overlapping."""
        for problem in self.any_problems():
            wanted = self.same(problem).run(self.tested, "cuda")
            found = [problem.empty("cuda") for _ in range(2)]
            streams = [torch.cuda.Stream() for _ in found]
            torch.cuda.synchronize()
            for run in range(self.RUNS):
                for stream, out in zip(streams, found, strict=True):
                    with torch.cuda.stream(stream):
                        out.indices.fill_(-7)
                        problem.into(self.tested, out, num_sms=run % 132, pdl=run % 2 == 1)
                torch.cuda.synchronize()
                if not all(out.same(wanted) for out in found):
                    raise AssertionError(f"selections differ when repeated: {problem}")
        return {"problems": 3, "runs": self.RUNS}

    def topk_graph(self):
        """A graph that is captured once follows lengths that change, to none at all."""
        problem = OfLogits(Pages, self.random, self.generator)
        outs = [problem.empty("cuda") for _ in range(2)]
        problem.into(self.tested, outs[0])
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            problem.into(self.tested, outs[0])
        longest, pages = problem.of.lengths[:, -1].tolist(), problem.of
        for run in range(20):
            keep = pages.lengths
            pages.set_lengths([0 if run == 0 else self.random.randint(0, length) for length in longest])
            keep.copy_(pages.lengths)  # where the graph reads them
            pages.lengths = keep
            for out in outs:
                out.indices.fill_(-7)
            graph.replay()
            problem.into(self.tested, outs[1])
            torch.cuda.synchronize()
            if not outs[0].same(outs[1]):
                raise AssertionError(f"selections differ from a graph: {problem}")
        return {"replays": 20}

    def topk_devices(self):
        """On each GPU the same bits."""
        problem = self.same(Problem(self.random, self.generator))
        found = [problem.run(self.tested, f"cuda:{i}") for i in range(torch.cuda.device_count())]
        if not all(out.same(found[0]) for out in found):
            raise AssertionError(f"selections differ between GPUs: {problem}")
        return {"gpus": len(found)}

    def topk_tall(self, rows: int = 33000, keys: int = 66000):
        """More than 2^31 numbers: rows have what they have by themselves."""
        x, queries = torch.randn(rows, keys, device="cuda", generator=self.generator), self.queries(rows, keys)
        whole, of_logits = (Selected.empty(rows, 64, "cuda") for _ in range(2))
        topk_library.topk(self.tested, whole, x, None, None)
        topk_library.mqa_topk(self.tested, of_logits, *queries)
        for first in (0, rows // 2, rows - 64):
            part, alone = slice(first, first + 64), Selected.empty(64, 64, "cuda")
            topk_library.topk(self.tested, alone, x[part].clone(), None, None)
            if not torch.equal(alone.indices, whole.indices[part]):
                raise AssertionError(f"selections differ from row {first} on")
            q, k, sfk, w, starts, ends = queries
            topk_library.mqa_topk(self.tested, alone, q[part], k, sfk, w[part], starts[part], ends[part])
            if not torch.equal(alone.indices, of_logits.indices[part]):
                raise AssertionError(f"selections from logits differ from query {first} on")
        return {"elements": rows * keys}

    def small_topk(self):
        """Every kernel on several problems: what the sanitizers run."""
        of_many = (300, 99), (200, 20000), (60, 70000), (30, 140_000), (1, 150_000), (300, 1)
        of_few = (60, 20000), (3, 5000), (30, 33000), (2, 40000), (1, 40000)
        for rows, cols in (*of_many, *of_few):
            for _ in range(2):
                Problem(self.random, self.generator, rows, cols).run(self.tested, "cuda", num_sms=0)
        for problem in self.any_problems():
            problem.run(self.tested, "cuda")
        torch.cuda.synchronize()
        return {"kernels": 7}

    def queries(self, queries: int, keys: int) -> tuple:
        """Of 64 heads, D = 128; the last one sees all keys, each one before it a key less."""
        q = codes((queries, 64, 128), self.generator).view(torch.float8_e4m3fn)
        k = codes((keys, 128), self.generator).view(torch.float8_e4m3fn)
        w, sfk = torch.randn(queries, 64, device="cuda", generator=self.generator), scales((keys,), self.generator)
        ends = (torch.arange(queries, device="cuda") + (keys - queries + 1)).clamp(min=1).int()
        return q, k, sfk, w, torch.zeros_like(ends), ends

    def pages(self, batch: int, keys: int) -> tuple:
        pages = batch * keys // 64
        cache = torch.randint(0, 127, (pages, 64 * 132), device="cuda", dtype=torch.uint8)
        cache[:, 64 * 128 :] = scales((pages, 64), self.generator).view(torch.uint8).view(pages, -1)
        q = codes((batch, 64, 128), self.generator).view(torch.float8_e4m3fn)
        w = torch.randn(batch, 64, device="cuda", generator=self.generator)
        lengths = torch.full((batch, 1), keys, dtype=torch.int32, device="cuda")
        table = torch.randperm(pages, device="cuda").int().view(batch, -1)
        return q, cache.view(torch.float8_e4m3fn), w, lengths, table

    def topk_speed(self):
        """Selections from logits in one call, beside both in two calls and beside the logits alone, and a record."""
        rows = [
            *(self.of_speed("rows", shape, self.queries(*shape)) for shape in OF_ROWS),
            *(self.of_speed("pages", shape, self.pages(*shape)) for shape in OF_PAGES),
        ]
        method = f"bench/gpu_topk.py: events, L2 flushed, each call by itself, median of {self.options.rounds}"
        record = self.machine() | {"method": method, "k": MOST}
        if self.card == "h200":
            for row, first in zip(rows, FIRST_OF_ROWS + FIRST_OF_PAGES, strict=True):
                row |= {"first": first, "times_of_first": round(first / row["us"]["mqa_topk"], 3)}
            mean = statistics.geometric_mean(row["times_of_first"] for row in rows)
            record["method"] += "; first: logits and the radix selection that was recorded first, in us"
            record["times_of_first"] = round(mean, 3)
        record["rows"] = rows
        write_record(self.options.out / f"topk_{self.card}.json", record)
        if late := [row for row in rows if row["times_of_two_calls"] < 1]:
            raise TooSlow(f"take longer than two calls: {late}")
        return {"rows": len(rows)}

    def of_speed(self, kind: str, shape: tuple[int, int], operands: tuple) -> dict:
        calls = self.topk_calls(kind, shape, operands)
        us = event_times(calls, 3 if shape[0] * shape[1] > 1 << 28 else self.options.rounds)
        two = us["logits"] + min(us["topk"], us["torch.topk"])
        row = {"kind": f"mqa_topk of {kind}", "shape": list(shape), "us": {n: round(t, 1) for n, t in us.items()}}
        # Logits alone bound any call that computes them by this arithmetic: a selection can at best hide behind them.
        bound = {"bound": round(two / us["logits"], 3), "of_bound": round(us["logits"] / us["mqa_topk"], 3)}
        return row | {"times_of_two_calls": round(two / us["mqa_topk"], 3)} | bound

    def topk_calls(self, kind: str, shape: tuple[int, int], operands: tuple) -> dict:
        """The call; and by themselves logits, and from these both selections, in the order of columns or in any."""
        rows, keys = shape
        d = torch.empty(rows, keys, device="cuda")
        found, alone = (Selected.empty(rows, MOST, "cuda") for _ in range(2))
        best = torch.empty(rows, MOST, device="cuda"), torch.empty(rows, MOST, dtype=torch.int64, device="cuda")
        of_rows = kind == "rows"
        ends = operands[5] if of_rows else operands[3][:, 0]
        logits: Any = self.tested.mqa_logits if of_rows else self.tested.paged_mqa_logits
        select: Any = topk_library.mqa_topk if of_rows else topk_library.paged_mqa_topk
        logits(*operands, d)
        partial = functools.partial
        return {
            "logits": partial(logits, *operands, d),
            "topk": partial(topk_library.topk, self.tested, alone, d, None, ends),
            "torch.topk": partial(torch.topk, d, MOST, dim=1, sorted=False, out=best),
            "mqa_topk": partial(select, self.tested, found, *operands),
            "mqa_topk sorted": partial(select, self.tested, found, *operands, sorted=True),
        }
