"""torch, or None: what takes no tensors works where it is not installed."""

try:
    import torch
except ImportError:
    torch = None

__all__ = ["torch"]
