"""What gpu_check.py checks of products whose D is in heads with a gap in each that is not written."""

import itertools

import torch

from gpu_cases import Guarded, differing, operands
from gpu_fixture import Fixture
from gpu_grouped_cases import random_launch
from gpu_library import DTYPES, ON, Epilogue
from gpu_unscaled_cases import LAYOUTS, NAMES, fields_of, normal

# Types of A and B, and their layouts; of FP8 those of scales.
KINDS = ((torch.float8_e4m3fn, "row"), (torch.float8_e4m3fn, "mn"), *itertools.product(NAMES, LAYOUTS))


class HeadProduct:
    """A and B of a type and a layout, and where the columns of their product lie in D."""

    def __init__(
        self, kind: tuple[torch.dtype, str], m: int, heads: int, left: int, gap: int, right: int, k: int, generator
    ):
        (of, layout), self.m, self.n, self.k = kind, m, heads * (left + right), k
        self.what, self.d_type, self.fields = f"{layout} of {of}", torch.bfloat16, {}
        if of in NAMES:
            a, b = (
                normal(generator, of, rows, k, mn_major=mn_major)
                for rows, mn_major in zip((m, self.n), LAYOUTS[layout], strict=True)
            )
            self.x, self.d_type, self.fields = (a, None, b, None), of, {"dtype": DTYPES[of]} | fields_of(layout)
        else:
            self.x = operands(m, self.n, k, layout, generator)
        self.epilogue = Epilogue(1.0, 0.0, None, None, left, gap, right)
        columns = torch.arange(heads * (left + gap + right), device="cuda").view(heads, -1)
        self.gaps = columns[:, left : left + gap].reshape(-1)
        self.columns = torch.cat((columns[:, :left], columns[:, left + gap :]), 1).reshape(-1)
        self.width = columns.numel()

    def names(self, library) -> list:
        account = library.explain(self.m, self.n, self.k, head_gaps=1, **self.fields)
        return [account["chosen"]["name"], *(x["name"] for x in account["candidates"] if "rejected" not in x)]

    def text(self) -> str:
        e = self.epilogue
        return f"{self.m}x{self.n}x{self.k}, heads of {e.head_left} + {e.head_gap} + {e.head_right}, {self.what}"


class Heads(Fixture):
    def random_heads(self) -> HeadProduct:
        m = self.random.choice((1, 2, 7, 33, 64, 65, 128, 129, 200, 257, 500, 777))
        left, gap, right = (8 * self.random.randint(low, 24) for low in (0, 1, 1))
        heads, k = self.random.randint(1, 12), 16 * self.random.randint(1, 120)
        return HeadProduct(self.random.choice(KINDS), m, heads, left, gap, right, k, self.generator)

    def plain(self, p: HeadProduct) -> torch.Tensor:
        d = torch.empty(p.m, p.n, device="cuda", dtype=p.d_type)
        self.tested.gemm(*p.x, d, batch_invariant=ON)  # by a kernel that does not divide K, as those with gaps
        return d

    def head_gaps(self):
        """Bits of the product without gaps; gaps and what is around D stay as they are."""
        kernels = set()
        for _ in range(max(2, self.options.shapes // 5)):
            p = self.random_heads()
            want, names = self.plain(p), p.names(self.tested)
            for name in {names[0], self.random.choice(names)}:
                out = Guarded(p.m, p.width, dtype=p.d_type)
                launch = random_launch(self.random)
                self.tested.gemm(*p.x, out.d, config=name, epilogue=p.epilogue, **launch)
                wrong = differing(out.d[:, p.columns].contiguous(), want)
                touched = int((out.d[:, p.gaps] != Guarded.VALUE).sum())
                if wrong or touched or not out.intact():
                    raise AssertionError(
                        f"{name}, {p.text()}, {launch}: {wrong} bits differ, {touched} of gaps written"
                    )
                kernels.add(name)
        return {"kernels": len(kernels)}

    def head_calls(self, m: int, heads: int, k: int) -> list:
        """(kernel, D, a call) for every kernel that leaves gaps."""
        calls = []
        for kind in KINDS:
            p = HeadProduct(kind, m, heads, 72, 40, 64, k, self.generator)
            for name in dict.fromkeys(p.names(self.tested)):
                d = torch.zeros(m, p.width, device="cuda", dtype=p.d_type)
                calls.append((name, d, self.tested.prepare(*p.x, d, config=name, epilogue=p.epilogue)))
        return calls

    def head_gaps_repeat(self):
        """200 runs of every kernel, and a replayed graph of all, give the same bits."""
        calls = self.head_calls(640, 12, 2048)
        self.repeated_by_graph(calls)
        return {"kernels": len(calls), "runs": self.RUNS}

    def small_head_gaps(self):
        """Every kernel that leaves gaps once, on a small problem: what the sanitizers run."""
        for name, _, call in self.head_calls(257, 3, 512):
            print(name, flush=True)
            call()
