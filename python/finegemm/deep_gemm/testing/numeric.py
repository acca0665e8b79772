"""How far results are apart, and how many bytes tensors have."""

from typing import Any

from finegemm.torch_module import torch

from ..operands import Tensor


def calc_diff(x: Tensor, y: Tensor) -> Any:
    """1 - 2 x·y / (x·x + y·y) in float64: 0 for equal tensors, NaN if either has one."""
    x, y = x.double(), y.double()
    both = (x * x + y * y).sum()
    if both == 0:
        return 0.0
    return 1 - 2 * (x * y).sum() / both


def count_bytes(*tensors: Any) -> int:
    """Of all tensors, in tuples and lists too; None has none."""
    return sum(
        count_bytes(*t) if isinstance(t, tuple | list) else t.numel() * t.element_size()
        for t in tensors
        if t is not None
    )


def assert_bitwise_equal(x: Tensor, y: Tensor, label: str = "") -> None:
    """Shapes, dtypes and bytes; the error names the first byte that differs."""
    where = f"{label}: " if label else ""
    assert x.shape == y.shape, f"{where}shapes {list(x.shape)} and {list(y.shape)} differ"
    assert x.dtype == y.dtype, f"{where}dtypes {x.dtype} and {y.dtype} differ"
    bytes_of_x, bytes_of_y = (t.contiguous().reshape(-1).view(torch.uint8) for t in (x, y))
    differ = bytes_of_x != bytes_of_y
    if not differ.any():
        return
    byte = int(differ.int().argmax())
    element = byte // x.element_size()
    place = [int(i) for i in torch.unravel_index(torch.tensor(element), x.shape)] if x.dim() else []
    values = [t.reshape(-1)[element].item() for t in (x, y)]
    raise AssertionError(
        f"{where}{int(differ.sum())} bytes differ, first byte {byte}, of element {element} at {place}: {values[0]!r} "
        f"and {values[1]!r}"
    )
