"""Products of MXFP8, for programs that ask for them by the two names of a fork."""

from typing import Any

from finegemm.errors import InvalidArgument, Unsupported
from finegemm.mxfp8 import BLOCK, GROUP, decode_scales, pack_scales
from finegemm.torch_module import torch
from finegemm.torch_operators import watched

from . import operators
from .operands import Pair, Recipe, Tensor, integer, integers, parts

_WORD = 4  # exponents in an int32


def m_grouped_mxfp8_fp8_gemm_nt_contiguous(
    a: Pair,
    b: Pair,
    d: Tensor,
    grouped_layout: Tensor,
    compiled_dims: str = "nk",
    recipe_a: Recipe = None,
    recipe_b: Recipe = None,
) -> None:
    """d [M, N] = rows of a [M, K] times b [G, N, K] of their group, -1 for padding; d bfloat16.

    Scales are for each row and 32 or 128 of K, as the recipes (1, 32) and (1, 128) say, else as their number tells:
    bytes of exponents, int32 of four, or float32. Strides are free.
    """
    qa, sfa, qb, sfb = _operands(a, b, recipe_a, recipe_b)
    watched(operators.grouped_gemm)(qa, sfa, qb, sfb, d, grouped_layout, "m_indices", "grouped_layout", 0, "")


def m_grouped_mxfp8_fp8_gemm_nt_masked(
    a: Pair,
    b: Pair,
    d: Tensor,
    masked_m: Tensor,
    expected_m: int,
    compiled_dims: str = "nk",
    recipe_a: Recipe = None,
    recipe_b: Recipe = None,
) -> None:
    """d [G, M, N] = a [G, M, K] times b [G, N, K] in the first masked_m[g] rows of each, which alone are written."""
    qa, sfa, qb, sfb = _operands(a, b, recipe_a, recipe_b)
    rows = max(
        0, min(integer("expected_m", expected_m), qa.shape[-2])
    )  # callers round it up; 0: as many as there may be
    watched(operators.grouped_gemm)(qa, sfa, qb, sfb, d, masked_m, "masked_m", "masked_m", rows, "")


def _operands(a: Any, b: Any, recipe_a: Recipe, recipe_b: Recipe) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Codes and scales as grouped_gemm takes them: exponents of 32 for b, or floats of 128 for both."""
    qa, sfa, qb, sfb = parts(a, b)
    k = qa.shape[-1]
    of_a, of_b = _served("a", sfa, k, recipe_a), _served("b", sfb, k, recipe_b)
    if of_b == BLOCK:
        sfb = pack_scales(sfb, -(-k // BLOCK), "b[1]")
    elif of_a == BLOCK:
        sfb = _repeated(sfb, k)
    else:
        sfb = decode_scales(sfb, -(-k // GROUP), "b[1]")
    sfa = pack_scales(sfa, -(-k // BLOCK), "a[1]") if of_a == BLOCK else decode_scales(sfa, -(-k // GROUP), "a[1]")
    return qa, sfa, qb, sfb


def _served(name: str, scales: Tensor, k: int, recipe: Recipe) -> int:
    """How many of K a scale serves: 32 or 128."""
    each = _WORD if scales.dtype == torch.int32 else 1
    fitting = [x for x in (BLOCK, GROUP) if scales.shape[-1] == -(-k // (x * each))]
    if recipe is not None:
        rows, wanted = integers(f"recipe_{name}", recipe, 2)
        if rows != 1 or wanted not in (BLOCK, GROUP):
            raise Unsupported(f"recipe_{name}: is {tuple(recipe)}, must be (1, 32) or (1, 128); leave it out")
        fitting = [x for x in fitting if x == wanted]
    if not fitting:
        raise InvalidArgument(
            f"{name}[1]: has {scales.shape[-1]} columns of {scales.dtype}, must have one scale for each 32 or 128 of "
            f"K = {k}{'' if recipe is None else ', as its recipe says'}; pass those that {name} was quantised with"
        )
    return fitting[0]


def _repeated(scales: Tensor, k: int) -> Tensor:
    """Scales of 128 of K, powers of two, as words of the four that are each of them."""
    floats = decode_scales(scales, -(-k // GROUP), "b[1]")
    return pack_scales(floats.repeat_interleave(_WORD, -1), _WORD * floats.shape[-1], "b[1]")
