"""Selections of libfinegemm.so through its C ABI, for torch tensors: what gpu_topk.py calls."""

import ctypes
import dataclasses
from typing import Any

import torch

from gpu_library import OFF, C, Library, integers, matrix, stack, stream_of

Outputs, Options = C["topk_outputs"], C["topk_options"]
BINS, MOST = 256, 2048
GUARD = -559038737  # 0xdeadbeef


@dataclasses.dataclass
class Selected:
    """What a selection writes, each [rows, any], or None."""

    indices: Any
    values: Any = None
    histogram: Any = None

    @classmethod
    def empty(cls, rows: int, k: int, device, values=False, histogram=False, padding: int = 0) -> "Selected":
        """In memory that is full of guards."""

        def memory(wanted: bool, cols: int) -> torch.Tensor | None:
            whole = torch.full((rows, cols + padding), GUARD, dtype=torch.int32, device=device)
            return whole[:, :cols] if wanted else None

        words = memory(values, k)
        return cls(memory(k > 0, k), None if words is None else words.view(torch.float32), memory(histogram, BINS))

    def bits(self) -> list[torch.Tensor]:
        """All memory, guards among it, on the CPU."""
        tensors = (t for t in (self.indices, self.values, self.histogram) if t is not None)
        return [t.as_strided((len(t), t.stride(0)), (t.stride(0), 1)).view(torch.int32).cpu() for t in tensors]

    def same(self, other: "Selected") -> bool:
        return all(torch.equal(x, y) for x, y in zip(self.bits(), other.bits(), strict=True))

    def struct(self) -> ctypes.Structure:
        def numbers(t):
            return matrix(None) if t is None else integers(t)

        nothing = matrix(None)
        nothing.rows = 0
        out = [numbers(self.indices), matrix(self.values), numbers(self.histogram)]
        return Outputs(*(nothing if x.data is None else x for x in out))


def given(t: torch.Tensor | None) -> ctypes.Structure:
    """Nothing for None, as selections have it."""
    m = matrix(t)
    m.rows = 0 if t is None else m.rows
    return m


def options(of: torch.Tensor, sorted=False, form=0, relu=0, num_sms=0, pdl=False) -> ctypes.Structure:
    return Options(ctypes.sizeof(Options), sorted, form, relu, OFF, num_sms, pdl, 0, stream_of(of))


def run(library: Library, name: str, args: ctypes.Structure, chosen: ctypes.Structure) -> None:
    call = getattr(library.c, f"finegemm_{name}")
    library.check(call(library.context, *library.by_reference(args, chosen)))


def bound(t: torch.Tensor | None) -> ctypes.Structure:
    return given(None) if t is None else integers(t[None])


def topk(library: Library, out: Selected, logits, starts, ends, **chosen) -> None:
    """logits [rows, cols]; starts and ends 1-D or None."""
    args = C["topk_args"](matrix(logits), bound(starts), bound(ends), out.struct())
    run(library, "topk", args, options(logits, **chosen))


def mqa_topk(library: Library, out: Selected, q, k, sfk, w, starts, ends, logits=None, **chosen) -> None:
    """As Library.mqa_logits; logits [S, Skv] or None."""
    rows = (matrix(k), matrix(sfk[None]), matrix(w), integers(starts[None]), integers(ends[None]))
    run(library, "mqa_topk", C["mqa_topk_args"](stack(q), *rows, out.struct(), given(logits)), options(q, **chosen))


def paged_mqa_topk(library: Library, out: Selected, q, cache, w, lengths, table, logits=None, keys=0, **chosen) -> None:
    """As Library.paged_mqa_logits; logits [B * T, any] or None."""
    numbers = (integers(t) for t in (lengths, table))
    args = C["paged_mqa_topk_args"](stack(q), matrix(cache), matrix(w), *numbers, keys, out.struct(), given(logits))
    run(library, "paged_mqa_topk", args, options(q, **chosen))
