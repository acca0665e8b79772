"""Whether there is what timing on a GPU takes. Imports no torch by itself, so that help can be had without it."""

import sys


def why_not() -> str:
    """What is missing; empty when torch and a Hopper GPU are there."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if not (torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)):
        return "no Hopper GPU that torch can use"
    return ""


def require(program: str) -> None:
    """Ends the program where something is missing."""
    if reason := why_not():
        sys.exit(f"{program}: needs torch and a Hopper GPU: {reason}")
