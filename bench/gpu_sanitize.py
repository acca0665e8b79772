"""What gpu_check.py runs under compute-sanitizer: every kernel on a small problem."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys

import torch

from gpu_affine import Affine
from gpu_cases import CODES, LAYOUTS
from gpu_columns import Columns
from gpu_dense import Dense
from gpu_digest import KERNELS, operation_of
from gpu_einsum import Einsum
from gpu_fixture import ROOT
from gpu_four_bit import FourBit
from gpu_gated import Gated
from gpu_grouped_stress import GroupedStress
from gpu_heads import Heads
from gpu_indexed import Indexed
from gpu_mqa_many import ManyLogits
from gpu_mx import Mx
from gpu_prenorm import Prenorm
from gpu_ranks import Ranks
from gpu_reencode import Reencode
from gpu_routing import Routing
from gpu_scales import Scales
from gpu_small_layers import SmallLayers
from gpu_swiglu import Swiglu
from gpu_timing import launched
from gpu_topk import Topk
from gpu_unscaled import Unscaled
from gpu_weights import Weights
from gpu_wgrad import Wgrad
from gpu_whole_rows import WholeRows

PROGRAM = str(ROOT / "bench/gpu_check.py")


class Sanitized(
    Dense,
    Wgrad,
    GroupedStress,
    Unscaled,
    Affine,
    Heads,
    Gated,
    Indexed,
    Einsum,
    Mx,
    Columns,
    WholeRows,
    Reencode,
    Weights,
    Scales,
    ManyLogits,
    Prenorm,
    Swiglu,
    FourBit,
    Routing,
    Ranks,
    SmallLayers,
    Topk,
):
    def memcheck(self):
        """compute-sanitizer's memcheck over small shapes of every GEMM kernel."""
        return self.memchecked("small")

    def racecheck(self):
        """Its racecheck, of the library whose kernels are built for it (FINEGEMM_RACECHECK)."""
        return self.racechecked("small")

    def quantize_memcheck(self):
        return self.memchecked("small_quantize")

    def quantize_racecheck(self):
        return self.racechecked("small_quantize")

    def scale_layout_memcheck(self):
        return self.memchecked("small_scale_layout")

    def scale_layout_racecheck(self):
        return self.racechecked("small_scale_layout")

    def mqa_memcheck(self):
        return self.memchecked("small_mqa")

    def mqa_racecheck(self):
        return self.racechecked("small_mqa")

    def prenorm_memcheck(self):
        return self.memchecked("small_prenorm")

    def prenorm_racecheck(self):
        return self.racechecked("small_prenorm")

    def swiglu_memcheck(self):
        return self.memchecked("small_swiglu")

    def swiglu_racecheck(self):
        return self.racechecked("small_swiglu")

    def four_bit_memcheck(self):
        return self.memchecked("small_four_bit")

    def four_bit_racecheck(self):
        return self.racechecked("small_four_bit")

    def four_bit_kernels(self):
        return self.covered("four_bit", self.small_four_bit)

    def kernels(self):
        """What the sanitizers run launches every kernel of the pack that multiplies; layers of few choices have some of
        their own."""
        return self.covered("gemm", lambda: (self.small(), self.small_moe()))

    def quantize_kernels(self):
        return self.covered("quantize", self.small_quantize)

    def scale_layout_kernels(self):
        return self.covered("scale_layout", self.small_scale_layout)

    def mqa_kernels(self):
        return self.covered("mqa", self.small_mqa)

    def prenorm_kernels(self):
        return self.covered("prenorm", self.small_prenorm)

    def swiglu_kernels(self):
        return self.covered("swiglu", lambda: (self.small_swiglu(), self.small_moe()))

    def moe_memcheck(self):
        return self.memchecked("small_moe")

    def moe_racecheck(self):
        return self.racechecked("small_moe")

    def ep_memcheck(self):
        return self.memchecked("small_ep")

    def ep_racecheck(self):
        return self.racechecked("small_ep")

    def ep_kernels(self):
        return self.covered("ep", self.small_ep)

    def routing_memcheck(self):
        return self.memchecked("small_routing")

    def routing_racecheck(self):
        return self.racechecked("small_routing")

    def routing_kernels(self):
        return self.covered("routing", lambda: (self.small_routing(), self.small_moe()))

    def topk_memcheck(self):
        return self.memchecked("small_topk")

    def topk_racecheck(self):
        return self.racechecked("small_topk")

    def topk_kernels(self):
        return self.covered("topk", self.small_topk)

    def covered(self, operation: str, check):
        wanted = {
            name
            for kernels in json.loads(KERNELS.read_text()).values()
            for name in kernels
            if operation_of(name) == operation
        }
        if missing := sorted(wanted - launched(check)):
            raise AssertionError(f"{len(missing)} kernels of {len(wanted)} were not launched: {', '.join(missing)}")
        return {"kernels": len(wanted)}

    def memchecked(self, check: str):
        return self.sanitized("memcheck", self.options.tested, "ERROR SUMMARY: 0 errors", check)

    def racechecked(self, check: str):
        good = "0 hazards displayed (0 errors, 0 warnings)"
        return self.sanitized("racecheck", self.options.racecheck_library, good, check)

    def sanitized(self, tool: str, library: str, good: str, check: str):
        program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        command = [program, "--tool", tool, "--error-exitcode", "9", "--kernel-name", "kns=FineGEMM"]  # not torch's
        command += ["--report-api-errors", "no"] if check == "small_ep" else []  # NCCL asks what it may not have
        command += [sys.executable, PROGRAM, "--library", library, "--only", check]
        # With torch's cache an access past the end would fall into the same block of memory.
        environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=400, env=environment)
        except subprocess.TimeoutExpired as e:
            last = (e.stdout or b"").decode()[-500:]  # names the kernel
            raise AssertionError(f"{tool} has not ended after {e.timeout} s: {last}") from e
        if result.returncode or good not in result.stdout + result.stderr:
            said = [x for x in (result.stdout + result.stderr).splitlines() if "Host Frame" not in x]
            first = next((i for i, x in enumerate(said) if x.startswith("========= ") and "SANITIZER" not in x), -20)
            raise AssertionError(f"{tool}: " + "\n".join(said[max(0, first - 2) :][:20]))  # with the kernel before
        return {"errors": 0}

    def small(self):
        """Every GEMM kernel once, on a small shape: what the sanitizers run."""
        names = [row["name"] for row in self.tested.explain(4096, 4096, 4096)["candidates"]]
        for name in names:
            found = re.search(r"splitK(\d+)", name)
            stages = int(re.findall(r"s(\d+)w", name)[0])
            blocks = max(12, 4 * (stages // 4 + 1))  # to go around the ring
            long_enough = 128 * blocks * (int(found[1]) if found else 1)
            for k, layout in ((128 * blocks + 16, self.random.choice(LAYOUTS)), (long_enough, "row")):
                sizes = itertools.product((136, 392), (5, 70, 257, 300))  # two wide tiles for those that share A
                m, n = next((m, n) for n, m in sizes if name in self.usable(m, n, k))
                print(f"{m}x{n}x{k} {name}", flush=True)
                self.one_shape(m, n, k, layout, name, rows=4)
        self.small_one_d_one_d()
        self.small_grouped()
        self.small_unscaled()
        self.small_affine()
        self.small_head_gaps()
        self.small_gated()
        self.small_indexed()
        self.small_einsum()
        self.small_types()
        self.small_mx()
        torch.cuda.synchronize()
        return {"kernels": len(names)}

    def small_quantize(self):
        """Every quantisation kernel once."""
        kernels = 0
        for dtype, codes in itertools.product((torch.bfloat16, torch.float16, torch.float32), (*CODES, torch.int8)):
            x = torch.randn(130, 144, device="cuda").to(dtype)
            for kind, shape in (("rows", (130, 2)), ("blocks", (2, 2))):
                q = torch.empty(130, 144, dtype=codes, device="cuda")
                self.tested.quantize(kind, x, q, torch.empty(*shape, device="cuda"))
                kernels += 1
        self.small_quantize_weights()
        self.small_quantize_columns()
        self.small_whole_rows()
        self.small_reencode()
        torch.cuda.synchronize()
        return {"kernels": kernels + 3 * len(CODES) + 9 + 2}
