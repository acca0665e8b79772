"""Modules: training form, which quantises weights when they have changed, and serving form, which keeps codes alone."""

import math
import weakref
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from finegemm.torch_operators import traced

from .autograd import QuantizedWeight, grouped_linear, linear, quantize_weight
from .functions import Integers
from .operators import BLOCK, Tensor

_optimizer_steps = 0


def _count_step(*_: Any) -> None:
    global _optimizer_steps
    _optimizer_steps += 1


# Optimizers may write to `weight.data`, which leaves the version of weight as it is.
register_optimizer_step_post_hook(_count_step)


class WeightCache:
    """A weight as codes, until it changes: the tensor, its version, its memory, or a step of any optimizer of torch.

    A parametrized module computes its weight anew each time, in the same memory perhaps.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._weight: Any = None
        self._key: Any = None
        self._quantized: QuantizedWeight | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return WeightCache, ()  # copies and files have the weight, which is enough

    def get(self, weight: Tensor, power_of_two_scales: bool, transposed: bool) -> QuantizedWeight | None:
        """None where a later run may find other weights under what was seen here: in graphs of torch or of CUDA."""
        if traced() or (weight.is_cuda and torch.cuda.is_current_stream_capturing()):
            return None
        version = 0 if weight.is_inference() else weight._version
        key = (version, weight.data_ptr(), weight.dtype, _optimizer_steps, power_of_two_scales)
        if self._quantized is None or self._weight() is not weight or self._key != key:
            self._quantized = quantize_weight(weight, power_of_two_scales=power_of_two_scales, transposed=transposed)
            self._weight, self._key = weakref.ref(weight), key
        elif transposed:
            self._quantized = self._quantized.with_transposed()
        return self._quantized


class _Cached:
    """What modules that cache their weight have. Anything that assigns the weight empties the cache.

    FSDP2 assigns a module the whole weight before it is used, and its shard afterwards: codes do not outlive the whole
    weight, whose version does not tell of what is gathered into it.
    """

    weight: Tensor
    power_of_two_scales: bool
    weight_cache: WeightCache

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "weight" and "weight_cache" in self.__dict__:
            self.weight_cache.clear()
        super().__setattr__(name, value)

    def _quantized(self, x: Tensor) -> QuantizedWeight | None:
        needs_transposed = torch.is_grad_enabled() and x.requires_grad
        return self.weight_cache.get(self.weight, self.power_of_two_scales, needs_transposed)


class Linear(_Cached, torch.nn.Linear):
    """torch.nn.Linear that multiplies in FP8, with gradients in FP8; weights stay as they are.

    Sizes are multiples of 16. The weight's codes are kept until it changes; `weight_cache.clear()` is for programs that
    change it where torch does not see it: in weight.data without an optimizer of torch, or by replaying a CUDA graph.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        power_of_two_scales: bool = False,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        self.power_of_two_scales, self.weight_cache = power_of_two_scales, WeightCache()

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in_features] to [..., out_features]."""
        return linear(
            *(x, self.weight, self.bias),
            power_of_two_scales=self.power_of_two_scales,
            quantized=self._quantized(x),
        )


class GroupedLinear(_Cached, torch.nn.Module):
    """Linear layers of experts, without bias. weight [groups, out_features, in_features]."""

    def __init__(
        self,
        groups: int,
        in_features: int,
        out_features: int,
        device: Any = None,
        dtype: Any = None,
        *,
        power_of_two_scales: bool = False,
    ) -> None:
        super().__init__()
        self.groups, self.in_features, self.out_features = groups, in_features, out_features
        self.weight = torch.nn.Parameter(torch.empty(groups, out_features, in_features, device=device, dtype=dtype))
        self.power_of_two_scales, self.weight_cache = power_of_two_scales, WeightCache()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Each expert as torch.nn.Linear does."""
        bound = 1 / math.sqrt(self.in_features)
        torch.nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, x: Tensor, offsets: Integers, *, all_rows: bool = False) -> Tensor:
        """x [M, in_features] to [M, out_features], by grouped_linear."""
        return grouped_linear(
            *(x, self.weight, offsets),
            all_rows=all_rows,
            power_of_two_scales=self.power_of_two_scales,
            quantized=self._quantized(x),
        )

    def extra_repr(self) -> str:
        return f"groups={self.groups}, in_features={self.in_features}, out_features={self.out_features}"


class _Served(torch.nn.Module):
    """Buffers have the names of FP8 checkpoints: weight (e4m3), weight_scale_inv (float32; it multiplies)."""

    weight: Tensor
    weight_scale_inv: Tensor

    def __init__(self, *shape: int, device: Any, power_of_two_scales: bool) -> None:
        super().__init__()
        *groups, n, k = shape
        scales = torch.empty(*groups, -(-n // BLOCK), -(-k // BLOCK), dtype=torch.float32, device=device)
        self.register_buffer("weight", torch.empty(shape, dtype=torch.float8_e4m3fn, device=device))
        self.register_buffer("weight_scale_inv", scales)
        self.in_features, self.out_features = k, n
        self.power_of_two_scales = power_of_two_scales

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Moves codes and scales, and leaves their types as they are, whatever `model.to(dtype)` asks for."""
        before = self.weight, self.weight_scale_inv
        super()._apply(fn, recurse)
        for name, x in zip(("weight", "weight_scale_inv"), before, strict=True):
            moved = getattr(self, name)
            if moved.dtype != x.dtype:
                setattr(self, name, x.to(moved.device))
        return self

    def set_weight(self, weight: Tensor) -> None:
        """Quantises weight, of bfloat16, float16 or float32."""
        codes, scales, _ = quantize_weight(weight, power_of_two_scales=self.power_of_two_scales, transposed=False)
        self.weight, self.weight_scale_inv = codes, scales

    def _quantized(self) -> QuantizedWeight:
        return QuantizedWeight(self.weight, self.weight_scale_inv, None)


class QuantizedLinear(_Served):
    """A linear layer that has its weight as codes: half the memory of bfloat16, and no gradient of it.

    Gradients go through to x, and to the bias. State: weight, weight_scale_inv and bias, as in FP8 checkpoints.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        power_of_two_scales: bool = False,
    ) -> None:
        super().__init__(out_features, in_features, device=device, power_of_two_scales=power_of_two_scales)
        self.bias = torch.nn.Parameter(torch.zeros(out_features, device=device, dtype=dtype)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in_features] to [..., out_features]."""
        return linear(*(x, None, self.bias), power_of_two_scales=self.power_of_two_scales, quantized=self._quantized())


class QuantizedGroupedLinear(_Served):
    """Linear layers of experts, as QuantizedLinear. weight [groups, out_features, in_features]."""

    def __init__(
        self, groups: int, in_features: int, out_features: int, device: Any = None, *, power_of_two_scales: bool = False
    ) -> None:
        super().__init__(groups, out_features, in_features, device=device, power_of_two_scales=power_of_two_scales)
        self.groups = groups

    def forward(self, x: Tensor, offsets: Integers, *, all_rows: bool = False) -> Tensor:
        """x [M, in_features] to [M, out_features], by grouped_linear."""
        return grouped_linear(
            *(x, None, offsets),
            all_rows=all_rows,
            power_of_two_scales=self.power_of_two_scales,
            quantized=self._quantized(),
        )
