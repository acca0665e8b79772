"""Tokens to the ranks of their experts and back under the names of DeepEP: what programs call as `deep_ep`.

docs/from-deepep.md says what is served and what differs. `python -m finegemm.deep_ep --install` makes `import deep_ep`
find this package. Needs torch.
"""

from typing import NoReturn

import torch

from finegemm._native import version as _version

from . import buffer, utils
from .buffer import Buffer
from .config import Config
from .missing import NAMES as _NAMES
from .utils import EventHandle, EventOverlap

__version__ = f"1.2.1+finegemm.{_version}"  # whose names and arguments these are, and whose work

topk_idx_t = torch.int64

__all__ = ["Buffer", "Config", "EventHandle", "EventOverlap", "__version__", "buffer", "topk_idx_t", "utils"]


def __getattr__(name: str) -> NoReturn:
    reason = _NAMES.get(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}" + (f": it {reason}" if reason else ""))
