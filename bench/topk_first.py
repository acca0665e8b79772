#!/usr/bin/env python3
"""Times selections from logits beside the radix selection that was recorded first, in one process on one GPU.

Usage: topk_first.py KERNELS --library FILE --output FILE --commit COMMIT

KERNELS is the folder kernels/ of the commit that has the first selection (git archive 8efd4557 kernels); NVRTC, which
comes with torch, compiles it. Each call is timed as gpu_topk.py times it: by events, the L2 cache flushed, each by
itself. The record has, for each case, the logits, both selections that run on the machine, and one call of today.
"""

import argparse
import ctypes
import functools
import pathlib
import time
from typing import Any

import torch

import topk_library
from gpu_fixture import facts_at_work
from gpu_library import Library
from gpu_topk import MOST, OF_PAGES, OF_ROWS, Topk, event_times
from records import geometric_mean, write_record
from topk_library import Selected

THREADS, SMEM_BYTES, HELD_COLUMNS, FEW_COLUMNS = 512, 91360, 16384, 2048  # of the first selection
SOURCE = """#include <finegemm/device/topk/select.cuh>
inline constexpr finegemm::TopkConfig kConfig{{{ctas}}};
extern "C" __global__ void __launch_bounds__(kConfig.threads(), 2)
first(const __grid_constant__ finegemm::TopkParams params) {{ finegemm::device::topk_select<kConfig>(params); }}
"""


class Params(ctypes.Structure):
    """TopkParams of the first selection."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("logits", "logits_stride", "starts", "ends", "ends_stride", "indices")),
        *((name, ctypes.c_uint64) for name in ("indices_stride", "values", "values_stride", "histogram", "bins")),
        *((name, ctypes.c_uint32) for name in ("rows", "width", "k", "each", "own_lengths", "sorted")),
    )


class Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint32 * 16))


class Launch(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("smem", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


def must(result: int, what: str) -> None:
    if result != 0:
        raise RuntimeError(f"{what}: {result}")


def compiled(kernels: pathlib.Path, ctas: int) -> bytes:
    """The cubin of the kernel whose clusters have so many CTAs."""
    found = sorted(pathlib.Path(torch.__file__).parents[1].glob("nvidia/*/lib/libnvrtc.so.1?"))
    nvrtc, program = ctypes.CDLL(str(found[-1])), ctypes.c_void_p()
    text = SOURCE.format(ctas=ctas).encode()
    must(nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"first.cu", 0, None, None), "nvrtcCreateProgram")
    options = [b"--gpu-architecture=sm_90a", b"--std=c++20", f"-I{kernels}".encode()]
    must(nvrtc.nvrtcCompileProgram(program, 3, (ctypes.c_char_p * 3)(*options)), "nvrtcCompileProgram")
    size = ctypes.c_size_t()
    must(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)), "nvrtcGetCUBINSize")
    cubin = ctypes.create_string_buffer(size.value)
    must(nvrtc.nvrtcGetCUBIN(program, cubin), "nvrtcGetCUBIN")
    return cubin.raw


class First:
    """The selection that was recorded first, as its library launched it."""

    def __init__(self, kernels: pathlib.Path) -> None:
        torch.zeros(1, device="cuda")  # makes the context current
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count
        self.kernels = {ctas: self.load(compiled(kernels, ctas)) for ctas in (1, 2, 4, 8)}

    def load(self, cubin: bytes) -> ctypes.c_void_p:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        must(self.driver.cuModuleLoadData(ctypes.byref(module), cubin), "cuModuleLoadData")
        must(self.driver.cuModuleGetFunction(ctypes.byref(function), module, b"first"), "cuModuleGetFunction")
        must(self.driver.cuFuncSetAttribute(function, 8, SMEM_BYTES), "cuFuncSetAttribute")
        return function

    def ctas(self, rows: int, width: int) -> int:
        ctas = 1
        while ctas < 8 and (width > ctas * HELD_COLUMNS or (rows * ctas <= self.sms and width > ctas * FEW_COLUMNS)):
            ctas *= 2
        return ctas

    def select(self, logits: torch.Tensor, ends: torch.Tensor, out: Selected) -> None:
        (rows, width), indices = logits.shape, out.indices
        of_logits = (logits.data_ptr(), logits.stride(0), 0, ends.data_ptr(), ends.stride(0))
        of_indices = (indices.data_ptr(), indices.stride(0), 0, 0, 0, 0)
        params = Params(*of_logits, *of_indices, rows, width, MOST, 1, 1, 0)
        ctas = self.ctas(rows, width)
        cluster = Attribute(4, 0, (ctypes.c_uint32 * 16)(ctas, 1, 1))
        stream = torch.cuda.current_stream().cuda_stream
        shape = ((ctypes.c_uint * 3)(rows * ctas, 1, 1), (ctypes.c_uint * 3)(THREADS, 1, 1))
        launch = Launch(*shape, SMEM_BYTES, stream, ctypes.addressof(cluster), 1 if ctas > 1 else 0)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(params))
        kernel = self.kernels[ctas]
        must(self.driver.cuLaunchKernelEx(ctypes.byref(launch), kernel, arguments, None), "cuLaunchKernelEx")


def row_of(library: Library, first: First, kind: str, shape: tuple[int, int], operands: tuple) -> dict:
    logits_of: Any = library.mqa_logits if kind == "rows" else library.paged_mqa_logits
    select: Any = topk_library.mqa_topk if kind == "rows" else topk_library.paged_mqa_topk
    ends = operands[5] if kind == "rows" else operands[3][:, 0]
    logits, found = torch.empty(*shape, device="cuda"), [Selected.empty(shape[0], MOST, "cuda") for _ in range(2)]
    best = (torch.empty(shape[0], MOST, device="cuda"), torch.empty(shape[0], MOST, dtype=torch.int64, device="cuda"))
    calls = {
        "logits": functools.partial(logits_of, *operands, logits),
        "first": functools.partial(first.select, logits, ends, found[0]),
        "torch.topk": functools.partial(torch.topk, logits, MOST, dim=1, sorted=False, out=best),
        "mqa_topk": functools.partial(select, library, found[1], *operands),
    }
    us = event_times(calls, 3 if logits.numel() > 1 << 28 else 9)
    if not torch.equal(found[0].indices, found[1].indices):
        raise AssertionError(f"the first selection and today's differ: {kind} {shape}")
    times = (us["logits"] + min(us["first"], us["torch.topk"])) / us["mqa_topk"]
    shown = {name: round(t, 1) for name, t in us.items()}
    return {"kind": f"mqa_topk of {kind}", "shape": list(shape), "us": shown, "times": round(times, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", type=pathlib.Path)
    parser.add_argument("--library", required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--commit", required=True)
    options = parser.parse_args()
    library, first = Library(options.library), First(options.kernels)
    of: Any = argparse.Namespace(generator=torch.Generator(device="cuda").manual_seed(5))
    rows = [row_of(library, first, "rows", shape, Topk.queries(of, *shape)) for shape in OF_ROWS]
    rows += [row_of(library, first, "pages", shape, Topk.pages(of, *shape)) for shape in OF_PAGES]
    times = [row["times"] for row in rows]
    method = (
        "bench/topk_first.py: events, L2 flushed, each call by itself, medians of 9, of 3 of large logits; "
        "times: the logits and the faster of both selections, by one call of mqa_topk"
    )
    record = {"machine": facts_at_work(), "torch": torch.__version__, "commit": options.commit}
    record |= {"date": time.strftime("%Y-%m-%d"), "method": method, "k": MOST}
    write_record(options.output, record | {"times": round(geometric_mean(times), 3), "rows": rows})
    print(f"{geometric_mean(times):.3f} in the mean, {min(times):.3f} at least")


if __name__ == "__main__":
    main()
