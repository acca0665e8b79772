"""Whole models: their linear layers in FP8, and weights of FP8 checkpoints in these."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

import finegemm
from finegemm.errors import InvalidArgument

from .functions import dequantize
from .layers import GroupedLinear, Linear, QuantizedGroupedLinear, QuantizedLinear
from .operators import K_MULTIPLE, Tensor

Module = Any  # a torch.nn.Module
Filter = Callable[[str, Module], bool]
Layers = (Linear, GroupedLinear, QuantizedLinear, QuantizedGroupedLinear)


def _replaced(
    model: Module, filter: Filter | None, kinds: tuple[type, ...], make: Callable[[Module], Module]
) -> Module:
    """The model with `make` of its modules of exactly these kinds, in place; a module that occurs twice stays one."""
    made: dict[int, Module] = {}
    for name, module in list(model.named_modules(remove_duplicate=False)):
        sizes = (getattr(module, "in_features", 0), getattr(module, "out_features", 0))
        if type(module) not in kinds or any(size % K_MULTIPLE for size in sizes):
            continue
        if filter is not None and not filter(name, module):
            continue
        if id(module) not in made:
            made[id(module)] = make(module).train(module.training)
        if name == "":
            return made[id(module)]
        owner, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(owner), attribute, made[id(module)])
    return model


def convert_to_training(model: Module, filter: Filter | None = None, *, power_of_two_scales: bool = False) -> Module:
    """The model, whose torch.nn.Linear are finegemm.torch.Linear from here on. Returns it.

    In place; the parameters stay the ones that they are, so that an optimizer made before goes on. `filter(name,
    module)` says of each whether; layers whose sizes are not multiples of 16 stay as they are. Usual is to leave out
    the embedding's counterpart: `lambda name, _: not name.endswith("lm_head")`.
    """

    def make(module: Module) -> Module:
        new = Linear(
            *(module.in_features, module.out_features, module.bias is not None, "meta"),
            power_of_two_scales=power_of_two_scales,
        )
        new.weight, new.bias = module.weight, module.bias
        return new

    return _replaced(model, filter, (torch.nn.Linear,), make)


def convert_to_serving(model: Module, filter: Filter | None = None, *, power_of_two_scales: bool = False) -> Module:
    """The model, whose linear layers have codes for weights from here on. Returns it.

    In place, for torch.nn.Linear, Linear and GroupedLinear that `filter(name, module)` wants and whose sizes are
    multiples of 16. On the meta device nothing is quantised: load_checkpoint brings the codes.
    """

    def make(module: Module) -> Module:
        sizes = (module.in_features, module.out_features)
        new: Any
        if isinstance(module, GroupedLinear):
            new = QuantizedGroupedLinear(module.groups, *sizes, "meta", power_of_two_scales=power_of_two_scales)
        else:
            new = QuantizedLinear(*sizes, False, "meta", power_of_two_scales=power_of_two_scales)
            new.bias = module.bias
        if not module.weight.is_meta:
            new.set_weight(module.weight)
        return new

    return _replaced(model, filter, (torch.nn.Linear, Linear, GroupedLinear), make)


def load_checkpoint(
    model: Module,
    checkpoint: str | os.PathLike[str],
    rename: Callable[[str], str | Sequence[str] | None] = lambda name: name,
    *,
    device: Any = None,
) -> dict[str, str]:
    """Reads weights of all layers of finegemm.torch in the model. Returns what was found for each, in words.

    `checkpoint`: a .safetensors file or the folder of a checkpoint in shards, as finegemm.load_weights takes them, with
    weights of e4m3 and scales of any kind that it knows, or without scales. `rename(name)`: what the checkpoint calls
    the layer of this name, for grouped layers a list with a name for each group; None: leave it. Layers in training
    form get the values, those in serving form the codes, on `device`, else where they are (the CPU for the meta
    device). Everything else of the model, biases too, is left to the model's own loader.
    """
    found = {}
    for name, module in model.named_modules():
        stored = rename(name) if isinstance(module, Layers) else None
        if stored is None:
            continue
        names = [stored] if isinstance(stored, str) else list(stored)
        groups = getattr(module, "groups", None)
        if len(names) != (groups or 1):
            raise InvalidArgument(
                f"rename: gives {len(names)} names for {name}, must be {groups or 1}; give one for each group"
            )
        read = [finegemm.load_weights(f"{os.fspath(checkpoint)}:{stored}") for stored in names]
        _set(name, module, [_as_tensors(weights) for weights in read], device)
        found[name] = read[0].found
    return found


_DTYPES = {"uint8": torch.float8_e4m3fn, "uint16": torch.bfloat16}  # of what NumPy holds as bits


def _as_tensors(weights: finegemm.Weights) -> tuple[Tensor, Tensor | None]:
    dtype = _DTYPES.get(str(weights.values.dtype))
    values = torch.from_numpy(weights.values)
    if dtype is not None:
        values = values.view(dtype)
    return values, None if weights.scales is None else torch.from_numpy(weights.scales)


def _set(name: str, module: Module, read: list[tuple[Tensor, Tensor | None]], device: Any) -> None:
    shape = tuple(module.weight.shape)
    for values, _ in read:
        if tuple(values.shape) != shape[-2:]:
            raise InvalidArgument(
                f"checkpoint: {name} is {list(values.shape)} there, must be {list(shape[-2:])}; rename says which it is"
            )
    if device is None:
        device = "cpu" if module.weight.is_meta else module.weight.device
    has_codes = isinstance(module, (QuantizedLinear, QuantizedGroupedLinear))
    if has_codes and all(scales is not None for _, scales in read):
        codes, scales = (torch.stack(list(x)) if len(shape) == 3 else x[0] for x in zip(*read, strict=True))
        module.weight, module.weight_scale_inv = codes.to(device), scales.to(device)
        return
    values = [x if scales is None else dequantize(x, scales) for x, scales in read]
    weight = (torch.stack(values) if len(shape) == 3 else values[0]).to(device)
    if has_codes:
        module.set_weight(weight)
    elif module.weight.is_meta:
        module.weight = torch.nn.Parameter(weight.to(module.weight.dtype))
    else:
        with torch.no_grad():
            module.weight.copy_(weight)
