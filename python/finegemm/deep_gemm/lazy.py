"""torch, imported when it is first used: the package, and all of it that takes no tensors, works without."""

import importlib
from typing import Any


class _Torch:
    def __getattr__(self, name: str) -> Any:
        found = self.__dict__[name] = getattr(importlib.import_module("torch"), name)
        return found


torch: Any = _Torch()
