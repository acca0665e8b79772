"""Arguments as the calls take them: pairs of a matrix and its scales, recipes, matrices that are added to."""

import re
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, cast

from finegemm.arrays import check_sign
from finegemm.errors import FineGemmError, InvalidArgument, Unsupported
from finegemm.torch_module import torch

Tensor = Any
Pair = tuple[Tensor, Tensor] | list[Tensor]
Recipe = Sequence[int] | None
Call = TypeVar("Call", bound=Callable[..., None])

_SEQUENCES = (tuple, list)
BLOCK = 128  # of K, and of the rows of B, that one scale serves


# What callers have written where our own functions have an argument of another name.
_WRITTEN = {
    "sfa": "a[1]",
    "sfb": "b[1]",
    "accumulate": "c",
    "alignment": "mk_alignment_for_contiguous_layout",
}


def as_written(error: FineGemmError, **others: str) -> FineGemmError:
    """The error with each argument's name as the caller wrote it; `others`: of this call."""
    names = _WRITTEN | others
    words = re.compile(rf"\b({'|'.join(names)})\b(?!\()")
    return type(error)(words.sub(lambda word: names[word[0]], str(error)))


def integer(name: str, x: Any) -> int:
    if type(x) is int:
        return x
    if isinstance(x, bool) or not hasattr(x, "__index__"):
        raise TypeError(f"{name}: must be an integer, not of {type(x)}")
    return int(x)


def integers(name: str, x: Any, count: int) -> Sequence[int]:
    if (type(x) not in _SEQUENCES and (isinstance(x, str) or not hasattr(x, "__len__"))) or len(x) != count:
        raise TypeError(f"{name}: must be a sequence of {count} integers, not {x!r}")
    for i in x:
        if type(i) is not int:
            return tuple([integer(name, i) for i in x])
    return cast("Sequence[int]", x)  # a string: to make the type takes longer than all the rest


def group_sizes(name: str, x: Any, groups: int) -> Sequence[int]:
    """The k of each group, on the host."""
    if hasattr(x, "__len__") and not isinstance(x, str) and len(x) != groups:
        raise InvalidArgument(f"{name}: has {len(x)} numbers, must have {groups}; pass the k of each group")
    return integers(name, x, groups)


def parts(a: Any, b: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The matrices of two pairs, each with its scales behind it."""
    if type(a) is type(b) is tuple and len(a) == len(b) == 2:
        x = a[0], a[1], b[0], b[1]
    else:
        x = *pair("a", a), *pair("b", b)
    for name, codes in (("a", x[0]), ("b", x[2])):
        if getattr(codes, "dtype", None) is torch.int8:
            raise Unsupported(
                f"{name}: has dtype int8, must be float8_e4m3fn, as int8 is two numbers of four bits in a byte here; "
                "finegemm.gemm multiplies integers"
            )
    return x


def pair(name: str, x: Any) -> tuple[Tensor, Tensor]:
    if not isinstance(x, _SEQUENCES) or len(x) != 2:
        raise TypeError(f"{name}: must be a pair of tensors, a matrix and its scales, not {_kind(x)}")
    return x[0], x[1]


def tensors(name: str, x: Any, count: int) -> Sequence[Tensor]:
    if not isinstance(x, _SEQUENCES) or len(x) != count:
        raise TypeError(f"{name}: must be a sequence of {count} tensors, not {_kind(x)}")
    return x


def _kind(x: Any) -> str:
    return f"{type(x).__name__} of {len(x)}" if isinstance(x, _SEQUENCES) else f"of {type(x)}"


def one_of(names: tuple[str, str], today: Any, older: Any) -> Any:
    """The argument that is given of the two names for it."""
    if (today is None) == (older is None):
        came = "is missing" if today is None else "is given more than once"
        raise TypeError(f"{names[0]}: {came}; pass it by one of the names {', '.join(names)}")
    return older if today is None else today


def refuse(**arguments: Any) -> None:
    """Names that other versions have, where a value that asks for something is given."""
    for name, x in arguments.items():
        if x is not None and x is not False:
            raise Unsupported(f"{name}: is given, but is not served on Hopper; leave it out")


def check_k_contiguous(name: str, x: Tensor) -> None:
    """That a matrix, or a stack, that comes with K first is a view of K-major memory: nothing is copied."""
    if x.stride(-2) != 1 and x.shape[-2] > 1:
        raise Unsupported(
            f"{name}: has shape {list(x.shape)} and strides {list(x.stride())}, must have K, which is its next to last "
            f"dimension here, contiguous in memory; pass {name}.mT.contiguous().mT"
        )


def with_k_first(call: Call, name: str, turned: str, compiled_dims: str) -> Call:
    """`call` under the name `name`, for the operands of `turned` with K before their rows."""

    @wraps(call)
    def product(*arguments: Any, **options: Any) -> None:
        call(*arguments, _turned=turned, **options)

    own = [p for p in signature(call).parameters.values() if p.name != "_turned"]
    named = [p.replace(default=compiled_dims) if p.name == "compiled_dims" else p for p in own]
    product.__signature__ = signature(call).replace(parameters=named)  # type: ignore[attr-defined]
    product.__name__ = product.__qualname__ = name
    memory = "K-major memory" if "fp8" in name else "memory of any layout"
    product.__doc__ = f"{call.__name__} with {' and '.join(turned)} of K first, views of {memory}."
    return cast(Call, product)


_RECIPES = {(1, BLOCK, BLOCK): BLOCK, (1, 1, BLOCK): 1}


def block_rows(recipe: Recipe, recipe_a: Recipe, recipe_b: Recipe) -> int | None:
    """Rows of B that a scale serves by the recipe, 1 or BLOCK; None: there is none, the shape of the scales says."""
    if recipe is not None:
        if recipe_a is not None or recipe_b is not None:
            raise InvalidArgument("recipe: comes with recipe_a or recipe_b; pass either it or both of them")
        if type(recipe) is tuple and (known := _RECIPES.get(recipe)) is not None:
            of_a, rows, of_k = recipe  # True and 128.0 are equal to integers
            if type(of_a) is type(rows) is type(of_k) is int:
                return known
        of_a, rows, of_k = integers("recipe", recipe, 3)
        given = ((of_a, of_k), (rows, of_k))
    elif recipe_a is None and recipe_b is None:
        return None
    elif recipe_a is None or recipe_b is None:
        name = "recipe_a" if recipe_a is None else "recipe_b"
        raise InvalidArgument(f"{name}: is missing; pass recipe_a and recipe_b together, or neither")
    else:
        first, second = integers("recipe_a", recipe_a, 2), integers("recipe_b", recipe_b, 2)
        given, rows = ((first[0], first[1]), (second[0], second[1])), second[0]
    if given not in (((1, BLOCK), (1, BLOCK)), ((1, BLOCK), (BLOCK, BLOCK))):
        raise Unsupported(
            f"recipe: A has a scale for each {given[0]} and B for each {given[1]} of rows and K; on Hopper they must "
            f"be (1, 128), and (1, 128) or (128, 128); quantise to that (utils.per_token_cast_to_fp8, "
            "utils.per_block_cast_to_fp8)"
        )
    return rows


def check_scales_of_b(rows: int | None, b: Tensor, sfb: Tensor, turned: str = "") -> None:
    """That the scales of B are those of the recipe. What else may be wrong with them, the product itself says."""
    if rows is None:
        return
    of_rows = -1 if "b" in turned else -2
    wanted = -(-b.shape[of_rows] // rows)
    if sfb.shape[of_rows] != wanted:
        raise InvalidArgument(
            f"b[1]: has shape {list(sfb.shape)}, must have {wanted} rows by the recipe, one for each {rows} of the "
            f"{b.shape[of_rows]} rows of b; leave the recipe out, or quantise to it"
        )


def check_bf16(a: Tensor, name: str = "a") -> None:
    """That A is bfloat16. The product says the rest: B is what A is."""
    if a.dtype != torch.bfloat16:
        raise InvalidArgument(
            f"{name}: is {a.dtype}, must be torch.bfloat16; convert it, or call the FP8 function of that form with "
            "scales"
        )


def check_source(d: Tensor, c: Tensor) -> None:
    """What is added to a product has the form of the result, and is the result itself or lies elsewhere."""
    if c.dtype != d.dtype or c.shape != d.shape or c.device != d.device:
        raise InvalidArgument(
            f"c: is {c.dtype} of shape {list(c.shape)} on {c.device}, must be {d.dtype} of shape {list(d.shape)} on "
            f"{d.device}, as d; convert it"
        )
    if c.stride(-1) != 1 and c.shape[-1] > 1:
        raise InvalidArgument(f"c: has column stride {c.stride(-1)}, must be 1 (rows contiguous); make it contiguous")
    check_sign("c", c)
    if c.data_ptr() == d.data_ptr() and c.stride() != d.stride() and d.numel() > 0:
        raise InvalidArgument(
            f"c: begins where d does, but has strides {list(c.stride())}, must have d's {list(d.stride())}; pass d "
            "itself, or memory of its own"
        )
