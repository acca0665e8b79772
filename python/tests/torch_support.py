"""torch tensors for the tests. Importing it skips a test file where torch is missing or has no e4m3."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch, "float8_e4m3fn"):
    pytest.skip(f"torch {torch.__version__} has no float8_e4m3fn", allow_module_level=True)
import finegemm.torch as ft  # noqa: E402, F401


def hopper():
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


DEVICES = ("cpu", "cuda") if hopper() else ("cpu",)
needs_gpu = pytest.mark.skipif(not hopper(), reason="no Hopper GPU that torch can use")


def tensors(args, device="cpu"):
    a, sfa, b, sfb = args

    def as_torch(x):
        return torch.from_numpy(x.view(np.uint8)).view(torch.float8_e4m3fn)

    return [t.to(device) for t in (as_torch(a), torch.from_numpy(sfa), as_torch(b), torch.from_numpy(sfb))]


def as_doubles(t):
    return t.double().cpu().numpy()


def relative(out, want):
    """Distance, of the norm of what is wanted."""
    out, want = out.detach().double(), want.detach().double()
    return float((out - want).norm() / want.norm())


# A rounding to e4m3, 4 bits, in root mean square; the two operands of a product are independent, and half as much
# again is left for chance.
TOLERANCE = 1.5 * 2**0.5 * 0.024
