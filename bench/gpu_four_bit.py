"""Checks of products with weights of 4 bits on a GPU: bits of the CPU backend and of FP8, what surrounds D, times."""

import ctypes
import functools
import itertools

import torch

from gpu_cases import blocks
from gpu_columns import CANARY, canaries
from gpu_fixture import Fixture, TooSlow
from gpu_library import HOPPER, INDICES, MASKED, OFFSETS, PREFIX_SUMS, WHOLE, C, Groups, Library, matrix, stack
from gpu_timing import median_times
from records import write_record

FORMATS = {"mxfp4": 1, "int4": 2}
FORMS = (OFFSETS, INDICES, PREFIX_SUMS, MASKED, WHOLE)
SPEED_GROUPS, SPEED_LAYERS, SPEED_ROWS = (8, 16, 32), ((4096, 7168), (7168, 2048)), (1, 8, 16, 32, 48)
MANY_GROUPS, MANY_ROWS = (8, 32), (48, 64, 96, 128, 256, 1024)
FEW, MANY = 1, 4096  # rows to expect of a group: kernels are chosen by them alone
MANY_SIZES = (1, 48, 64, 65, 128, 129, 192, 193, 256, 257)  # where tiles for many rows change
NEVER_SLOWER = 1.03  # than the better of both forms
FLOOR = 1.35  # of MXFP4, over FP8 products of the same weights


class Weights:
    """Random packed weights [G, N, K] on the CPU, every code and every shift, and the FP8 that they are."""

    def __init__(self, library: Library, name: str, g: int, n: int, k: int):
        self.name, self.g, self.n, self.k = name, g, n, k
        packed, fp8 = zip(*(self.packed(library) for _ in range(g)), strict=True)
        self.data = torch.stack(packed)
        self.b, self.sfb = (torch.stack(x) for x in zip(*fp8, strict=True))

    def packed(self, library: Library):
        codes = torch.randint(0, 256, (self.n, self.k // 2), dtype=torch.uint8)
        if self.name == "mxfp4":
            scales = torch.randint(120, 132, (self.n, self.k // 32), dtype=torch.uint8)
        else:
            scales = (torch.rand(self.n, self.k // 128) * 0.01).bfloat16()
        size, call = ctypes.c_int64(), library.c.finegemm_four_bit_bytes
        n, k = ctypes.c_int64(self.n), ctypes.c_int64(self.k)
        library.check(call(FORMATS[self.name], n, k, ctypes.byref(size), ctypes.byref(library.error)))
        data = torch.empty(size.value, dtype=torch.uint8)
        of = (t.view(torch.float8_e4m3fn) if t.dtype == torch.uint8 else t for t in (codes, scales))
        source = C["four_bit_source"](FORMATS[self.name], 0, 0, 0, *map(matrix, of))
        at = ctypes.c_void_p(data.data_ptr())
        library.check(library.c.finegemm_pack_four_bit(ctypes.byref(source), at, ctypes.byref(library.error)))
        q = torch.empty(self.n, self.k, dtype=torch.float8_e4m3fn)
        sfb = torch.empty(blocks(self.n) if self.name == "mxfp4" else self.n, blocks(self.k))
        given = (C["four_bit_weights"](at, FORMATS[self.name], 1, 0, 0, 1, self.n, self.k), matrix(q), matrix(sfb))
        first, *others = map(ctypes.byref, given)
        call = library.c.finegemm_unpack_four_bit
        library.check(call(first, ctypes.c_int64(0), *others, ctypes.byref(library.error)))
        return data, (q, sfb)

    def changed(self, change, g: int) -> "Weights":
        """`change`: of each tensor."""
        other = object.__new__(Weights)
        other.__dict__ = vars(self) | {name: change(getattr(self, name)) for name in ("data", "b", "sfb")} | {"g": g}
        return other

    def to(self, device: torch.device | str) -> "Weights":
        return self.changed(lambda t: t.to(device), self.g)

    def repeated(self, g: int) -> "Weights":
        """So many groups, of which these are the first."""
        chosen = [i % self.g for i in range(g)]
        return self.changed(lambda t: t.view(torch.uint8)[chosen].view(t.dtype) if t.dim() == 3 else t[chosen], g)


def prepare_four_bit(
    library: Library,
    a,
    sfa,
    weights: Weights,
    d,
    numbers=None,
    form=WHOLE,
    alignment=128,
    fp8=False,
    expected_m=0,
    **options,
):
    """A call that can be repeated. a, sfa and d: 2-D, or 3-D of whole and masked groups. fp8: weights have their FP8
    beside them."""
    device = (2, a.get_device()) if a.is_cuda else (1, 0)
    of = (weights.data.data_ptr(), FORMATS[weights.name], *device, 0, weights.g, weights.n, weights.k)
    given = (None, 0) if numbers is None else (numbers.data_ptr(), numbers.numel())
    which = Groups(form, 0, *given, alignment, expected_m, *device)
    both = (stack(weights.b), stack(weights.sfb)) if fp8 else ()
    args = C["four_bit_args"](stack(a), stack(sfa), C["four_bit_weights"](*of), stack(d), which, *both)
    struct = C["four_bit_options"](struct_size=ctypes.sizeof(C["four_bit_options"]), numerics=HOPPER, **options)

    def call(keep=(a, sfa, weights, d, numbers)):
        struct.stream = torch.cuda.current_stream(a.device).cuda_stream if a.is_cuda else None
        function = library.c.finegemm_four_bit_gemm
        library.check(function(library.context, ctypes.byref(args), ctypes.byref(struct), ctypes.byref(library.error)))

    return call


class Problem:
    """Random rows in groups of any form. Those of no group are NaN. D is a part of memory full of canaries."""

    def __init__(
        self, library: Library, random, name: str | None = None, form: int | None = None, m: int | None = None
    ):
        self.form = random.choice(FORMS) if form is None else form
        g = random.choice((1, 2, 5, 40))
        n, k = 8 * random.randint(1, 8 if g > 5 else 40), 128 * random.choice((1, 2, 7, random.randint(1, 12)))
        self.weights = Weights(library, name or random.choice(list(FORMATS)), g, n, k)
        self.stacks = g if self.form in (MASKED, WHOLE) else 1
        self.m = random.choice((1, 7, 16, 17, 48, 49, random.randint(1, 200))) if m is None else m
        self.alignment = random.choice((64, 128))
        self.numbers, held = self.groups(random, g)
        self.a = torch.randn(self.stacks, self.m, k + 16).to(torch.float8_e4m3fn)
        self.sfa = torch.rand(self.stacks, blocks(k), self.m).mT + 0.1
        self.a.view(torch.uint8)[~held] = 0x7F
        self.sfa[~held] = float("nan")

    def groups(self, random, g: int) -> tuple[torch.Tensor | None, torch.Tensor]:
        """The numbers, and which rows have a group."""
        held = torch.zeros(self.stacks, self.m, dtype=torch.bool)
        if self.form == WHOLE:
            return None, ~held
        if self.form == MASKED:
            numbers = [random.choice((0, self.m, random.randint(0, self.m))) for _ in range(g)]
            for i, count in enumerate(numbers):
                held[i, :count] = True
        elif self.form == INDICES:
            numbers = [-1] * self.m
            for first in range(0, self.m, self.alignment):
                group, end = random.randrange(g), min(self.m, first + random.randint(0, self.alignment))
                numbers[first:end] = [group] * (end - first)
            held[0] = torch.tensor(numbers) >= 0
        else:
            numbers = sorted(random.randint(0, self.m) for _ in range(g + (self.form == OFFSETS)))
            if self.form == OFFSETS:
                held[0, numbers[0] : numbers[-1]] = True
            else:
                begin = 0
                for end in numbers:
                    held[0, begin:end] = True
                    begin = -(-end // self.alignment) * self.alignment
        return torch.tensor(numbers, dtype=torch.int32), held

    def prepared(self, library: Library, device: str, **options):
        """The memory that D is a part of, and the call."""
        k, n = self.weights.k, self.weights.n
        whole = canaries(self.stacks * (self.m + 1), n + 8, torch.bfloat16, device)
        d = whole.view(self.stacks, self.m + 1, n + 8)[:, : self.m, :n]
        a, sfa = self.a.to(whole.device)[..., :k], self.sfa.to(whole.device)
        if self.stacks == 1 and self.form not in (MASKED, WHOLE):
            a, sfa, d = a[0], sfa[0], d[0]
        numbers = None if self.numbers is None else self.numbers.to(whole.device)
        of = {"form": self.form, "alignment": self.alignment} | options
        return whole, prepare_four_bit(library, a, sfa, self.weights.to(whole.device), d, numbers, **of)

    def __str__(self):
        w = self.weights
        return f"four_bit_gemm {w.g} groups {self.m}x{w.n}x{w.k} {w.name}, form {self.form}"


class FourBit(Fixture):
    def four_bit(self):
        """GPU and CPU give the same bits, of every form of groups, and write nothing else."""
        cases = list(itertools.product(FORMS, FORMATS))
        count = max(len(cases), self.options.shapes // 20)
        for i in range(count):
            form, name = cases[i] if i < len(cases) else (None, None)
            problem = Problem(self.tested, self.random, name, form)
            options = ({}, {"pdl": 1}, {"num_sms": 7})[i % 3]
            # The FP8 product zeroes rows of indices without a group, and multiplies scales of rows otherwise.
            if i % 2 == 1 and problem.form != INDICES and problem.weights.name == "mxfp4":
                options = options | {"fp8": True}
            by_gpu, call = problem.prepared(self.tested, "cuda", **options)
            by_cpu, wanted = problem.prepared(self.tested, "cpu")
            call(), wanted()
            if not torch.equal(by_gpu.cpu().view(torch.int16), by_cpu.view(torch.int16)):
                raise AssertionError(f"{problem}: GPU and CPU differ")
        return {"cases": count}

    def four_bit_many(self):
        """The kernels for few rows and for many give the same bits, and write nothing else; of MXFP4 FP8 does, too."""
        for i in range(self.options.shapes):
            m = self.random.choice((*MANY_SIZES, self.random.randint(200, 900)))
            form = self.random.choice([f for f in FORMS if f != WHOLE])  # whose rows are known
            problem = Problem(self.tested, self.random, form=form, m=m)
            options = ({}, {"pdl": 1}, {"num_sms": 7})[i % 3]
            fp8 = i % 2 == 0 and form != INDICES and problem.weights.name == "mxfp4"
            few, call = problem.prepared(self.tested, "cuda", expected_m=FEW, **options)
            many, other = problem.prepared(self.tested, "cuda", expected_m=MANY, fp8=fp8, **options)
            call(), other()
            if not torch.equal(few.view(torch.int16), many.view(torch.int16)):
                raise AssertionError(f"{problem}: kernels differ")
        return {"cases": self.options.shapes}

    def four_bit_repeat(self):
        """The same bits each time, in a graph, too."""
        for name, form, rows in itertools.product(FORMATS, (MASKED, OFFSETS), (FEW, MANY)):
            problem = Problem(self.tested, self.random, name, form, 60 if rows == FEW else 600)
            memory, call = problem.prepared(self.tested, "cuda", pdl=1, expected_m=rows)
            memory.view(torch.uint8).fill_(CANARY)
            self.repeated_by_graph([(str(problem), memory, call)])
        return {"runs": self.RUNS}

    def small_four_bit(self):
        """Every kernel, with every form of groups: what the sanitizers run."""
        sizes = ((10, FEW), (150, FEW), (150, MANY), (400, MANY))
        for name, form, (m, rows) in itertools.product(FORMATS, FORMS, sizes):
            expected = {} if form == WHOLE else {"expected_m": rows}
            problem = Problem(self.tested, self.random, name, form, m)
            problem.prepared(self.tested, "cuda", num_sms=m % 7, **expected)[1]()
        torch.cuda.synchronize()
        return {"kernels": 2 * len(FORMATS)}

    def four_bit_speed(self):
        """Few rows of each group beside the FP8 product of the same weights, whose bits they have; and a record."""
        rows, late = [], []
        for (n, k), name in itertools.product(SPEED_LAYERS, FORMATS):
            two = Weights(self.tested, name, 2, n, k).to("cuda")
            for g in SPEED_GROUPS:
                weights = two.repeated(g)
                for m in SPEED_ROWS:
                    row = self.four_bit_row(weights, m)
                    rows.append(row)
                    if name == "mxfp4" and row["us"]["fp8"] < FLOOR * row["us"]["finegemm"]:
                        late.append(row)
        record = self.machine() | {
            "method": f"bench/gpu_timing.py: CUPTI, L2 flushed, median of {self.options.rounds}",
            "rows": rows,
        }
        write_record(self.options.out / f"four_bit_{self.card}.json", record)
        if late:
            raise TooSlow(f"are less than {FLOOR} times as fast as FP8: {late}")
        return {"rows": len(rows)}

    def four_bit_many_speed(self):
        """Many rows of each group: weights of 4 bits alone, their FP8 alone, and what is chosen of both; a record."""
        rows, late = [], []
        for (n, k), name in itertools.product(SPEED_LAYERS, FORMATS):
            two = Weights(self.tested, name, 2, n, k).to("cuda")
            for g, m in itertools.product(MANY_GROUPS, MANY_ROWS):
                us = self.forms_us(two.repeated(g), m)
                rows.append({"kind": name, "groups": g, "shape": [m, n, k], "us": us})
                if us["finegemm"] > NEVER_SLOWER * min(us["four_bit"], us["fp8"]):
                    late.append(rows[-1])
        record = self.machine() | {
            "method": f"bench/gpu_timing.py: CUPTI, L2 flushed, median of {self.options.rounds}",
            "rows": rows,
        }
        write_record(self.options.out / f"four_bit_many_{self.card}.json", record)
        if late:
            raise TooSlow(f"take over {NEVER_SLOWER} times as long as the better form: {late}")
        return {"rows": len(rows)}

    def forms_us(self, weights: Weights, m: int) -> dict:
        g, n, k = weights.g, weights.n, weights.k
        a = torch.randn(g, m, k, device="cuda", generator=self.generator).to(torch.float8_e4m3fn)
        sfa = (torch.rand(g, blocks(k), m, device="cuda", generator=self.generator) + 0.1).mT
        chosen, alone, wanted = (torch.zeros(g, m, n, dtype=torch.bfloat16, device="cuda") for _ in range(3))
        full = torch.full((g,), m, dtype=torch.int32, device="cuda")
        prepared = functools.partial(prepare_four_bit, self.tested, a, sfa, weights)
        fp8 = functools.partial(
            self.tested.grouped_gemm, a, sfa, weights.b, weights.sfb, wanted, full, MASKED, expected_m=m
        )
        calls = {
            "finegemm": prepared(chosen, full, MASKED, fp8=True, expected_m=m),
            "four_bit": prepared(alone, full, MASKED),
            "fp8": fp8,
        }
        us = median_times(calls, self.options.rounds)
        if weights.name == "mxfp4" and not (torch.equal(chosen, alone) and torch.equal(chosen, wanted)):
            raise AssertionError(f"forms differ in their bits: {g} groups, {m}x{n}x{k}")
        return {name: round(t, 2) for name, t in us.items()}

    def four_bit_row(self, weights: Weights, m: int) -> dict:
        g, n, k = weights.g, weights.n, weights.k
        a = torch.randn(g, m, k, device="cuda", generator=self.generator).to(torch.float8_e4m3fn)
        sfa = (torch.rand(g, blocks(k), m, device="cuda", generator=self.generator) + 0.1).mT
        d, wanted = (torch.zeros(g, m, n, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        full = torch.full((g,), m, dtype=torch.int32, device="cuda")
        call = prepare_four_bit(self.tested, a, sfa, weights, d, full, MASKED)
        fp8 = functools.partial(
            self.tested.grouped_gemm, a, sfa, weights.b, weights.sfb, wanted, full, MASKED, expected_m=m
        )
        us = median_times({"finegemm": call, "fp8": fp8}, self.options.rounds)
        if weights.name == "mxfp4" and not torch.equal(d, wanted):
            raise AssertionError(f"elements differ from those of FP8: {g} groups, {m}x{n}x{k}")
        bytes_of_b = weights.data.numel() + a.numel() + d.numel() * 2
        return {
            "kind": weights.name,
            "groups": g,
            "shape": [m, n, k],
            "us": {x: round(t, 2) for x, t in us.items()},
            "bound_us": round(bytes_of_b / self.bytes_per_us, 2),
        }
