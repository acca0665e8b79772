"""What gpu_check.py checks of products whose D is their SwiGLU, quantised."""

import ctypes
import dataclasses
import itertools
from collections.abc import Callable
from functools import partial

import torch

from gpu_cases import E4M3, LAYOUTS, blocks, operands
from gpu_columns import canaries
from gpu_fixture import Fixture, TooSlow
from gpu_grouped import FORMS, capacity_of
from gpu_grouped_cases import Problem, Rows, masked_rows, random_launch, random_rows, small_rows
from gpu_layer import captured, replay_us
from gpu_library import INDICES, MASKED, ON, C, Library, stack
from records import write_record

RULES: tuple[dict[str, float], ...] = (
    {},
    {"gate_limit": 7.0, "gate_alpha": 1.702, "up_offset": 1.0},
    {"gate_limit": 0.5},
)


@dataclasses.dataclass
class GatedEpilogue:
    """Scales of D and numbers of its rows, stacked as D is, and what else finegemm_epilogue has of the rule."""

    sfd: torch.Tensor
    row_weights: torch.Tensor | None
    rule: dict[str, float]

    def struct(self) -> ctypes.Structure:
        given = {} if self.row_weights is None else {"row_weights": stack(self.row_weights)}
        return C["epilogue"](ctypes.sizeof(C["epilogue"]), 1.0, sfd=stack(self.sfd), **given, **self.rule)


class GatedProduct:
    """Random operands of one product, or of groups of rows, and all that a product writes, with canaries around it."""

    def __init__(self, check: Fixture, rows: Rows | None, m: int, pairs: int, k: int, layout: str):
        random, generator = check.random, check.generator
        self.form, self.pairs, self.k = FORMS[rows.form] if rows else "one product", pairs, k
        n, self.between = 2 * pairs, random.random() < 0.5
        product = torch.bfloat16 if self.between else torch.float32
        self.problem: Problem | None = None
        if rows:
            gap, padding = random.choice((0, 1, 5)), random.choice((0, 16, 112))
            self.problem = Problem(rows, n, k, layout, generator, padding, gap, output=product)
            self.owned, self.product = self.problem.owned, self.problem.stacked[2]
        else:
            self.x = operands(m, n, k, layout, generator)
            self.owned = torch.ones(1, m, dtype=torch.bool, device="cuda")
            self.product = torch.empty(1, m, n, dtype=product, device="cuda")
        self.masked = rows is not None and rows.form == MASKED
        self.filled = rows is not None and rows.form == INDICES
        self.stacks, self.m = self.owned.shape
        self.weights = None
        if random.random() < 0.5:
            self.weights = torch.randn(self.stacks, self.m, device="cuda", generator=generator)
        self.rule = dict(random.choice(RULES))
        self.power_of_two, self.columns = random.random() < 0.5, random.random() < 0.7
        self.edge = 16 * random.choice((0, 1, 3))
        self.clear()

    def clear(self) -> None:
        """Memory of D and of its scales anew, each byte a canary."""
        self.memory = self.untouched()

    def untouched(self) -> dict[str, torch.Tensor]:
        rows, across = self.stacks * (self.m + 1), blocks(self.pairs) + 1
        return {
            "d": canaries(rows, self.pairs + self.edge, E4M3, "cuda"),
            "sfd": canaries(rows, across, torch.float32, "cuda"),
        }

    def written(self, memory: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """D and its scales within `memory`, stacked."""
        d = memory["d"].view(self.stacks, self.m + 1, -1)[:, : self.m, : self.pairs]
        if self.columns:
            sfd = memory["sfd"].view(self.stacks, -1, self.m + 1).mT
        else:
            sfd = memory["sfd"].view(self.stacks, self.m + 1, -1)
        return d, sfd[:, : self.m, : blocks(self.pairs)]

    def account(self, library: Library) -> dict:
        if self.problem is None:
            return library.explain(self.m, 2 * self.pairs, self.k, gated=1)
        rows = self.problem.rows
        of = {"groups": rows.groups, "alignment": rows.planned_alignment}
        return library.explain(rows.m * rows.stacks, 2 * self.pairs, self.k, gated=1, **of)

    def names(self, library: Library) -> list[str]:
        account = self.account(library)
        return [account["chosen"]["name"], *(x["name"] for x in account["candidates"] if "rejected" not in x)]

    def prepare(self, library: Library, **options):
        """A call that writes `memory`."""
        d, sfd = self.written(self.memory)
        weights = None if self.weights is None else self.weights[..., None]
        if not self.masked:
            d, sfd, weights = (None if t is None else t[0] for t in (d, sfd, weights))
        rule = self.rule | {"bf16_between": int(self.between), "power_of_two_sfd": int(self.power_of_two)}
        epilogue = GatedEpilogue(sfd, weights, rule)
        if self.problem is None:
            return library.prepare(*self.x, d, epilogue=epilogue, **options)
        p = self.problem
        p.d, product = d, p.d
        call = p.prepare(library, epilogue=epilogue, **options)
        p.d = product
        return call

    def wanted(self, library: Library) -> dict[str, torch.Tensor]:
        """What `memory` holds after a product, and its SwiGLU with quantisation in a call of its own."""
        if self.problem is None:
            library.gemm(*self.x, self.product[0], batch_invariant=ON)
        else:
            self.problem.prepare(library)()
        q, scales = (torch.empty(self.stacks, self.m, n, device="cuda") for n in (self.pairs, blocks(self.pairs)))
        q = q.to(E4M3)
        library.swiglu_quantize(
            self.product,
            q,
            scales,
            weights=self.weights,
            to_bf16=self.between,
            power_of_two_scales=self.power_of_two,
            **self.rule,
        )
        memory = self.untouched()
        d, sfd = self.written(memory)
        if self.filled:  # rows of no group are zeros with scales of 1
            d.view(torch.uint8)[~self.owned], sfd[~self.owned] = 0, 1
        d.view(torch.uint8)[self.owned] = q.view(torch.uint8)[self.owned]
        sfd[self.owned] = scales[self.owned]
        return memory

    def text(self) -> str:
        what = f"{self.form}, {self.stacks}x{self.m}x{2 * self.pairs}x{self.k}, {self.rule}, weights "
        return f"{what}{self.weights is not None}, bf16 between {self.between}, columns {self.columns}"


class Gated(Fixture):
    def random_gated(self, form: int | None) -> GatedProduct:
        rows = None if form is None else random_rows(self.random, form)
        small = rows is not None and rows.groups > 100  # weights of all of them shall fit
        m = self.random.choice((1, 2, 7, 33, 64, 65, 128, 129, 200, 257, 500, 777))
        pairs = 128 * self.random.randint(1, 2 if small else 12)
        k = 16 * self.random.randint(1, 20 if small else 100)
        return GatedProduct(self, rows, m, pairs, k, self.random.choice(LAYOUTS))

    def gated_compare(self, p: GatedProduct, name: str, **options) -> None:
        p.clear()
        p.prepare(self.tested, config=name, **options)()
        for what, want in p.wanted(self.tested).items():
            if count := int((p.memory[what].view(torch.uint8) != want.view(torch.uint8)).sum()):
                raise AssertionError(f"{name}, {p.text()}, {options}: {count} bytes of {what} differ")

    def gated(self):
        """Bits of a product, its SwiGLU and quantisation apart, in every form of groups; no other byte is written."""
        kernels, forms = set(), itertools.cycle((None, *FORMS))
        count = max(10, self.options.shapes // 4)
        for _ in range(count):
            p = self.random_gated(next(forms))
            names = p.names(self.tested)
            for name in {names[0], self.random.choice(names)}:
                self.gated_compare(p, name, **random_launch(self.random))
                kernels.add(name)
        return {"problems": count, "kernels": len(kernels)}

    def gated_calls(self, m: int, pairs: int, k: int) -> list:
        """(kernel, bytes of D, a call) for every kernel that quantises its SwiGLU."""
        calls = []
        for rows in (None, *small_rows()):
            p = GatedProduct(self, rows, m, pairs, k, "mn")
            for name in dict.fromkeys(p.names(self.tested)):
                p.clear()
                calls.append((name, p.memory["d"].view(torch.uint8), p.prepare(self.tested, config=name)))
        return calls

    def gated_repeat(self):
        """200 runs of every kernel, and a replayed graph of all, give the same bits."""
        calls = self.gated_calls(640, 768, 2048)
        self.repeated_by_graph(calls)
        return {"kernels": len(calls), "runs": self.RUNS}

    def small_gated(self):
        """Every kernel that quantises its SwiGLU once, on a small problem: what the sanitizers run."""
        for name, _, call in self.gated_calls(257, 256, 512):
            print(name, flush=True)
            call()

    # Groups and expected rows of each, or rows of one product; the time of both calls over that of one, at least.
    GATED_ROWS: tuple[tuple[int, int, float], ...] = ((1, 65_536, 1.03), (6, 20, 1.08), (32, 20, 1.01))
    GATED_PAIRS, GATED_K = 2048, 7168

    def gated_speed(self):
        """One call beside two, a product and its SwiGLU with quantisation, in graphs."""
        rows: list[dict] = []
        short: list[dict] = []
        for groups, typical, least in self.GATED_ROWS:
            us = replay_us({of: captured(call) for of, call in self.both_ways(groups, typical).items()}, 41)
            over = round(min(us["two"], us["two, pdl"]) / us["one"], 3)
            rows.append({"groups": groups, "rows": typical, "us": us, "two of one": over, "least": least})
            print(rows[-1], flush=True)
            if over < least:
                short.append(rows[-1])
        shape = f"{2 * self.GATED_PAIRS} columns, K {self.GATED_K}"
        method = f"{shape}: replays of CUDA graphs between events, L2 flushed, in turn, medians of 41"
        write_record(self.options.out / f"gated_{self.card}.json", self.machine() | {"method": method, "rows": rows})
        if short:
            raise TooSlow(f"one call is not so much faster than two: {short}")
        return {"rows": len(rows)}

    def both_ways(self, groups: int, typical: int) -> dict:
        """Calls of one product where there is one group, else of masked ones with 0.7 to 1.3 of these rows."""
        pairs, k = self.GATED_PAIRS, self.GATED_K
        prepare: Callable = self.tested.prepare
        numbers: list = []
        told: dict = {}
        form: dict = {}
        if groups == 1:
            a, sfa, b, sfb = operands(typical, 2 * pairs, k, "mn", self.generator)
        else:
            sizes = [int(typical * self.random.uniform(0.7, 1.3)) for _ in range(groups)]
            p = Problem(masked_rows(sizes, capacity_of(typical)), 2 * pairs, k, "mn", self.generator)
            a, sfa, b, sfb = p.a, p.sfa, p.b, p.sfb
            numbers, told, prepare = [p.numbers, MASKED], {"expected_m": typical}, self.tested.prepare_grouped
            form = {"groups": p.numbers, "form": MASKED}

        def empty(cols: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.empty(*a.shape[:-1], cols, dtype=dtype, device="cuda")

        def scales() -> torch.Tensor:
            return torch.empty(*a.shape[:-2], blocks(pairs), a.shape[-2], device="cuda").mT

        q, sfd, between, z, of_z = (
            empty(pairs, E4M3),
            scales(),
            empty(2 * pairs, torch.bfloat16),
            empty(pairs, E4M3),
            scales(),
        )
        one = prepare(a, sfa, b, sfb, q, *numbers, epilogue=GatedEpilogue(sfd, None, {"bf16_between": 1}), **told)
        calls = {"one": one}
        for name, pdl in (("two", False), ("two, pdl", True)):
            product = prepare(a, sfa, b, sfb, between, *numbers, pdl=pdl, **told)
            activate = partial(self.tested.swiglu_quantize, between, z, of_z, to_bf16=True, pdl=pdl, **form)
            calls[name] = lambda steps=(product, activate): [step() for step in steps]
        return calls
