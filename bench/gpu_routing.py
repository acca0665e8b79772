"""Checks of routing on a GPU: the bits of the CPU, what surrounds them, repeats, graphs, and times."""

import functools
import itertools

import torch

from gpu_fixture import Fixture, TooSlow
from gpu_library import INDICES, MASKED, OFFSETS, PREFIX_SUMS, Library
from gpu_timing import median_times
from records import write_record

CANARY = 0x5EADBEEF
FORMS = (OFFSETS, INDICES, PREFIX_SUMS, MASKED)
EDGE = 64  # elements before and behind what is written
# Hidden, experts and choices of a token: DeepSeek-V3, Qwen3-235B, GLM-4.5, MiniMax-M2.
LAYERS = ((7168, 256, 8), (4096, 128, 8), (5120, 160, 8), (3072, 256, 8))
SPEED_TOKENS = (1, 8, 64, 512, 4096, 16384)
LEAST_SHARE = 0.8  # of the copy's bandwidth, where rows take this many bytes:
MUCH = 1 << 28


class Surrounded:
    """A tensor in memory that is full of canaries."""

    def __init__(self, *shape: int, dtype=torch.int32, device="cuda", mn_major: bool = False):
        *stacks, rows, cols = shape
        inner = rows if mn_major else cols
        pitch = (inner + 15) // 16 * 16
        count = 1
        for extent in stacks:
            count *= extent
        matrix = pitch * (cols if mn_major else rows)
        size = torch.empty(0, dtype=dtype).element_size()
        self.all = torch.full(((count * matrix + 2 * EDGE) * size // 4,), CANARY, dtype=torch.int32, device=device)
        strides = (1, pitch) if mn_major else (pitch, 1)
        self.t = self.all.view(dtype).as_strided((*stacks, rows, cols), (*(matrix for _ in stacks), *strides), EDGE)


class Route:
    """Ids, and memory for what becomes of them. `capacity`: rows may not suffice."""

    def __init__(self, random, generator, tokens=0, k=0, experts=0, form=0, capacity=True):
        self.tokens = tokens or random.choice((0, 1, random.randint(1, 64), random.randint(1, 700), 5000))
        self.k = k or random.randint(1, 16)
        self.experts = experts or random.choice((1, 8, 32, random.randint(1, 1024), 256, 1024))
        self.form = form or random.choice(FORMS)
        self.alignment = random.choice((64, 128)) if self.form == INDICES else random.choice((1, 8, 128))
        self.first = random.choice((0, 0, self.experts, -3))
        ids = torch.randint(-2, self.experts * 2, (self.tokens, self.k), device="cuda", generator=generator)
        crowd = torch.rand(ids.shape, device="cuda", generator=generator) < random.choice((0, 0.3, 0.95))
        ids = torch.where(crowd, self.experts // 2, ids) + self.first
        self.ids = ids if random.random() < 0.5 else ids.int()
        most = self.tokens * self.k + self.experts * self.alignment
        self.rows = min(most, 2**22 // self.experts) if self.form == MASKED else most
        if capacity and random.random() < 0.3:
            self.rows = random.randint(1, self.rows)

    def into(self, library: Library, device: str = "cuda", **options) -> list[Surrounded]:
        """All that is written: the inverse, the numbers and the permutation."""
        numbers = {OFFSETS: self.experts + 1, INDICES: self.rows}.get(self.form, self.experts)
        groups = self.experts if self.form == MASKED else 1
        written = [Surrounded(self.tokens, self.k, device=device), Surrounded(1, numbers, device=device)]
        whole = torch.full((groups * self.rows + 2 * EDGE,), CANARY, dtype=torch.int32, device=device)
        permutation = Surrounded(1, 1, device=device)
        permutation.all, permutation.t = whole, whole[EDGE : EDGE + groups * self.rows].view(groups, self.rows)
        inverse, of_groups = (x.t for x in written)
        self.call(library, self.ids.to(device=device), inverse, of_groups[0], permutation.t, **options)
        return [*written, permutation]

    def call(self, library: Library, ids, inverse, numbers, permutation, **options) -> None:
        where = (self.form, self.experts, self.first, self.rows, self.alignment)
        library.route(ids, inverse, numbers, permutation, *where, **options)

    def __str__(self):
        return str({k: v for k, v in vars(self).items() if not isinstance(v, torch.Tensor)})


class Rows:
    """Tokens, an inverse as route writes it, and rows of experts of which some have no token."""

    def __init__(self, random, generator, tokens=0, k=0, hidden=0):
        self.tokens = tokens or random.choice((1, random.randint(1, 40), random.randint(1, 300)))
        self.k = k or random.randint(1, 16)
        self.hidden = hidden or 16 * random.choice((1, random.randint(1, 100), random.randint(1, 500)))
        self.groups = random.choice((1, 1, 4, 7))
        self.height = (self.tokens * self.k + self.groups - 1) // self.groups + random.randint(0, 20)
        self.num_sms, self.power_of_two = random.choice((0, 0, 1, 7)), random.random() < 0.5
        rows = torch.randperm(self.groups * self.height, device="cuda", generator=generator)[: self.tokens * self.k]
        dropped = torch.rand(rows.shape, device="cuda", generator=generator) < random.choice((0, 0.2, 0.9))
        self.inverse = torch.where(dropped, -1, rows).int().view(self.tokens, self.k)
        self.x = self.matrix(self.tokens, generator)
        self.weights = torch.randn(self.tokens, self.k, device="cuda", generator=generator)
        self.y = torch.full((self.groups * self.height, self.hidden), float("nan"), device="cuda").bfloat16()
        kept = rows[~dropped]
        self.y[kept] = self.matrix(len(kept), generator)

    def matrix(self, rows: int, generator) -> torch.Tensor:
        return torch.randn(rows, self.hidden, device="cuda", generator=generator).bfloat16()

    def permuted(self, library: Library, x, x_scales=None, dtype=None, mn_major=True, **options) -> list[Surrounded]:
        q = Surrounded(self.groups, self.height, self.hidden, dtype=dtype or x.dtype, device=x.device)
        shape = (self.groups, self.height, (self.hidden + 127) // 128)
        scaled = q.t.element_size() == 1
        scales = Surrounded(*shape, dtype=torch.float32, device=x.device, mn_major=mn_major)
        options = {"num_sms": self.num_sms, "power_of_two": self.power_of_two} | options
        library.permute_quantize(
            x, self.inverse.to(device=x.device), q.t, scales.t if scaled else None, x_scales, **options
        )
        return [q, scales]

    def combined(self, library: Library, device: str = "cuda", **options) -> list[Surrounded]:
        out = Surrounded(self.tokens, self.hidden, dtype=torch.bfloat16, device=device)
        y, inverse, weights = (t.to(device=device) for t in (self.y, self.inverse, self.weights))
        stacks = y.view(self.groups, self.height, self.hidden)
        library.combine(stacks, inverse, weights, out.t, **{"num_sms": self.num_sms} | options)
        return [out]

    def all(self, library: Library, device: str = "cuda", **options) -> list[Surrounded]:
        x = self.x.to(device=device)
        codes = torch.randint(0, 256, x.shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
        scales = torch.rand(self.tokens, (self.hidden + 127) // 128, generator=torch.Generator().manual_seed(4))
        q = codes.to(device=device).view(torch.float8_e4m3fn)
        return [
            *self.permuted(library, x, dtype=torch.float8_e4m3fn, **options),
            *self.permuted(library, q, scales.to(device=device), mn_major=False, **options),
            *self.permuted(library, x, **options),
            *self.combined(library, device, **options),
        ]

    def __str__(self):
        return str({k: v for k, v in vars(self).items() if not isinstance(v, torch.Tensor)})


def expect_same(found: list[Surrounded], wanted: list[Surrounded], what) -> None:
    for i, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if count := int((a.all.cpu() != b.all.cpu()).sum()):
            raise AssertionError(f"{count} words of result {i} differ: {what}")


class Routing(Fixture):
    def routing(self):
        """Random problems: the bits of the CPU, with all that surrounds them, and the same ones twice."""
        for _ in range(self.options.shapes):
            for problem in (Route(self.random, self.generator), Rows(self.random, self.generator)):
                run = problem.into if isinstance(problem, Route) else problem.all
                found = run(self.tested)
                expect_same(found, run(self.tested, "cpu"), problem)
                expect_same(run(self.tested, pdl=True), found, problem)
        return {"problems": 2 * self.options.shapes}

    def routing_repeat(self):
        """The same bits each time, from two streams, overlapping or not."""
        for tokens in (40, 3000):
            route = Route(self.random, self.generator, tokens, k=8)
            rows = Rows(self.random, self.generator, min(tokens, 300), k=8, hidden=7168)
            wanted = [*route.into(self.tested), *rows.all(self.tested)]
            streams = [torch.cuda.Stream() for _ in range(2)]
            torch.cuda.synchronize()
            for run in range(max(1, self.RUNS // 10)):
                for stream in streams:
                    with torch.cuda.stream(stream):
                        pdl = run % 2 == 1
                        found = [*route.into(self.tested, pdl=pdl), *rows.all(self.tested, pdl=pdl)]
                        torch.cuda.synchronize()
                        expect_same(found, wanted, (route, rows))
        return {"problems": 2, "runs": max(1, self.RUNS // 10)}

    def routing_graph(self, tokens: int = 200, k: int = 8, experts: int = 32, hidden: int = 2048):
        """A graph that is captured once follows the ids: route, rows and sums, at a capacity."""
        route = Route(self.random, self.generator, tokens, k, experts, PREFIX_SUMS, capacity=False)
        route.first, x = 0, torch.randn(tokens, hidden, device="cuda", generator=self.generator).bfloat16()
        ids, weights = torch.empty_like(route.ids), torch.rand(tokens, k, device="cuda", generator=self.generator)
        inverse, numbers = (torch.empty(s, dtype=torch.int32, device="cuda") for s in ((tokens, k), (experts,)))
        permutation = torch.empty(1, route.rows, dtype=torch.int32, device="cuda")
        rows, out = torch.full((route.rows, hidden), float("nan"), device="cuda").bfloat16(), torch.empty_like(x)

        def chain(pdl: bool) -> None:
            route.call(self.tested, ids, inverse, numbers, permutation, pdl=pdl)
            self.tested.permute_quantize(x, inverse, rows, pdl=pdl)
            self.tested.combine(rows, inverse, weights, out, pdl=pdl)

        ids.copy_(route.ids)
        chain(False)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            chain(True)
        for _ in range(20):
            ids.copy_(torch.randint(-2, experts + 9, ids.shape, device="cuda", generator=self.generator))
            graph.replay()
            total = torch.zeros_like(weights[:, 0])
            for choice in range(k):
                total += weights[:, choice] * ((ids[:, choice] >= 0) & (ids[:, choice] < experts))
            torch.cuda.synchronize()
            off = (out.float() - x.float() * total[:, None]).abs() > 2.0**-7 * (x.float().abs() * k)
            if count := int(off.sum()):
                raise AssertionError(f"{count} elements of a layer without products are off: {route}")
        return {"replays": 20}

    def routing_devices(self):
        """On each GPU the same bits."""
        problem = Rows(self.random, self.generator)
        wanted = problem.all(self.tested)
        for i in range(torch.cuda.device_count()):
            expect_same(problem.all(self.tested, f"cuda:{i}"), wanted, problem)
        return {"gpus": torch.cuda.device_count()}

    def routing_beyond_31_bits(self, tokens: int = 40000, k: int = 8, hidden: int = 7168, experts: int = 64):
        """More than 2^31 elements in q and y: rows here and there are those of their tokens."""
        ids = torch.rand(tokens, experts, device="cuda", generator=self.generator).topk(k).indices
        rows = tokens * k
        inverse = torch.empty(tokens, k, dtype=torch.int32, device="cuda")
        numbers, permutation = torch.empty(experts + 1, dtype=torch.int32, device="cuda"), inverse.new_empty(1, rows)
        self.tested.route(ids, inverse, numbers, permutation, OFFSETS, experts, 0, rows)
        x = torch.randn(tokens, hidden, device="cuda", generator=self.generator).bfloat16()
        y, out = torch.empty(rows, hidden, device="cuda", dtype=torch.bfloat16), torch.empty_like(x)
        self.tested.permute_quantize(x, inverse, y)
        self.tested.combine(y, inverse, torch.full((tokens, k), 0.125, device="cuda"), out)
        if not torch.equal(out, x):
            raise AssertionError("elements differ: eight eighths of a row are no longer the row")
        for first in (0, rows // 2, rows - 1000):
            source = permutation[0, first : first + 1000].long() // k
            if not torch.equal(y[first : first + 1000], x[source]):
                raise AssertionError(f"elements differ from row {first} on")
        return {"elements": rows * hidden}

    def small_routing(self):
        """Every kernel, in each form: what the sanitizers run."""
        for form, tokens in itertools.product(FORMS, (3, 400)):
            Route(self.random, self.generator, tokens, k=8, experts=40, form=form).into(self.tested)
        for hidden in (16, 1040):
            Rows(self.random, self.generator, 9, k=8, hidden=hidden).all(self.tested)
        torch.cuda.synchronize()
        return {"kernels": 5}

    def routing_speed(self):
        """Layers of models, beside what a copy of as many bytes takes, and a record of them."""
        copy = self.copied_per_us(1 << 31)
        rows, late = [], []
        for tokens, (hidden, experts, k) in itertools.product(SPEED_TOKENS, LAYERS):
            calls, moved = self.layer(tokens, hidden, experts, k)
            us = median_times(calls, self.options.rounds)
            shares = {name: round(moved[name] / us[name] / copy, 3) for name in moved}
            row = {"kind": "routing", "shape": [tokens, k, experts, hidden]}
            rows.append(row | {"us": {name: round(t, 2) for name, t in us.items()}, "share_of_copy": shares})
            if any(shares[name] < LEAST_SHARE and moved[name] > MUCH for name in moved):
                late.append(rows[-1])
        record = self.machine() | {
            "method": f"bench/gpu_timing.py: CUPTI, L2 flushed, median of {self.options.rounds}",
            "copy_bytes_per_us": round(copy),
            "rows": rows,
        }
        write_record(self.options.out / f"routing_{self.card}.json", record)
        if late:
            raise TooSlow(f"move less than {LEAST_SHARE} of what a copy does: {late}")
        return {"rows": len(rows)}

    def copied_per_us(self, count: int) -> float:
        """Bytes read and written of a copy of so many."""
        source, to = (torch.empty(count, dtype=torch.uint8, device="cuda") for _ in range(2))
        return 2 * count / median_times({"copy": lambda: to.copy_(source)}, self.options.rounds)["copy"]

    def layer(self, tokens: int, hidden: int, experts: int, k: int) -> tuple[dict, dict]:
        """The calls around the products of a layer, and the bytes that those on rows move."""
        generator, rows, blocks = self.generator, tokens * k, (hidden + 127) // 128
        ids = torch.rand(tokens, experts, device="cuda", generator=generator).topk(k).indices
        inverse = torch.empty(tokens, k, dtype=torch.int32, device="cuda")
        numbers, permutation = inverse.new_empty(experts + 1), inverse.new_empty(1, rows)
        x = torch.randn(tokens, hidden, device="cuda", generator=generator).bfloat16()
        y = torch.randn(rows, hidden, device="cuda", generator=generator).bfloat16()
        q, weights = (
            torch.empty(rows, hidden, device="cuda", dtype=torch.float8_e4m3fn),
            torch.rand(ids.shape, device="cuda"),
        )
        scales, out = Surrounded(rows, blocks, dtype=torch.float32, mn_major=True).t, torch.empty_like(x)
        codes, of_codes = torch.empty_like(x, dtype=q.dtype), torch.empty(tokens, blocks, device="cuda")
        self.tested.quantize("rows", x, codes, of_codes)
        with_scales = hidden + 4 * blocks
        partial, tested = functools.partial, self.tested
        calls = {
            "route": partial(tested.route, ids, inverse, numbers, permutation, OFFSETS, experts, 0, rows),
            "permute_quantize": partial(tested.permute_quantize, x, inverse, q, scales),
            "permute": partial(tested.permute_quantize, codes, inverse, q, scales, of_codes),
            "combine": partial(tested.combine, y, inverse, weights, out),
        }
        moved = {
            "permute_quantize": tokens * hidden * 2 + rows * with_scales,
            "permute": (tokens + rows) * with_scales,
            "combine": (tokens + rows) * hidden * 2,
        }
        return calls, moved
