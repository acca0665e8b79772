"""Checks of a layer of experts as one call on a GPU: the bits of the CPU, repeats, graphs, times."""

import ctypes
import dataclasses
import itertools
import random
import statistics
from functools import partial

import torch

import gpu_timing
from gpu_fixture import Fixture, TooSlow
from gpu_four_bit import FORMATS, Weights
from gpu_library import AS_CONTEXT, HOPPER, OFF, OFFSETS, ON, C, Library, integers, matrix, stack, stream_of
from gpu_routing import Surrounded
from records import write_record
from weights_read import reader

E4M3 = torch.float8_e4m3fn
LAYERS = (  # name, hidden, pairs of a gate and an up, experts, choices of a token
    ("DeepSeek-V3", 7168, 2048, 256, 8),
    ("Qwen3-235B", 4096, 1536, 128, 8),
    ("GLM-4.5", 5120, 1536, 160, 8),
    ("MiniMax-M2", 3072, 1536, 256, 8),
)
BIASED = ("gpt-oss-120b", 2880, 2880, 128, 4)  # whose experts have biases
SPEED_TOKENS = (1, 8, 64, 512, 4096, 16384)
RANKS = 32
FLUSH_BYTES = 1 << 28  # five times L2
FLOP_PER_US = 1.5e9
NOISE = 1.02
MOST_ROWS_OF_KERNELS = 8
MOST_ROWS_OF_READS = 512  # more rows take longer than their weights


def codes(generator, *shape: int, device: str = "cuda") -> torch.Tensor:
    """Any e4m3 below 2 in magnitude."""
    bits = torch.randint(0, 256, shape, dtype=torch.uint8, device=device, generator=generator)
    return bits.bitwise_and_(0xB7).view(E4M3)


def experts_scales(generator, *shape: int) -> torch.Tensor:
    return torch.rand(shape, device="cuda", generator=generator) * 0.02 + 0.01


@dataclasses.dataclass
class Layer:
    """Operands of a layer, and memory for what lies between."""

    x: torch.Tensor
    ids: torch.Tensor
    weights: torch.Tensor
    of_experts: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]  # gate_up, its scales, down, its scales
    options: dict = dataclasses.field(default_factory=dict)  # members of finegemm_moe_options
    biases: tuple[torch.Tensor | None, ...] = (None, None)  # of gate_up and of down

    @property
    def shape(self) -> dict:
        experts, hidden, pairs = self.of_experts[2].shape
        tokens, choices = self.ids.shape
        kinds = ("rows", "expected_m", "num_sms", "f32_between", "fused")
        sizes = {"tokens": tokens, "choices": choices, "hidden": hidden, "intermediate": pairs, "experts": experts}
        return sizes | {k: v for k, v in self.options.items() if k in kinds} | {"biased": int(self.is_biased)}

    @property
    def is_biased(self) -> bool:
        return self.biases[0] is not None

    def to(self, device: str) -> "Layer":
        x, ids, weights, *of_experts = (t.to(device=device) for t in (self.x, self.ids, self.weights, *self.of_experts))
        biases = tuple(None if b is None else b.to(device=device) for b in self.biases)
        return dataclasses.replace(self, x=x, ids=ids, weights=weights, of_experts=tuple(of_experts), biases=biases)

    def with_biases(self, generator, dtype: torch.dtype) -> "Layer":
        """Of experts that nobody chooses they are NaN."""
        _, two_pairs, hidden = self.of_experts[0].shape
        experts = torch.arange(len(self.of_experts[0]), device="cuda")
        unused = ~torch.isin(experts, self.ids.long())[:, None]
        drawn = (torch.randn(len(experts), n, device="cuda", generator=generator) for n in (two_pairs, hidden))
        return dataclasses.replace(self, biases=tuple(b.masked_fill(unused, float("nan")).to(dtype) for b in drawn))

    def workspace(self, library: Library) -> Surrounded:
        """Full of NaN, with canaries around it."""
        shape, size = C["moe_shape"](struct_size=ctypes.sizeof(C["moe_shape"]), **self.shape), ctypes.c_int64()
        function = library.c.finegemm_moe_workspace_bytes
        library.check(function(ctypes.byref(shape), ctypes.byref(size), ctypes.byref(library.error)))
        memory = Surrounded(1, size.value, dtype=torch.uint8, device=self.x.device)
        memory.t.fill_(0xFF)
        return memory

    def structs(self, out: torch.Tensor, workspace: torch.Tensor | None = None, **options) -> tuple:
        """Arguments and options of the call."""
        ids = matrix(self.ids) if self.ids.dtype == torch.int64 else integers(self.ids)
        args = C["moe_args"](
            x=matrix(self.x),
            x_scales=matrix(None),
            ids=ids,
            weights=matrix(self.weights),
            **dict(zip(("gate_up", "gate_up_scales", "down", "down_scales"), map(stack, self.of_experts), strict=True)),
            out=matrix(out),
            workspace=None if workspace is None else workspace.data_ptr(),
            workspace_bytes=0 if workspace is None else workspace.numel(),
        )
        size = ctypes.sizeof(C["moe_options"])
        biases = dict(zip(("gate_up_bias", "down_bias"), map(matrix, self.biases), strict=True))
        members = {"gate_alpha": 1.0} | biases | self.options | options
        given = C["moe_options"](struct_size=size, check_values=OFF, **members)
        return args, given

    def prepare(self, library: Library, out: torch.Tensor, workspace: torch.Tensor | None = None, **options):
        """A function without arguments that queues the call."""
        args, given = self.structs(out, workspace, **options)

        def call(keep=(self, out, workspace)):
            library.moe(args, given, out)

        return call

    def run(self, library: Library, **options) -> list[Surrounded]:
        """What is written, with what surrounds it; the workspace is the caller's."""
        out, memory = Surrounded(*self.x.shape, dtype=torch.bfloat16, device=self.x.device), self.workspace(library)
        self.prepare(library, out.t, memory.t, **options)()
        memory.t.fill_(0)
        return [out, memory]

    def steps(self, library: Library, out: torch.Tensor, pdl: bool) -> dict:
        """The same by a call for each step, the activation apart, with memory of its own."""
        (tokens, hidden), choices = self.x.shape, self.ids.shape[1]
        gate_up, gate_up_scales, down, down_scales = self.of_experts
        experts, _, pairs = down.shape
        rows = tokens * choices

        def empty(cols: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.empty(rows, cols, dtype=dtype, device="cuda")

        def scales(cols: int) -> torch.Tensor:
            return Surrounded(rows, -(-cols // 128), dtype=torch.float32, mn_major=True).t

        inverse = torch.empty(tokens, choices, dtype=torch.int32, device="cuda")
        offsets = torch.empty(experts + 1, dtype=torch.int32, device="cuda")
        q, of_q, between = empty(hidden, E4M3), scales(hidden), empty(2 * pairs, torch.bfloat16)
        z, of_z, y = empty(pairs, E4M3), scales(pairs), empty(hidden, torch.bfloat16)
        activate = {"groups": offsets, "form": OFFSETS, "to_bf16": True, "pdl": pdl}
        return {
            "route": partial(library.route, self.ids, inverse, offsets, None, OFFSETS, experts, 0, rows),
            "permute_quantize": partial(library.permute_quantize, self.x, inverse, q, of_q, pdl=pdl),
            "gate_up": library.prepare_grouped(q, of_q, gate_up, gate_up_scales, between, offsets, OFFSETS, pdl=pdl),
            "swiglu_quantize": partial(library.swiglu_quantize, between, z, of_z, **activate),
            "down": library.prepare_grouped(z, of_z, down, down_scales, y, offsets, OFFSETS, pdl=pdl),
            "combine": partial(library.combine, y, inverse, self.weights, out, pdl=pdl),
        }

    def chain(self, library: Library, out: torch.Tensor, pdl: bool):
        steps = self.steps(library, out, pdl).values()
        return lambda: [step() for step in steps]


def captured(call) -> torch.cuda.CUDAGraph:
    """Of a call that has been made once: its kernels are there. The graph keeps the call, whose tensors it uses."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    graph.call = call
    return graph


def replay_us(graphs: dict, rounds: int) -> dict[str, float]:
    """Medians of events around replays in turn, each round in another order, as what ran before decides at what clock a
    long one begins; L2 emptied before each. Events add some microseconds, the same to each."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    pairs = {name: [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(rounds)] for name in graphs}
    for i in range(rounds):
        for name in random.Random(i).sample(list(graphs), len(graphs)):
            flush.zero_()
            pairs[name][i][0].record()
            graphs[name].replay()
            pairs[name][i][1].record()
    torch.cuda.synchronize()
    return {name: round(1000 * statistics.median(a.elapsed_time(b) for a, b in p[1:]), 2) for name, p in pairs.items()}


class Layers(Fixture):
    def layer_of(self, tokens: int, choices: int, hidden: int, pairs: int, experts: int, **options) -> Layer:
        g = self.generator
        ids = torch.randint(-1, experts + 2, (tokens, choices), device="cuda", generator=g)
        of_experts = (
            codes(g, experts, 2 * pairs, hidden),
            experts_scales(g, experts, -(-2 * pairs // 128), -(-hidden // 128)),
            codes(g, experts, hidden, pairs),
            experts_scales(g, experts, -(-hidden // 128), -(-pairs // 128)),
        )
        x = torch.randn(tokens, hidden, device="cuda", generator=g).bfloat16()
        return Layer(x, ids, torch.rand(tokens, choices, device="cuda", generator=g), of_experts, options)

    def random_layer_of_experts(self) -> Layer:
        r = self.random
        pairs = r.choice((128, 256, 16 * r.randint(1, 20)))
        fused = r.choice((AS_CONTEXT, ON, OFF)) if pairs % 128 == 0 else AS_CONTEXT
        choices = r.randint(1, 6) if r.random() < 0.7 else 1  # of one choice a token the second product stores sums
        tokens, hidden = r.choice((1, r.randint(1, 60), r.randint(33, 400) if choices == 1 else 3)), r.randint(1, 40)
        if r.random() < 0.2:  # the activation awaits rows
            tokens, choices, hidden = r.randint(512, 600), 1, r.randint(65, 72)
        layer = self.layer_of(
            tokens,
            choices,
            16 * hidden,
            pairs,
            r.choice((1, r.randint(1, 12))),
            fused=fused,
            f32_between=int(pairs % 128 == 0 and fused != OFF and r.random() < 0.3),
            gate_limit=r.choice((0.0, 0.7)),
            gate_alpha=r.choice((1.0, 1.702)),
            up_offset=r.choice((0.0, 1.0)),
            power_of_two_scales=int(r.random() < 0.5),
            weights_first=int(r.random() < 0.3),
            num_sms=r.choice((0, 0, 5)),
        )
        if r.random() < 0.5:
            layer.ids = layer.ids.int()
        if r.random() < 0.2:
            layer.options["rows"] = r.randint(1, layer.ids.numel())
        if r.random() < 0.3:
            layer.x[r.randrange(len(layer.x))] = float("nan")
        if fused != ON and not layer.options["f32_between"] and r.random() < 0.5:
            layer = layer.with_biases(self.generator, r.choice((torch.float32, torch.bfloat16)))
        return layer

    def moe_bits(self):
        """Random layers: the bits of the CPU, with what surrounds them, and the same ones overlapping."""
        count = max(1, self.options.shapes // 20)
        for _ in range(count):
            layer = self.random_layer_of_experts()
            found, wanted = layer.run(self.tested), layer.to("cpu").run(self.tested, numerics=HOPPER)
            again = layer.run(self.tested, pdl=1)
            for name, others in (("the CPU", wanted), ("an overlapping call", again)):
                for a, b in zip(found, others, strict=True):
                    if n := int((a.all.cpu() != b.all.cpu()).sum()):
                        raise AssertionError(f"{n} words differ from those of {name}: {layer.shape} {layer.options}")
        return {"layers": count}

    def moe_four_bit(self):
        """Layers with weights of 4 bits alone, without biases and with: the bits of the CPU."""
        kinds = list(itertools.product(FORMATS, (3, 70), (None, torch.float32, torch.bfloat16)))
        for name, tokens, dtype in kinds:
            layer = self.layer_of(tokens, 3, 384, 256, 6, gate_limit=7.0, gate_alpha=1.702, up_offset=1.0)
            packed = [Weights(self.tested, name, 6, n, k) for n, k in ((512, 384), (384, 256))]
            layer = layer if dtype is None else layer.with_biases(self.generator, dtype)
            found, wanted = (self.by_four_bit(layer.to(device), packed, device) for device in ("cuda", "cpu"))
            if n := int((found.all.cpu() != wanted.all).sum()):
                raise AssertionError(f"{n} words differ from those of the CPU: {name}, {tokens} tokens, biases {dtype}")
        return {"layers": len(kinds)}

    def by_four_bit(self, layer: Layer, packed: list[Weights], device: str) -> Surrounded:
        out = Surrounded(*layer.x.shape, dtype=torch.bfloat16, device=device)
        args, options = layer.structs(out.t, numerics=HOPPER)
        args.gate_up = args.gate_up_scales = args.down = args.down_scales = stack(None)
        options.stream = stream_of(out.t)
        there = [w.data.to(device) for w in packed]
        of_device = (2, torch.cuda.current_device()) if device == "cuda" else (1, 0)
        given = (
            C["four_bit_weights"](t.data_ptr(), FORMATS[w.name], *of_device, 0, w.g, w.n, w.k)
            for t, w in zip(there, packed, strict=True)
        )
        library, structs = self.tested, (args, *given, options, self.tested.error)
        library.check(library.c.finegemm_four_bit_moe(library.context, *map(ctypes.byref, structs)))
        torch.cuda.synchronize()
        return out

    def moe_graph(self):
        """A graph that takes memory of the library's, of which tokens and ids change: the bits of calls. Of few choices
        and of more."""
        kinds = ((50, 4, 512), (30, 4, 512), (8, 4, 512), (300, 1, 512), (520, 1, 1152))
        for fused, (tokens, choices, hidden) in itertools.product((ON, OFF, AS_CONTEXT), kinds):
            layer = self.layer_of(tokens, choices, hidden, 256, 16, fused=fused)
            if fused == AS_CONTEXT:  # ids change: all experts have biases
                biases = (torch.randn(16, n, device="cuda", generator=self.generator) for n in (512, hidden))
                layer = dataclasses.replace(layer, biases=tuple(biases))
            out, wanted = torch.empty_like(layer.x), torch.empty_like(layer.x)
            graph, call = captured(layer.prepare(self.tested, out)), layer.prepare(self.tested, wanted)
            for _ in range(max(1, self.RUNS // 10)):
                layer.ids.copy_(torch.randint(-3, 18, layer.ids.shape, device="cuda", generator=self.generator))
                layer.x.normal_(generator=self.generator)
                graph.replay()
                call()
                torch.cuda.synchronize()
                if n := int((out.view(torch.int16) != wanted.view(torch.int16)).sum()):
                    raise AssertionError(f"{n} elements of a replay differ from a call's: {layer.shape}")
        return {"graphs": 3 * len(kinds)}

    def moe_repeat(self):
        """The same bits each time, from two streams at once."""
        kinds = ((200, 4, False), (200, 4, True), (8, 4, False), (8, 4, True), (800, 1, False), (50, 1, False))
        awaited = ((520, 1, False, 1152, 256, 16, OFF), (4096, 1, False, 1152, 1536, 4, OFF))
        return {"runs": min(itertools.starmap(self.repeated_layer, (*kinds, *awaited)))}

    def repeated_layer(self, tokens, choices, biased, hidden=512, pairs=256, experts=16, fused=AS_CONTEXT) -> int:
        layer = self.layer_of(tokens, choices, hidden, pairs, experts, fused=fused)
        if biased:
            layer = layer.with_biases(self.generator, torch.bfloat16)
        wanted = torch.empty_like(layer.x)
        layer.prepare(self.tested, wanted)()
        streams = [torch.cuda.Stream() for _ in range(2)]
        outs = [torch.empty_like(layer.x) for _ in streams]
        calls = [layer.prepare(self.tested, out, pdl=1) for out in outs]
        torch.cuda.synchronize()
        for _ in range(max(1, self.RUNS // 10)):
            for stream, call in zip(streams, calls, strict=True):
                with torch.cuda.stream(stream):
                    call()
            torch.cuda.synchronize()
            for out in outs:
                if n := int((out.view(torch.int16) != wanted.view(torch.int16)).sum()):
                    raise AssertionError(f"{n} elements differ from run to run: {layer.shape}")
        return max(1, self.RUNS // 10)

    def moe_speed(self):
        """Layers of models beside a call for each step, all in graphs: even and by Zipf's law, and one of 32 ranks."""
        rows = []
        for name, hidden, pairs, experts, choices in LAYERS:
            whole = self.layer_of(1, choices, hidden, pairs, experts)
            for tokens, kind in itertools.product(SPEED_TOKENS, ("even", "zipf", "rank")):
                layer = self.part_of(whole, tokens, choices, kind)
                rows.append({"layer": name, "kind": kind, "tokens": tokens} | self.timed_layer(layer))
                print(rows[-1], flush=True)
        method = f"replays of CUDA graphs between events, L2 flushed, median of {self.options.rounds}"
        record = self.machine() | {"method": method, "rows": rows, "biased": self.biased_rows(SPEED_TOKENS)}
        write_record(self.options.out / f"moe_{self.card}.json", record)
        if slow := [r for r in rows if r["us"]["moe"] > NOISE * min(r["us"]["chain"], r["us"]["chain, pdl"])]:
            raise TooSlow(f"slower than a call for each step: {slow}")
        return {"rows": len(rows)}

    def biased_rows(self, all_tokens: tuple[int, ...]) -> list[dict]:
        """What biases take: the layer of gpt-oss without and with them."""
        name, hidden, pairs, experts, choices = BIASED
        whole, rows = self.layer_of(1, choices, hidden, pairs, experts), []
        for tokens in all_tokens:
            part = self.part_of(whole, tokens, choices, "even")
            layer = dataclasses.replace(part, options={"gate_limit": 7.0, "gate_alpha": 1.702, "up_offset": 1.0})
            out, memory = torch.empty_like(layer.x), layer.workspace(self.tested).t
            layers = {"without": layer} | {
                str(dtype)[6:]: layer.with_biases(self.generator, dtype) for dtype in (torch.bfloat16, torch.float32)
            }
            graphs = {kind: captured(one.prepare(self.tested, out, memory)) for kind, one in layers.items()}
            rows.append({"layer": name, "tokens": tokens, "us": replay_us(graphs, self.options.rounds)})
            print(rows[-1], flush=True)
        return rows

    def part_of(self, whole: Layer, tokens: int, choices: int, kind: str) -> Layer:
        """Of a rank of 32: its experts, and as many tokens of one choice each as arrive there."""
        g, experts = self.generator, len(whole.of_experts[0])
        if kind == "rank":
            experts, tokens, choices = experts // RANKS, tokens * choices, 1
        odds = torch.ones(experts, device="cuda")
        if kind == "zipf":
            odds = 1 / (1 + torch.randperm(experts, device="cuda", generator=g).float())
        ids = torch.multinomial(odds.expand(tokens, experts), choices, generator=g)
        x = torch.randn(tokens, whole.x.shape[1], device="cuda", generator=g).bfloat16()
        weights = torch.rand(tokens, choices, device="cuda", generator=g)
        return Layer(x, ids, weights, tuple(w[:experts] for w in whole.of_experts))

    def timed_layer(self, layer: Layer) -> dict:
        out, memory = torch.empty_like(layer.x), layer.workspace(self.tested).t
        calls = {
            "moe": layer.prepare(self.tested, out, memory),
            "moe, fused": layer.prepare(self.tested, out, memory, fused=ON),
            "moe, apart": layer.prepare(self.tested, out, memory, fused=OFF),
            "chain": layer.chain(self.tested, out, False),
            "chain, pdl": layer.chain(self.tested, out, True),
        }
        if layer.ids.numel() <= MOST_ROWS_OF_READS:
            calls["weights read"] = reader(layer.ids.unique(), layer.of_experts[0], layer.of_experts[2])
        us = replay_us({name: captured(call) for name, call in calls.items()}, self.options.rounds)
        rows, busy = layer.ids.numel(), int(layer.ids.unique().numel())
        of_expert = 3 * layer.of_experts[2][0].numel()
        bounds = {"weights_us": busy * of_expert / self.bytes_per_us, "products_us": 2 * rows * of_expert / FLOP_PER_US}
        shape = C["moe_shape"](struct_size=ctypes.sizeof(C["moe_shape"]), device=b"", **layer.shape)
        plan = self.tested.explained(self.tested.c.finegemm_explain_moe, shape)
        return {
            "busy": busy,
            "us": us,
            **{k: round(v, 1) for k, v in bounds.items()},
            **({"kernels_us": self.kernel_times(layer, out)} if rows <= MOST_ROWS_OF_KERNELS else {}),
            "plan_us": {f"{i} {launch['call']}": round(launch["us"], 1) for i, launch in enumerate(plan["launches"])},
        }

    def kernel_times(self, layer: Layer, out: torch.Tensor) -> dict[str, float]:
        """What the kernel of each step takes alone, which is less than it adds to a graph."""
        times = gpu_timing.median_times(layer.steps(self.tested, out, False), self.options.rounds)
        return {name: round(us, 2) for name, us in times.items()}
