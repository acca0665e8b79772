"""What the checks of gpu_check.py share: the library under test, the options, and sources of chance."""

import argparse
import functools
import pathlib
import random
import subprocess
import sys
import time

import torch

from cost_model import BYTES_PER_US
from gpu_cases import Guarded, differing, moved
from gpu_library import Library

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
from gpu_digest import digest

ROOT = pathlib.Path(__file__).resolve().parent.parent


class TooSlow(AssertionError):
    """A check of speed has looked at all, and missed its bar: nothing is wrong but the time."""


FACTS = "name,driver_version,clocks.sm,clocks.mem,power.limit"


def facts_at_work() -> dict[str, str]:
    """What nvidia-smi says of the GPU while it multiplies: the clocks of a GPU at rest are others."""
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    ask = ["nvidia-smi", f"--query-gpu={FACTS}", "--format=csv,noheader", f"--id={torch.cuda.current_device()}"]
    for _ in range(100):  # some tenths of a second: clocks rise within
        torch.mm(x, x)
    with subprocess.Popen(ask, stdout=subprocess.PIPE, text=True) as program:
        while program.poll() is None:
            for _ in range(10):
                torch.mm(x, x)
            torch.cuda.synchronize()
        answer = program.communicate()[0]
    return dict(zip(FACTS.split(","), (fact.strip() for fact in answer.split("\n")[0].split(",")), strict=False))


def row_of(kind: str, shape: list[int], times: dict[str, float], account: dict) -> dict:
    """A row of a record; `account`: what explain says of the problem."""
    us = {name: round(t, 2) for name, t in times.items()}
    return {"problem": account["line"], "kind": kind, "shape": shape, "us": us, "kernel": account["chosen"]["name"]}


class Fixture:
    RUNS = 200  # of what must give the same bits each time

    def __init__(self, arguments: argparse.Namespace):
        self.options = arguments
        self.tested = Library(arguments.tested)
        self.generator = torch.Generator("cuda")
        self.random = random.Random()
        self.reseed()

    def reseed(self) -> None:
        """What a check draws does not depend on those before it."""
        self.generator.manual_seed(1)
        self.random.seed(1)

    @functools.cached_property
    def facts(self) -> dict[str, str]:
        return facts_at_work()

    @property
    def card(self) -> str:
        """What records are named after: h200, say."""
        return self.facts["name"].split()[1].lower()

    @property
    def bytes_per_us(self) -> float:
        """What its memory moves."""
        return BYTES_PER_US[self.card]

    def usable(self, m, n, k):
        """Names of the kernels that can take a shape, the planner's choice first."""
        account = self.tested.explain(m, n, k)
        return [account["chosen"]["name"]] + [row["name"] for row in account["candidates"] if "rejected" not in row]

    def repeated(self, what: str, call, d: torch.Tensor, start: torch.Tensor | None = None, runs: int = 0) -> None:
        """Raises where so many runs do not all give the same bits; D is `start` before each, or all 7."""
        runs = runs or self.RUNS
        if count := moved(runs, call, d, start):
            raise AssertionError(f"{what}: {count} elements moved in {runs} runs")

    def repeated_by_graph(self, calls: list, wanted: list | None = None) -> list[torch.Tensor]:
        """Raises where many runs of each of `calls`, which are (what, D, call), do not all give the same bits, or a
        graph of all of them other bits than `wanted`, or than the runs where that is None. Returns the runs' D."""
        firsts = []
        for what, d, call in calls:
            self.repeated(what, call, d)
            firsts.append(d.clone())
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _, _, call in calls:
                call()
        for _ in range(2):  # memory that a graph takes for itself is there for each replay
            for _, d, _ in calls:
                d.fill_(Guarded.VALUE)  # as each run begins
            graph.replay()
        torch.cuda.synchronize()
        for (what, d, _), want, first in zip(calls, wanted or firsts, firsts, strict=True):
            if count := differing(d, first if want is None else want):
                raise AssertionError(f"{what}: {count} elements are others by way of a graph")
        return firsts

    def machine(self):
        """The head of a record."""
        commit = subprocess.run(
            ["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True
        ).stdout.strip()
        return {
            "machine": self.facts,
            "torch": torch.__version__,
            "finegemm": self.tested.version(),
            "commit": self.options.commit or commit,
            "date": time.strftime("%Y-%m-%d"),
            "digest": digest("gemm"),
        }
