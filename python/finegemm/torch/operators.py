"""The operations as operators of torch: those that return new tensors, and for products those that write to `out`.

Gradients are of layers, not of products of codes: autograd sees the operators, and backward through one is an error.
"""

from collections.abc import Callable
from typing import Any

import torch

import finegemm
from finegemm.errors import Unsupported
from finegemm.torch_operators import define

Tensor = Any
Dtype = Any  # a torch.dtype

E4M3 = torch.float8_e4m3fn
BLOCK = 128  # of rows or columns that share a scale; groups of K begin at multiples of it
K_MULTIPLE = 16  # K of a product of codes


# Options of the operators, in the order in which they take them, with their types in a schema.
_AFFINE = {"c": "Tensor?", "bias": "Tensor?", "alpha": "float", "beta": "float?"}
_ANY = {"numerics": "str", "num_sms": "SymInt", "pdl": "bool"}
DENSE = _AFFINE | _ANY | {"batch_invariant": "bool?"}
GROUPED = _AFFINE | _ANY | {"alignment": "SymInt", "expected_m": "SymInt"}
K_GROUPED = _ANY
EINSUM = _ANY | {"batch_invariant": "bool?"}


def _named(names: dict[str, str], values: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(names, values, strict=True))


def _new_product(a: Tensor, sfa: Tensor, b: Tensor, sfb: Tensor, out_dtype: Dtype | None, *_: Any) -> Tensor:
    if out_dtype is None:
        out_dtype = a.dtype if a.dtype in (torch.bfloat16, torch.float16) else torch.bfloat16
    return a.new_empty(*a.shape[:-1], b.shape[-2], dtype=out_dtype)


def gemm_new(a: Tensor, sfa: Tensor, b: Tensor, sfb: Tensor, out_dtype: Dtype | None, *options: Any) -> Tensor:
    out = _new_product(a, sfa, b, sfb, out_dtype)
    gemm_out(a, sfa, b, sfb, out, False, *options)
    return out


def gemm_out(a: Tensor, sfa: Tensor, b: Tensor, sfb: Tensor, out: Tensor, accumulate: bool, *options: Any) -> None:
    finegemm.gemm(a, sfa, b, sfb, out, accumulate=accumulate, **_named(DENSE, options))


def grouped_gemm_new(
    a: Tensor, sfa: Tensor, b: Tensor, sfb: Tensor, out_dtype: Dtype | None, layout: Tensor, form: str, *options: Any
) -> Tensor:
    out = _new_product(a, sfa, b, sfb, out_dtype)
    grouped_gemm_out(a, sfa, b, sfb, out, layout, form, *options)
    return out


def grouped_gemm_out(
    a: Tensor, sfa: Tensor, b: Tensor, sfb: Tensor, out: Tensor, layout: Tensor | None, form: str, *options: Any
) -> None:
    """`form`: the name of the argument that `layout` is, or heads."""
    keywords = _named(GROUPED, options) | {form: True if layout is None else layout}
    finegemm.grouped_gemm(a, sfa, b, sfb, out, **keywords)


def k_grouped_gemm_new(
    a: Tensor, sfa: Tensor, b: Tensor, sfb: Tensor, layout: Tensor, form: str, *options: Any
) -> Tensor:
    out = _new_k_grouped(a, sfa, b, sfb, layout, form)
    k_grouped_gemm_out(a, sfa, b, sfb, out, False, layout, form, *options)
    return out


def _new_k_grouped(a: Tensor, sfa: Tensor, b: Tensor, sfb: Tensor, layout: Tensor, form: str, *_: Any) -> Tensor:
    groups = layout.shape[0] - (1 if form == "offsets" else 0)  # of a symbol no bool can be taken
    return a.new_empty(groups, a.shape[0], b.shape[0], dtype=torch.float32)


def k_grouped_gemm_out(
    a: Tensor,
    sfa: Tensor,
    b: Tensor,
    sfb: Tensor,
    out: Tensor,
    accumulate: bool,
    layout: Tensor,
    form: str,
    *options: Any,
) -> None:
    """`form`: offsets or sizes, which `layout` is."""
    finegemm.k_grouped_gemm(a, sfa, b, sfb, out, accumulate=accumulate, **_named(K_GROUPED, options) | {form: layout})


def einsum_new(
    equation: str, a: Tensor, sfa: Tensor, b: Tensor, sfb: Tensor, out_dtype: Dtype | None, *options: Any
) -> Tensor:
    out = _new_einsum(equation, a, sfa, b, sfb, out_dtype)
    einsum_out(equation, a, sfa, b, sfb, out, False, *options)
    return out


def _new_einsum(
    equation: str, a: Tensor, sfa: Tensor, b: Tensor, sfb: Tensor, out_dtype: Dtype | None, *_: Any
) -> Tensor:
    operands, result = equation.partition("->")[::2]
    extents: dict[str, Any] = {}
    for letters, x in zip(operands.split(","), (a, b), strict=False):  # what is no equation the call itself refuses
        extents.update(zip(letters, x.shape, strict=False))
    if out_dtype is None:
        out_dtype = a.dtype if a.dtype in (torch.bfloat16, torch.float16) else torch.bfloat16
    return a.new_empty([extents.get(letter, 0) for letter in result], dtype=out_dtype)


def einsum_out(
    equation: str, a: Tensor, sfa: Tensor, b: Tensor, sfb: Tensor, out: Tensor, accumulate: bool, *options: Any
) -> None:
    written: dict[str, Any] = {"sfa": sfa, "sfb": sfb, "accumulate": accumulate} | _named(EINSUM, options)
    finegemm.einsum(equation, a, b, out, **written)  # type: ignore[arg-type]


def quantize_rows(
    x: Tensor, power_of_two_scales: bool, dtype: Dtype = E4M3, whole_rows: bool = False
) -> tuple[Tensor, Tensor]:
    return finegemm.quantize_rows(x, whole_rows=whole_rows, **_quantised(power_of_two_scales, dtype))


def quantize_blocks(x: Tensor, power_of_two_scales: bool, dtype: Dtype = E4M3) -> tuple[Tensor, Tensor]:
    how = _quantised(power_of_two_scales, dtype)
    if x.dim() == 2:
        return finegemm.quantize_blocks(x, **how)
    matrices, n, k = x.shape
    if n % BLOCK == 0:  # no block has rows of two matrices
        codes, scales = finegemm.quantize_blocks(x.reshape(-1, k), **how)
        return codes.view(x.shape), scales.view(matrices, n // BLOCK, -1)
    codes, scales = _new_blocks(x, power_of_two_scales, dtype)
    for matrix, q, s in zip(x, codes, scales, strict=True):
        finegemm.quantize_blocks(matrix, q, s, power_of_two_scales=power_of_two_scales)
    return codes, scales


def _quantised(power_of_two_scales: bool, dtype: Dtype) -> dict[str, Any]:
    """The function reads a name, as arrays of other libraries have types of their own."""
    return {"power_of_two_scales": power_of_two_scales, "dtype": str(dtype).removeprefix("torch.")}


def quantize_weights(x: Tensor, power_of_two_scales: bool) -> tuple[Tensor, Tensor, Tensor]:
    return finegemm.quantize_weights(x, power_of_two_scales=power_of_two_scales)


def quantize_columns(x: Tensor, power_of_two_scales: bool) -> tuple[Tensor, ...]:
    return finegemm.quantize_columns(x, power_of_two_scales=power_of_two_scales)


def quantize_columns_and_rows(x: Tensor, power_of_two_scales: bool) -> tuple[Tensor, ...]:
    return finegemm.quantize_columns(x, rows=True, power_of_two_scales=power_of_two_scales)


def quantize_group_columns(x: Tensor, offsets: Tensor, power_of_two_scales: bool) -> tuple[Tensor, ...]:
    return finegemm.quantize_columns(x, offsets=offsets, power_of_two_scales=power_of_two_scales)


def quantize_group_columns_and_rows(x: Tensor, offsets: Tensor, power_of_two_scales: bool) -> tuple[Tensor, ...]:
    return finegemm.quantize_columns(x, offsets=offsets, rows=True, power_of_two_scales=power_of_two_scales)


def reencode(codes: Tensor, words: Tensor, blocks: bool) -> tuple[Tensor, Tensor]:
    return finegemm.reencode(codes, words, blocks=blocks)


def _capacity(x: Tensor, offsets: Tensor) -> Any:
    """Rows when each group is padded to whole blocks, however they fall to groups: known without a look at them."""
    return (x.shape[0] + (offsets.shape[0] - 1) * (BLOCK - 1)) // BLOCK * BLOCK


def _ceil_div(a: Any, b: int) -> Any:
    return (a + b - 1) // b


def _codes(x: Tensor, *shape: Any, dtype: Dtype = E4M3) -> Tensor:
    return x.new_empty(shape, dtype=dtype)


def _scales(x: Tensor, *shape: Any) -> Tensor:
    return x.new_empty(shape, dtype=torch.float32)


def _mn_major_scales(x: Tensor, rows: Any, blocks: Any) -> Tensor:
    return _mn_major(x, (), rows, blocks, torch.float32)


def _mn_major(x: Tensor, matrices: Any, rows: Any, cols: Any, dtype: Dtype) -> Tensor:
    pitch = _ceil_div(rows, 4) * 4
    strides = (*(pitch * cols for _ in matrices), 1, pitch)
    return x.new_empty_strided((*matrices, rows, cols), strides, dtype=dtype)


def _new_rows(x: Tensor, _: bool, dtype: Dtype = E4M3, whole_rows: bool = False) -> tuple[Tensor, Tensor]:
    across = 1 if whole_rows else _ceil_div(x.shape[1], BLOCK)
    return _codes(x, *x.shape, dtype=dtype), _scales(x, x.shape[0], across)


def _new_blocks(x: Tensor, _: bool, dtype: Dtype = E4M3) -> tuple[Tensor, Tensor]:
    *matrices, n, k = x.shape
    return _codes(x, *x.shape, dtype=dtype), _scales(x, *matrices, _ceil_div(n, BLOCK), _ceil_div(k, BLOCK))


def _new_weights(x: Tensor, _: bool) -> tuple[Tensor, Tensor, Tensor]:
    *matrices, n, k = x.shape
    return *_new_blocks(x, _), _codes(x, *matrices, k, n)


def _new_columns(x: Tensor, _: bool) -> tuple[Tensor, Tensor]:
    m, k = x.shape
    return _codes(x, k, _ceil_div(m, K_MULTIPLE) * K_MULTIPLE), _mn_major_scales(x, k, _ceil_div(m, BLOCK))


def _new_group_columns(x: Tensor, offsets: Tensor, _: bool) -> tuple[Tensor, Tensor, Tensor]:
    k, capacity = x.shape[1], _capacity(x, offsets)
    return _codes(x, k, capacity), _mn_major_scales(x, k, capacity // BLOCK), torch.empty_like(offsets)


def _new_rows_beside_columns(x: Tensor) -> tuple[Tensor, Tensor]:
    return _codes(x, *x.shape), _mn_major_scales(x, x.shape[0], _ceil_div(x.shape[1], BLOCK))


def _new_columns_and_rows(x: Tensor, _: bool) -> tuple[Tensor, ...]:
    return *_new_columns(x, _), *_new_rows_beside_columns(x)


def _new_group_columns_and_rows(x: Tensor, offsets: Tensor, _: bool) -> tuple[Tensor, ...]:
    return *_new_group_columns(x, offsets, _), *_new_rows_beside_columns(x)


def _new_reencoded(codes: Tensor, words: Tensor, blocks: bool) -> tuple[Tensor, Tensor]:
    if blocks:
        return _new_blocks(codes, False)
    *matrices, rows, k = codes.shape
    return _codes(codes, *codes.shape), _mn_major(codes, matrices, rows, _ceil_div(k, BLOCK), torch.float32)


def scale_layout_new(sf: Tensor, packed: bool, rows: int | None, power_of_two_scales: bool) -> Tensor:
    return finegemm.scale_layout(sf, packed=packed, rows=rows, power_of_two_scales=power_of_two_scales)


def _new_scale_layout(sf: Tensor, packed: bool, rows: int | None, _: bool) -> Tensor:
    *matrices, r, cols = sf.shape
    r = r if rows is None else rows
    cols = cols if sf.dtype != torch.int32 else 4 * cols
    cols = _ceil_div(cols, 4) if packed else cols
    return _mn_major(sf, matrices, r, cols, torch.int32 if packed else torch.float32)


def _nothing(*arguments: Any) -> None:
    """What an operator that writes to `out` returns, for tensors without data."""


def _no_gradient(name: str) -> Callable[..., Any]:
    def backward(ctx: Any, *grads: Any) -> Any:
        raise Unsupported(
            f"{name}: has no gradient, as it takes or makes codes; call finegemm.torch.linear or grouped_linear, or "
            "detach what goes in"
        )

    return backward


def define_new(
    function: Callable[..., Any], schema: str, fake: Callable[..., Any], of_several_devices: bool = False
) -> None:
    """An operator that returns new tensors, and backward through which raises."""
    backward = _no_gradient(function.__name__.removesuffix("_new"))
    define(function, schema, fake, backward, of_several_devices=of_several_devices)


def define_out(function: Callable[..., Any], schema: str, of_several_devices: bool = False) -> None:
    """An operator that writes to one of its tensors and returns nothing."""
    define(function, f"{schema} -> ()", _nothing, of_several_devices=of_several_devices)


def _define_product(
    new: Callable[..., Any],
    writes: Callable[..., Any],
    fake: Callable[..., Any],
    *,
    first: str = "",
    only_new: str = "",
    only_out: str = "",
    options: dict[str, str],
    of_several_devices: bool = False,
) -> None:
    """The two operators of a product: `new`, which returns a result, and `writes`, which has one to write to."""
    operands = f"{first}Tensor a, Tensor? sfa, Tensor b, Tensor? sfb, "
    listed = ", ".join(f"{kind} {name}" for name, kind in options.items())
    define_new(new, f"({operands}{only_new}{listed}) -> Tensor", fake, of_several_devices)
    define_out(writes, f"({operands}Tensor(a!) out, {only_out}{listed})", of_several_devices)


_DTYPE, _ACCUMULATE = "ScalarType? out_dtype, ", "bool accumulate, "
_define_product(gemm_new, gemm_out, _new_product, only_new=_DTYPE, only_out=_ACCUMULATE, options=DENSE)
_ROWS = {"layout": "Tensor?", "form": "str"}
_define_product(grouped_gemm_new, grouped_gemm_out, _new_product, only_new=_DTYPE, options=_ROWS | GROUPED)
_K = {"layout": "Tensor", "form": "str"}
_define_product(
    k_grouped_gemm_new,
    k_grouped_gemm_out,
    _new_k_grouped,
    only_out=_ACCUMULATE,
    options=_K | K_GROUPED,
    of_several_devices=True,  # sizes are on the CPU
)
_define_product(
    einsum_new, einsum_out, _new_einsum, first="str equation, ", only_new=_DTYPE, only_out=_ACCUMULATE, options=EINSUM
)

_TYPED = "Tensor x, bool power_of_two_scales, ScalarType dtype=float8_e4m3fn"
define_new(quantize_rows, f"({_TYPED}, bool whole_rows=False) -> (Tensor, Tensor)", _new_rows)
define_new(quantize_blocks, f"({_TYPED}) -> (Tensor, Tensor)", _new_blocks)
_CODES = "bool power_of_two_scales) -> (Tensor, Tensor"
define_new(quantize_weights, f"(Tensor x, {_CODES}, Tensor)", _new_weights)
define_new(quantize_columns, f"(Tensor x, {_CODES})", _new_columns)
define_new(quantize_columns_and_rows, f"(Tensor x, {_CODES}, Tensor, Tensor)", _new_columns_and_rows)
_GROUP_CODES = f"(Tensor x, Tensor offsets, {_CODES}, Tensor"
define_new(quantize_group_columns, f"{_GROUP_CODES})", _new_group_columns)
define_new(quantize_group_columns_and_rows, f"{_GROUP_CODES}, Tensor, Tensor)", _new_group_columns_and_rows)
define_new(reencode, "(Tensor codes, Tensor words, bool blocks) -> (Tensor, Tensor)", _new_reencoded)
define_new(
    scale_layout_new,
    "(Tensor sf, bool packed, SymInt? rows, bool power_of_two_scales) -> Tensor",
    _new_scale_layout,
)
