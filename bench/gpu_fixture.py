"""What the checks of gpu_check.py share: the library under test, the options, and sources of chance."""

import argparse
import pathlib
import random
import subprocess
import sys
import time

import torch

from gpu_library import Library

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
from gpu_digest import digest

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Fixture:
    def __init__(self, arguments: argparse.Namespace):
        self.options = arguments
        self.tested = Library(arguments.tested)
        self.generator = torch.Generator("cuda").manual_seed(1)
        self.random = random.Random(1)

    def usable(self, m, n, k):
        """Names of the kernels that can take a shape, the planner's choice first."""
        account = self.tested.explain(m, n, k)
        return [account["chosen"]["name"]] + [row["name"] for row in account["candidates"] if "rejected" not in row]

    def machine(self):
        query = "name,driver_version,clocks.sm,clocks.mem,power.limit"
        facts = subprocess.run(
            ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True
        ).stdout
        commit = subprocess.run(
            ["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True
        ).stdout.strip()
        return {
            "machine": dict(zip(query.split(","), (f.strip() for f in facts.split("\n")[0].split(",")), strict=False)),
            "torch": torch.__version__,
            "finegemm": self.tested.version(),
            "commit": self.options.commit or commit,
            "date": time.strftime("%Y-%m-%d"),
            "digest": digest("gemm"),
        }
