"""How Python's arguments reach the library: what the package declares is what the native module reads."""

import inspect

import numpy as np
import pytest

import finegemm
from support import BF16, E4M3, operands

OFFSETS = np.array((0, 128, 256), np.int32)


def stacked(a, sfa, b, sfb):
    return a, sfa, np.stack((b, b)), np.stack((sfb, sfb))


# A call of each function, with what it needs at least.
CALLS = {
    "gemm": (operands(16, 32, 256), {}),
    # The second group begins at the next multiple of `alignment` behind row 5.
    "grouped_gemm": (stacked(*operands(160, 32, 256)), {"prefix_sums": np.array((5, 160), np.int32)}),
    "k_grouped_gemm": (operands(16, 32, 256, row_b_scales=True), {"offsets": OFFSETS}),
    "einsum": (("bmk,bnk->mn", np.ones((4, 3, 16), BF16), np.ones((4, 8, 16), BF16)), {}),
    "quantize_rows": ((np.ones((16, 256), np.float32),), {}),
    "quantize_blocks": ((np.ones((16, 256), np.float32),), {}),
    "quantize_weights": ((np.ones((16, 256), np.float32),), {}),
    "quantize_columns": ((np.ones((16, 256), np.float32),), {"offsets": np.array((0, 5, 16), np.int32)}),
    "reencode": ((np.full((16, 256), 0x38, np.uint8).view(E4M3), np.full((16, 2), 0x7F7F7F7F, np.int32)), {}),
    "swiglu_quantize": ((np.ones((16, 256), np.float32),), {}),
    "scale_layout": ((np.ones((300, 6), np.float32),), {"prefix_sums": np.array((5, 300), np.int32)}),
    "route": ((np.array(((0, 1), (1, -1))), 2), {}),
    "permute_quantize": ((np.ones((2, 128), BF16), np.array(((0, 1), (2, -1)), np.int32)), {"rows": 3}),
    "combine": ((np.ones((3, 16), BF16), np.array(((0, 1), (2, -1)), np.int32)), {}),
    "moe": (
        (
            np.ones((2, 128), BF16),
            np.array(((0, 1), (1, -1))),
            np.full((2, 256, 128), 0x38, np.uint8).view(E4M3),
            np.full((2, 2, 1), 2**-7, np.float32),
            np.full((2, 128, 128), 0x38, np.uint8).view(E4M3),
            np.ones((2, 1, 1), np.float32),
        ),
        {"fused": True},
    ),
    "explain": ((64, 2112, 7168, "h200"), {}),
}


def result(name, positional, keywords):
    """As bytes, or as what explain says. Rows of no group are zero."""
    if name == "grouped_gemm":
        keywords = {"d": np.zeros((160, 32), BF16), **keywords}
    out = getattr(finegemm, name)(*positional, **keywords)
    return out if name == "explain" else [x.tobytes() for x in (out if isinstance(out, tuple) else (out,))]


def keywords_of(name):
    parameters = inspect.signature(getattr(finegemm, name)).parameters.values()
    return [p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]


DECLARED = [(name, p.name, p.default) for name in CALLS for p in keywords_of(name)]


@pytest.mark.parametrize("name, keyword, default", [d for d in DECLARED if d[1] not in CALLS[d[0]][1]])
def test_a_default_that_is_given_changes_nothing(name, keyword, default):
    positional, needed = CALLS[name]
    assert result(name, positional, {**needed, keyword: default}) == result(name, positional, needed)


@pytest.mark.parametrize("name", CALLS)
def test_operands_may_be_given_by_name(name):
    positional, needed = CALLS[name]
    names = inspect.signature(getattr(finegemm, name)).parameters
    by_name = dict(zip(names, positional, strict=False))
    assert result(name, (), {**by_name, **needed}) == result(name, positional, needed)


A, B = np.zeros((16, 128), E4M3), np.zeros((8, 128), E4M3)
SFA, SFB = np.ones((16, 1), np.float32), np.ones((1, 1), np.float32)
D = np.zeros((16, 8), BF16)


@pytest.mark.parametrize(
    "positional, keywords, sentence",
    [
        ((A, SFA, B), {}, "missing a required argument: 'sfb'"),
        ((A, SFA, B, SFB, D, "fast"), {}, "too many positional arguments"),
        ((A, SFA, B, SFB, D), {"sfa": SFA}, "multiple values for argument 'sfa'"),
        ((A, SFA, B, SFB, D), {"num_sm": 3}, "got an unexpected keyword argument 'num_sm'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_as_python_refuses_them(positional, keywords, sentence):
    with pytest.raises(TypeError) as caught:
        finegemm.gemm(*positional, **keywords)
    with pytest.raises(TypeError) as of_python:
        inspect.signature(finegemm.gemm).bind(*positional, **keywords)
    assert str(caught.value) == str(of_python.value) == sentence


def test_an_option_of_other_products_is_refused():
    positional, needed = CALLS["grouped_gemm"]
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'batch_invariant'"):
        finegemm.grouped_gemm(*positional, **needed, batch_invariant=True)


def test_a_call_with_arrays_asks_numpy_for_no_name_of_a_dtype_again():
    """NumPy makes it in Python, which takes longer than the rest of a call."""
    arguments = (*operands(16, 32, 256), np.empty((16, 32), BF16))
    finegemm.gemm(*arguments)
    before = finegemm.arrays._numpy_travels_as.cache_info()
    finegemm.gemm(*arguments)
    after = finegemm.arrays._numpy_travels_as.cache_info()
    assert (after.hits - before.hits, after.misses - before.misses) == (len(arguments), 0)
