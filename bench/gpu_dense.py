"""What gpu_check.py checks of dense GEMMs and of quantisation: their bits, whatever the shape, stream, graph or SMs."""

import itertools
import math

import torch

from dense_table import DENSE_NK, DENSE_SHAPES
from gpu_cases import CODES, LAYOUTS, Guarded, blocks, bound, differing, expanded, model, operands, sample_rows
from gpu_fixture import Fixture
from gpu_library import OFF, ON
from gpu_timing import median_times


class Dense(Fixture):
    def one_shape(self, m, n, k, layout, config, padding=0, rows=16):
        """One GEMM: its bits against the model's, what lies around D, and, where it is small, the derived bound."""
        x = operands(m, n, k, layout, self.generator, padding)
        out = Guarded(m, n)
        self.tested.gemm(*x, out.d, config=config)
        picked = sample_rows(m, rows, self.generator)
        wrong = differing(out.d[picked], model(self.tested, *x, picked, config))
        what = f"{m}x{n}x{k} {config}, {layout} scales, padding {padding}"
        if wrong:
            raise AssertionError(f"{what}: {wrong} elements differ from the model")
        if not out.intact():
            raise AssertionError(f"{what}: wrote outside of D")
        if m * n * k < 1 << 28:
            a, sfa, b, sfb = x
            exact = expanded(a, sfa, 1) @ expanded(b, sfb, 128).t()
            share = float(((out.d.double() - exact).abs() / bound(a, sfa, b, sfb, exact)).max())
            if not share <= 1:
                raise AssertionError(f"{what}: error is {share:.2f} of its bound")
            return share
        return 0.0

    def shapes(self):
        """Random shapes, each with the planner's choice and with another kernel, all layouts, odd M, tails of K."""
        worst, count, kernels = 0.0, 0, set()
        while count < self.options.shapes:
            m = self.random.choice((1, 2, 3, 7, 8, 15, 33, 64, 65, 100, 128, 129, 200, 257, 384, 500, 777, 1000))
            n = 8 * self.random.randint(1, 200)
            # Kernels for row-major scales take multiples of 512, split ones of 512 for each part.
            k = self.random.choice((16 * self.random.randint(1, 200), 512 * self.random.randint(1, 6)))
            names = self.usable(m, n, k)
            for config in {names[0], self.random.choice(names)}:
                worst = max(
                    worst,
                    self.one_shape(m, n, k, self.random.choice(LAYOUTS), config, self.random.choice((0, 0, 16, 112))),
                )
                kernels.add(config)
                count += 1
        return {"gemms": count, "kernels": len(kernels), "worst_share_of_bound": round(worst, 4)}

    def table(self):
        """All rows of the dense table, some rows of D each."""
        for m, n, k in DENSE_SHAPES:
            for layout in ("mn", "row"):
                self.one_shape(m, n, k, layout, self.usable(m, n, k)[0], rows=8)
        return {"gemms": len(DENSE_SHAPES) * 2}

    def beyond_31_bits(self):
        """A, B or D with more than 2^31 elements; also their bytes pass 2^32."""
        shapes = ((300_032, 256, 7168), (256, 300_032, 7168), (300_000, 14_400, 128))
        for m, n, k in shapes:
            self.one_shape(m, n, k, "mn", self.usable(m, n, k)[0], rows=4)
            torch.cuda.empty_cache()
        return {"shapes": shapes}

    def repeat(self):
        """200 runs of every kernel give the same bits, with the caches in any state."""
        names = [row["name"] for row in self.tested.explain(4096, 4096, 4096)["candidates"]]
        for name, layout in itertools.product(names, ("mn", "row")):
            m = next(m for m in (96, 192, 384, 640) if name in self.usable(m, 2112, 6144))
            x = operands(m, 2112, 6144, layout, self.generator)
            d = torch.empty(m, 2112, device="cuda", dtype=torch.bfloat16)
            self.repeated(f"{name}, {layout}", self.tested.prepare(*x, d, config=name), d)
        return {"kernels": len(names), "layouts": 2, "runs": self.RUNS}

    def batch_invariant(self):
        """Rows of batch-invariant results have the same bits for any M; what that costs where K would be split."""
        ms = (1, 7, 32, 64, 65, 128, 300, 1024, 4096)
        cost = {}
        for n, k in DENSE_NK:
            a, sfa, b, sfb = operands(ms[-1], n, k, "mn", self.generator)
            first = None
            for m in ms:
                d = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
                x = (a[:m], sfa[:m], b, sfb, d)
                self.tested.gemm(*x, batch_invariant=ON)
                first = d[:1].clone() if first is None else first  # d is written again below
                if differing(d[:1], first):
                    raise AssertionError(f"{m}x{n}x{k}: the first row's bits are not those for M = 1")
                if m in (1, 64, 128, 300):
                    calls = {on: self.tested.prepare(*x, batch_invariant=on) for on in (ON, OFF)}
                    t = median_times(calls, self.options.rounds)
                    cost[f"{m}x{n}x{k}"] = round(t[ON] / t[OFF], 2)
        return {"m": ms, "time_over_default": cost}

    def num_sms(self):
        """With fewer SMs the bits stay (without splits of K) and the time grows as their number shrinks."""
        cost: dict[str, dict[int, float]] = {}
        for m, n, k in ((64, 7168, 2048), (4096, 4096, 7168)):
            a, sfa, b, sfb = operands(m, n, k, "mn", self.generator)
            all_of_them = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
            fewer = torch.empty_like(all_of_them)
            whole = self.tested.prepare(a, sfa, b, sfb, all_of_them, batch_invariant=ON)
            whole()
            cost[f"{m}x{n}x{k}"] = {}
            for sms in (131, 120, 99, 66, 33, 5):
                call = self.tested.prepare(a, sfa, b, sfb, fewer.fill_(7), batch_invariant=ON, num_sms=sms)
                call()
                if differing(fewer, all_of_them):
                    raise AssertionError(f"{m}x{n}x{k} on {sms} SMs: other bits than on all")
                t = median_times({"all": whole, "fewer": call}, self.options.rounds)
                cost[f"{m}x{n}x{k}"][sms] = round(t["fewer"] / t["all"], 2)
        return {"time_over_132_sms": cost}

    def graph(self):
        """A CUDA graph of dependent calls, captured as the first ones of their shapes, replayed with other inputs."""
        m, n = 48, 1024
        a, sfa, b, sfb = operands(m, n, n, "mn", self.generator)
        d = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        q, s = torch.empty_like(a), torch.empty(blocks(n), m, device="cuda").t()

        def chain(pdl=0):
            for _ in range(3):
                self.tested.gemm(a, sfa, b, sfb, d, pdl=pdl, prefetch_weights=pdl)
                self.tested.quantize("rows", d, q, s)
                a.view(torch.uint8).copy_(q.view(torch.uint8))
                sfa.copy_(s)

        start = (a.clone(), sfa.clone())
        side = torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            chain(pdl=1)
        for factor in (1.0, 0.5):
            a.view(torch.uint8).copy_(start[0].view(torch.uint8)), sfa.copy_(start[1] * factor)
            graph.replay()
            torch.cuda.synchronize()
            captured = d.clone()
            a.view(torch.uint8).copy_(start[0].view(torch.uint8)), sfa.copy_(start[1] * factor)
            chain()
            torch.cuda.synchronize()
            if differing(captured, d):
                raise AssertionError("a replayed graph and direct calls differ")
        return {"replays": 2}

    def dependent_launch(self):
        """Eight GEMMs of a decode layer in a CUDA graph: without programmatic dependent launch, with it, and with
        weights that are loaded before the kernel before has ended."""
        ways = {"us_without": {}, "us_with": {"pdl": 1}, "us_with_prefetch": {"pdl": 1, "prefetch_weights": 1}}
        out = {}
        for m in (1, 16, 64):
            graphs, results = {}, {}
            cases = [operands(m, n, k, "mn", self.generator) for n, k in (*DENSE_NK, (7168, 2304))]
            for way, options in ways.items():
                ds = [torch.empty(m, x[2].shape[0], device="cuda", dtype=torch.bfloat16) for x in cases]
                calls = [self.tested.prepare(*x, d, **options) for x, d in zip(cases, ds, strict=True)]
                for call in calls:
                    call()
                torch.cuda.synchronize()
                graphs[way], results[way] = torch.cuda.CUDAGraph(), ds
                with torch.cuda.graph(graphs[way]):
                    for call in calls:
                        call()
                for d in ds:
                    d.fill_(7)
            times: dict[str, list[float]] = {way: [] for way in ways}
            for way in list(ways) * 30:
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                graphs[way].replay()
                end.record()
                torch.cuda.synchronize()
                times[way].append(begin.elapsed_time(end) * 1e3)
            for way, ds in results.items():
                if sum(differing(x, y) for x, y in zip(results["us_without"], ds, strict=True)):
                    raise AssertionError(f"M = {m}: other bits ({way})")
            out[m] = {way: round(sorted(taken)[15], 1) for way, taken in times.items()}
        return {"gemms": 8, "m": out}

    def quantize(self):
        """GPU and CPU give the same bits for all types, NaN and infinities too."""
        count = 0
        types = (*CODES, torch.int8)
        for dtype, codes in itertools.product((torch.bfloat16, torch.float16, torch.float32), types):
            for rows, cols in ((1, 16), (5, 144), (128, 128), (130, 400), (257, 7168)):
                x = torch.randn(rows, cols, device="cuda", generator=self.generator) * 10 ** self.random.uniform(-6, 3)
                x = x.to(dtype)
                x[0, :3] = torch.tensor([math.nan, math.inf, -math.inf])
                x[-1] = 0
                for kind, shape in (("rows", (rows, blocks(cols))), ("blocks", (blocks(rows), blocks(cols)))):
                    for power_of_two in (False, True):
                        results = []
                        for there in (x, x.cpu()):
                            q = torch.empty(rows, cols, dtype=codes, device=there.device)
                            s = torch.empty(*shape, device=there.device)
                            self.tested.quantize(kind, there, q, s, power_of_two)
                            results.append((q.view(torch.uint8).cpu(), s.cpu()))
                        if not all(torch.equal(g, c) for g, c in zip(*results, strict=True)):
                            raise AssertionError(
                                f"quantize_{kind} of {dtype} {rows}x{cols} to {codes}: GPU and CPU differ"
                            )
                        count += 1
        return {"cases": count}
