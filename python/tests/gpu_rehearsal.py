"""The checks of bench/gpu_check.py on the CPU: their own paths, where there is no GPU. Needs torch.

What they take for a GPU is the CPU's model of it, which gives the same bits. Streams, events and devices do nothing;
a graph is a list of what was called; times are all the same."""

import argparse
import contextlib
import ctypes
import sys

from support import program
from torch_support import torch

SMS = 132  # of the GPU that the CPU stands for
MOST_HIDDEN, MOST_FLOP = 1024, 1.2e9  # of a layer of experts that it computes; those with more of both are zeros
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
DTYPES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}
CODES = {torch.float8_e4m3fn: "", torch.float8_e5m2: "_E5M2", torch.int8: "_I8"}  # ends of names
ENDINGS = ("", "_grouped", "_kgrouped", "_kgrouped")  # of names of kernels, by the form of groups of scales


class OnCpu(torch.overrides.TorchFunctionMode):
    """Makes tensors of "cuda" on the CPU, and keeps what is called on a tape while a graph is captured."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if "cuda" in str(kwargs.get("device", "")):
            kwargs["device"] = "cpu"
        return recorded(lambda: func(*args, **kwargs))


class Graph:
    tape: list | None = None  # of the graph that is captured now

    def __init__(self):
        self.calls = []

    def replay(self):
        for call in self.calls:
            call()


def recorded(call):
    if Graph.tape is not None:
        Graph.tape.append(call)
    return call()


def transform_of(sf, out, power_of_two):
    if sf.dtype == out.dtype:
        return "round_fp32" if power_of_two else "transpose_fp32"
    return "unpack_ue8m0" if sf.dtype == torch.int32 else "pack_fp32_into_ue8m0"


def direct_of(sf, out):
    """How the name of a kernel ends whose threads store the words that they have loaded. Of packing without groups."""
    rows, cols = sf.shape[-2:]
    down, right = sf.stride()[-2:]
    if out.shape[-2] != rows or out.stride(-2) != 1 or out.stride(-1) % 4 != 0:
        return ""
    if down == 1 and right % 4 == rows % 4 == 0:
        return "_by_columns"
    return "_by_rows" if right == 1 and down % 4 == cols % 4 == 0 else ""


@contextlib.contextmanager
def capture(graph, stream=None):
    Graph.tape = graph.calls
    yield
    Graph.tape = None


class Event:
    asked = 0

    def __init__(self, enable_timing=False):
        pass

    def record(self, stream=None):
        pass

    def elapsed_time(self, end):
        """More each time, so that what is asked for first was first."""
        Event.asked += 1
        return Event.asked


def nothing(*args, **keywords):
    return contextlib.nullcontext()


CUDA = {
    "Stream": lambda device=None: None,
    "stream": nothing,
    "device": nothing,
    "Event": Event,
    "CUDAGraph": Graph,
    "graph": capture,
    "synchronize": nothing,
    "empty_cache": nothing,
    "_sleep": nothing,
    "device_count": lambda: 2,
}


class Rehearsal:
    """`check`: an instance of gpu_check.Check. `names`: of the kernels that it asked for."""

    def __init__(self, library: str, monkeypatch, shapes: int):
        for name, fake in CUDA.items():
            monkeypatch.setattr(torch.cuda, name, fake)
        generator = torch.Generator
        monkeypatch.setattr(torch, "Generator", lambda device="cpu": generator())
        program("bench/records.py")  # puts bench/ on the path
        for name in [name for name in sys.modules if name.startswith("gpu_") and name != __name__]:
            monkeypatch.delitem(sys.modules, name)  # they have what another rehearsal put there
        import gpu_timing

        monkeypatch.setattr(gpu_timing, "median_times", self.times)
        monkeypatch.setattr(gpu_timing, "launched", self.launched)
        import gpu_together  # takes these

        monkeypatch.setattr(gpu_together, "RUNS_OF_A_ROUND", 1)
        self.names: set[str] = set()
        self.program = program("bench/gpu_check.py")
        self.check = self.program.Check(
            argparse.Namespace(tested=library, shapes=shapes, rounds=1, commit="", out=None)
        )
        self.check.RUNS = 1
        self.check.MANY, self.check.MANY_RUNS = 64, 2
        self.check.REPEATED, self.check.ROWS, self.check.HUGE = (20, 72, 1024), (0, 9, 3, 5), ((200, 136, 256),)
        self.check.LAYOUTS_REPEATED, self.check.KERNELS_REPEATED = ("mn",), 2
        self.check.MX_REPEATED, self.check.MX_ROWS, self.check.MX_HUGE = (
            (20, 72, 1024),
            (0, 9, 3, 5),
            ((200, 136, 256),),
        )
        self.check.MX_SHAPES, self.check.MX_LAYOUTS, self.check.MX_KERNELS = (
            ((130, 72, 1024), (33, 72, 1552)),
            ("mn",),
            2,
        )
        self.spoil, self.armed = 0, False
        self.watch(monkeypatch)
        self.watch_others(monkeypatch)

    def watch(self, monkeypatch):
        import gpu_library

        queued, options, quantize = (getattr(gpu_library.Library, n) for n in ("queued", "options", "quantize"))
        scale_layout = gpu_library.Library.scale_layout
        of_model = False  # whether the options made last are those of a check's own call of the model

        def modelled(numerics, config, *others):
            nonlocal of_model
            of_model = numerics == gpu_library.HOPPER
            self.names |= {config} if config else set()
            return options(gpu_library.HOPPER, config, *others)

        def watched(library, function, args, options, tensors, *epilogue):
            if (options.config or b"").endswith(b"_summed"):
                self.names.add(f"add_pieces_{DTYPES[tensors[4].dtype].lower()}")
            if hasattr(args, "offsets") and args.groups > 64:  # more than parameters hold
                self.names.add("group_list")
            call = queued(library, function, args, options, tensors, *epilogue)
            return call if of_model else lambda: recorded(lambda: self.spoiling(call, tensors[4]))

        def cast(library, kind, x, q, scales, power_of_two=False):
            self.names.add(f"quantize_{kind}_{DTYPES[x.dtype]}{CODES[q.dtype]}")
            recorded(lambda: self.spoiling(lambda: quantize(library, kind, x, q, scales, power_of_two), q))

        weights, columns = gpu_library.Library.quantize_weights, gpu_library.Library.quantize_columns

        def cast_weights(library, x, q, *others):
            self.names.add(f"quantize_blocks_{DTYPES[x.dtype]}{CODES[q.dtype]}")
            recorded(lambda: self.spoiling(lambda: weights(library, x, q, *others), q))

        def cast_columns(library, x, q, *others, **keywords):
            self.names.add(f"quantize_columns_{DTYPES[x.dtype]}{CODES[q.dtype]}")
            recorded(lambda: self.spoiling(lambda: columns(library, x, q, *others, **keywords), q))

        reencode = gpu_library.Library.reencode

        def reencoded(library, codes, words, q, scales, *others, **keywords):
            kind = "rows" if scales.shape[-2] == codes.shape[-2] else "blocks"
            self.names.add(f"reencode_{kind}")
            arguments = (library, codes, words, q, scales, *others)
            recorded(lambda: self.spoiling(lambda: reencode(*arguments, **keywords), q))

        monkeypatch.setattr(gpu_library.Library, "reencode", reencoded)

        def laid_out(library, sf, out, numbers=None, form=0, alignment=128, scale_k=128, power_of_two=False):
            transform = transform_of(sf, out, power_of_two)
            direct = direct_of(sf, out) if transform.startswith("pack") and form == 0 else ""
            self.names.add(f"scale_layout_{transform}{ENDINGS[form]}{direct}")
            arguments = (library, sf, out, numbers, form, alignment, scale_k, power_of_two)
            recorded(lambda: self.spoiling(lambda: scale_layout(*arguments), out))

        monkeypatch.setattr(gpu_library.Library, "scale_layout", laid_out)
        monkeypatch.setattr(gpu_library.Library, "options", staticmethod(modelled))
        monkeypatch.setattr(gpu_library.Library, "queued", watched)
        monkeypatch.setattr(gpu_library.Library, "quantize", cast)
        monkeypatch.setattr(gpu_library.Library, "quantize_weights", cast_weights)
        monkeypatch.setattr(gpu_library.Library, "quantize_columns", cast_columns)

    def watch_others(self, monkeypatch):
        import gpu_library

        score, schedule = gpu_library.Library.score, gpu_library.Library.paged_mqa_schedule

        def scored(library, function, args, d, form, relu, *others):
            q = args.q.matrix
            paged = "paged_" if hasattr(args, "cache") else ""
            abs_form = "_abs" if relu and q.rows >= 32 and not paged else ""
            self.names.add(f"{paged}mqa_logits_h{q.rows}_d{q.cols}{abs_form}")
            recorded(lambda: self.spoiling(lambda: score(library, function, args, d, form, relu, *others), d))

        def scheduled(library, lengths, queries_each, out):
            self.names.add("paged_mqa_schedule")
            recorded(lambda: self.spoiling(lambda: schedule(library, lengths, queries_each, out), out))

        prenorm = gpu_library.Library.prenorm_gemm

        def multiplied(library, a, b, d, sqrsum, num_sms=0, pdl=False):
            kernel = library.explain_prenorm(len(a), len(b), a.shape[1], len(d), num_sms)["kernel"]
            self.names.add(kernel.removeprefix("FineGEMM_"))
            recorded(lambda: self.spoiling(lambda: prenorm(library, a, b, d, sqrsum, num_sms, pdl), d))

        swiglu = gpu_library.Library.swiglu_quantize

        def activated(library, x, q, *others, **keywords):
            self.names.add(f"swiglu_quantize_{DTYPES[x.dtype]}")
            recorded(lambda: self.spoiling(lambda: swiglu(library, x, q, *others, **keywords), q))

        monkeypatch.setattr(gpu_library.Library, "swiglu_quantize", activated)
        import gpu_four_bit

        prepare = gpu_four_bit.prepare_four_bit

        def prepared(library, a, sfa, weights, d, *others, **options):
            many = "_many" if options.get("expected_m") == gpu_four_bit.MANY else ""
            self.names.add(f"four_bit_{weights.name.capitalize()}{many}")
            call = prepare(library, a, sfa, weights, d, *others, **options)
            return lambda: recorded(lambda: self.spoiling(call, d))

        monkeypatch.setattr(gpu_four_bit, "prepare_four_bit", prepared)
        of_routing = (("route", "route", 1), ("permute_quantize", "permute", 2), ("combine", "combine", 3))
        self.watch_layers(monkeypatch)
        self.watch_selections(monkeypatch)
        for name, *what in of_routing:
            monkeypatch.setattr(gpu_library.Library, name, self.routed(gpu_library.Library, name, *what))
        monkeypatch.setattr(gpu_library.Library, "prenorm_gemm", multiplied)
        monkeypatch.setattr(gpu_library.Library, "score", scored)
        monkeypatch.setattr(gpu_library.Library, "paged_mqa_schedule", scheduled)

    def watch_layers(self, monkeypatch):
        import gpu_library

        moe = gpu_library.Library.moe

        def layered(library, args, options, out):
            options.numerics = gpu_library.HOPPER
            down = args.down
            sizes = {"tokens": args.x.rows, "choices": args.ids.cols, "hidden": args.x.cols, "experts": down.count}
            kinds = {"intermediate": down.matrix.cols, "fused": options.fused, "f32_between": options.f32_between}
            kinds["biased"] = int(bool(options.gate_up_bias.data))
            shape = gpu_library.C["moe_shape"](device=b"h200", **sizes, **kinds)
            shape.struct_size = ctypes.sizeof(shape)
            plan = library.explained(library.c.finegemm_explain_moe, shape)
            self.names |= {launch["kernel"].removeprefix("FineGEMM_") for launch in plan["launches"]}
            flop = 6 * sizes["tokens"] * sizes["choices"] * sizes["hidden"] * kinds["intermediate"]
            too_much = sizes["hidden"] > MOST_HIDDEN and flop > MOST_FLOP
            call = out.zero_ if too_much else lambda: moe(library, args, options, out)
            recorded(lambda: self.spoiling(call, out))

        monkeypatch.setattr(gpu_library.Library, "moe", layered)
        ep_moe = gpu_library.Library.ep_moe

        def ranked(library, communicator, args, how, options, out):
            self.names |= {"ep_pull", "ep_push"} if how.memory else {"ep_slots"}
            options.numerics = gpu_library.HOPPER
            recorded(lambda: self.spoiling(lambda: ep_moe(library, communicator, args, how, options, out), out))

        monkeypatch.setattr(gpu_library.Library, "ep_moe", ranked)

    def watch_selections(self, monkeypatch):
        import topk_library

        select = topk_library.topk

        def kernel_of(rows, cols):
            ctas = 1
            while ctas < 8 and rows * ctas <= SMS and (rows * ctas * 2 <= SMS or cols > ctas * 16384):
                ctas *= 2
            if rows * 2 <= SMS and (cols > 8192 or rows <= 2) and ctas > 1 and cols <= ctas * 16384:
                return f"topk_few_c{ctas}"
            ctas = 1
            while ctas < 8 and (cols > ctas << 17 or (rows * ctas * 2 <= SMS and cols > ctas * 8192)):
                ctas *= 2
            return f"topk_c{ctas}"

        def selected(library, out, logits, *bounds, **chosen):
            rows, cols = logits.shape
            self.names.add(kernel_of(rows, cols))
            recorded(lambda: self.spoiling(lambda: select(library, out, logits, *bounds, **chosen), out.indices))

        def of_logits(name):
            function = getattr(topk_library, name)

            def call(library, out, *operands, **chosen):
                recorded(lambda: self.spoiling(lambda: function(library, out, *operands, **chosen), out.indices))

            return call

        for name in ("mqa_topk", "paged_mqa_topk"):
            monkeypatch.setattr(topk_library, name, of_logits(name))
        monkeypatch.setattr(topk_library, "topk", selected)

    def routed(self, library, name, kernel, place):
        """`place`: of what is written, among the arguments."""
        function = getattr(library, name)

        def call(library, *args, **options):
            first = args[0]
            quantizes = name == "permute_quantize" and first.dtype != args[2].dtype
            many = name == "route" and first.numel() > 2048
            self.names.add(f"routing_{kernel}{'_quantize' if quantizes else ''}{'_cluster' if many else ''}")
            recorded(lambda: self.spoiling(lambda: function(library, *args, **options), args[place]))

        return call

    def spoiling(self, call, d):
        call()
        self.spoil -= self.spoil > 0
        if self.spoil == 0 and self.armed:
            self.armed = False
            d.view(BITS[d.element_size()])[..., 0] ^= 1

    def run(self, name: str, spoil: int = 0):
        """`spoil`: of which call the first column of D gets other bits."""
        self.spoil, self.armed = spoil, spoil > 0
        with OnCpu():
            return getattr(self.check, name)()

    def times(self, calls, rounds):
        for call in calls.values():
            call()
        return dict.fromkeys(calls, 1.0)

    def launched(self, call):
        """By which of its texts a kernel is launched, the layout of scales decides, which only a GPU sees."""
        self.names.clear()
        call()
        kinds, ends = (
            ("", "e4m3_gemm_", "e5m2_gemm_", "i8_gemm_", "bf16_gemm_", "f16_gemm_"),
            ("", "_rows", "_bmn_bnk_mn_gemm_impl"),
        )
        return {f"FineGEMM_{kind}{name}{end}" for kind in kinds for name in self.names for end in ends}
