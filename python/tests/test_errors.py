"""What Python users read when a call is wrong. FG_UPDATE_GOLDEN=1 rewrites the golden sentences."""

import json
import os
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import finegemm
from support import BF16, operands

GOLDEN = Path(__file__).with_name("misuse.json")


SHARED = np.zeros(16 * 256, np.uint8)


def change(**changes):
    """A gemm of 16 x 32 x 256 with some of its arguments replaced by functions of themselves."""

    def call():
        values = dict(zip(("a", "sfa", "b", "sfb"), operands(16, 32, 256), strict=True))
        values["d"] = np.zeros((16, 32), BF16)
        for name, f in changes.items():
            values[name] = f(values.get(name))
        finegemm.gemm(**values)

    return call


def recode(**changes):
    """A reencode of 4 x 128 with some of its arguments replaced."""
    values = {"codes": np.zeros((4, 128), np.uint8), "words": np.zeros((4, 1), np.int32)}
    return lambda: finegemm.reencode(**{**values, **changes})


def read_only(x):
    x.flags.writeable = False
    return x


MISUSES = {
    "a is a list": change(a=lambda a: a.tolist()),
    "a is a list, and d is to be made": lambda: finegemm.gemm([[1]], *operands(16, 32, 256)[1:]),
    "a is float32": change(a=lambda a: a.astype(np.float32)),
    "a is float64": change(a=lambda a: a.astype(np.float64)),
    "a is complex": change(a=lambda a: a.astype(np.complex64)),
    "a is e5m2": change(a=lambda a: a.astype("float8_e5m2")),
    "a is e4m3fnuz": change(a=lambda a: a.astype("float8_e4m3fnuz")),
    "a is e4m3 with infinities": change(a=lambda a: a.astype("float8_e4m3")),
    "a is a vector": change(a=lambda a: a[0]),
    "a is transposed": change(a=lambda a: np.asfortranarray(a)),
    "a is reversed": change(a=lambda a: a[::-1]),
    "k differs": change(b=lambda b: b[:, :128].copy()),
    "k is odd": change(a=lambda a: a[:, :250].copy(), b=lambda b: b[:, :250].copy()),
    "n is odd": change(b=lambda b: b[:31], d=lambda d: np.zeros((16, 31), BF16)),
    "sfa is float64": change(sfa=lambda s: s.astype(np.float64)),
    "sfa is the scales of blocks": change(sfa=lambda s: s[:1]),
    "sfb is transposed": change(sfb=lambda s: np.ones((2, 1), np.float32)),
    "d is too small": change(d=lambda d: d[:8]),
    "d is transposed": change(d=lambda d: np.asfortranarray(d)),
    "d is read-only": change(d=read_only),
    "a has one row for all": change(a=lambda a: np.lib.stride_tricks.as_strided(a, (16, 256), (0, 1))),
    "a has another number of rows": change(a=lambda a: a[:8]),
    "b is bfloat16": change(b=lambda b: b.astype(BF16)),
    "b has three dimensions": change(b=lambda b: b[None]),
    "b has another number of rows": change(b=lambda b: b[:24]),
    "sfa is integers": change(sfa=lambda s: s.astype(np.int32)),
    "sfa is bytes": change(sfa=lambda s: s.astype(np.uint8)),
    "sfa is e8m0": change(sfa=lambda s: s.astype(ml_dtypes.float8_e8m0fnu)),
    "sfa is bfloat16": change(sfa=lambda s: s.astype(BF16)),
    "sfa is float16": change(sfa=lambda s: s.astype(np.float16)),
    "sfa has a scale for each row, in a row": change(sfa=lambda s: s[:, :1].T),
    "sfb has a scale for each row, in a row": change(sfb=lambda s: np.ones((1, 32), np.float32)),
    "sfa has a scale for each 32 columns": change(sfa=lambda s: np.ones((16, 8), np.float32)),
    "sfa has a scale for each 64 columns": change(sfa=lambda s: np.ones((16, 4), np.float32)),
    "sfa is reversed": change(sfa=lambda s: s[:, ::-1]),
    "sfb has a scale for each of too few rows": change(sfb=lambda s: np.ones((31, 1), np.float32)),
    "d is a list": change(d=lambda d: d.tolist()),
    "d has overlapping rows": change(d=lambda d: np.lib.stride_tricks.as_strided(d, (16, 32), (16, 2))),
    "d shares memory with a": change(
        d=lambda d: SHARED[:1024].view(BF16).reshape(16, 32), a=lambda a: SHARED.reshape(16, 256)
    ),
    "scale is NaN": change(
        sfa=lambda s: np.where(np.arange(32).reshape(16, 2) == 5, np.float32("nan"), s), check_values=lambda _: True
    ),
    "scale is negative": change(sfb=lambda s: np.full_like(s, -2), check_values=lambda _: True),
    "num_sms is negative": change(num_sms=lambda _: -1),
    "num_sms is too large": change(num_sms=lambda _: 2**40),
    "num_sms has more than 64 bits": change(num_sms=lambda _: -(2**70)),
    "weights are prefetched without pdl": change(prefetch_weights=lambda _: True),
    "numerics is unknown": change(numerics=lambda _: "double"),
    "accumulate without d": change(d=lambda _: None, accumulate=lambda _: True),
    "accumulate into bfloat16": change(accumulate=lambda _: True),
    "out_dtype is unknown": change(out_dtype=lambda _: "int4"),
    "out_dtype is not that of d": change(out_dtype=lambda _: "float32"),
    "stream is a string": change(stream=lambda _: "main"),
    "config has a NUL": change(config=lambda _: "m64n128\0s4"),
    "context is a number": change(context=lambda _: 3),
    "context is a class": change(context=lambda _: finegemm.Context),
    "context is a number for quantize_rows": lambda: finegemm.quantize_rows(np.ones((4, 128), np.float32), context=0),
    "x is int32": lambda: finegemm.quantize_rows(np.zeros((4, 128), np.int32)),
    "x is float64": lambda: finegemm.quantize_rows(np.zeros((4, 128))),
    "d is float64": change(d=lambda d: d.astype(np.float64)),
    "x is a vector": lambda: finegemm.quantize_rows(np.zeros(128, np.float32)),
    "x is e4m3": lambda: finegemm.quantize_rows(operands(16, 32, 256)[0]),
    "x has an odd number of columns": lambda: finegemm.quantize_rows(np.zeros((4, 100), np.float32)),
    "x is transposed": lambda: finegemm.quantize_blocks(np.zeros((128, 64), np.float32).T),
    "q is int16": lambda: finegemm.quantize_rows(np.zeros((4, 128), np.float32), np.zeros((4, 128), np.int16)),
    "q has another shape": lambda: finegemm.quantize_rows(np.zeros((4, 128), np.float32), np.zeros((4, 64), np.uint8)),
    "offsets are int64": lambda: finegemm.quantize_columns(np.zeros((4, 128), np.float32), offsets=np.array((0, 4))),
    "begins without offsets": lambda: finegemm.quantize_columns(
        np.zeros((4, 128), np.float32), begins=np.zeros(2, np.int32)
    ),
    "row_q is int16": lambda: finegemm.quantize_columns(
        np.zeros((4, 128), np.float32), row_q=np.zeros((4, 128), np.int16)
    ),
    "codes to reencode are int8": recode(codes=np.zeros((4, 128), np.int8)),
    "codes to reencode are int32": recode(codes=np.zeros((4, 128), np.int32)),
    "words are bytes": recode(words=np.zeros((4, 4), np.uint8)),
    "words are floats": recode(words=np.zeros((4, 1), np.float32)),
    "words are too few": recode(words=np.zeros((3, 1), np.int32)),
    "blocks beside scales": recode(q=np.zeros((4, 128), np.uint8), scales=np.zeros((1, 1), np.float32), blocks=True),
    "scales of reencode have another shape": recode(
        q=np.zeros((4, 128), np.uint8), scales=np.zeros((2, 1), np.float32)
    ),
    "changed is int64": recode(changed=np.zeros(1, np.int64)),
    "changed has two numbers": recode(changed=np.zeros(2, np.int32)),
    "scales have another shape": lambda: finegemm.quantize_blocks(
        np.zeros((130, 128), np.float32), np.zeros((130, 128), np.uint8), np.zeros((1, 1), np.float32)
    ),
    "scales are float64": lambda: finegemm.scale_layout(np.ones((4, 3))),
    "scales are a vector": lambda: finegemm.scale_layout(np.ones(4, np.float32)),
    "scales have a row for each 64": lambda: finegemm.scale_layout(np.ones((4, 3), np.float32), rows=256),
    "packed scales have too many columns": lambda: finegemm.scale_layout(
        np.ones((4, 3), np.float32), np.zeros((4, 2), np.int32)
    ),
    "scales are packed twice": lambda: finegemm.scale_layout(
        np.ones((4, 3), np.int32), packed=True, power_of_two_scales=True
    ),
    "scales have two kinds of groups": lambda: finegemm.scale_layout(
        np.ones((4, 3), np.float32), k_sizes=np.ones(2, np.int32), prefix_sums=np.ones(2, np.int32)
    ),
    "sizes of k are int64": lambda: finegemm.scale_layout(
        np.ones((4, 3), np.float32), packed=True, k_sizes=np.ones(2, np.int64)
    ),
    "groups of k are not packed": lambda: finegemm.scale_layout(
        np.ones((4, 3), np.float32), k_sizes=np.ones(2, np.int32)
    ),
    "groups of scales have no alignment": lambda: finegemm.scale_layout(
        np.ones((4, 3), np.float32), prefix_sums=np.ones(2, np.int32), alignment=0
    ),
    "compiler is unknown": lambda: finegemm.Context(compiler="gcc"),
    "cache_dir has a NUL": lambda: finegemm.Context(cache_dir="/tmp/a\0b"),
    "cpu_threads is too large": lambda: finegemm.Context(cpu_threads=2**40),
    "device is unknown": lambda: finegemm.explain(1, 8, 16, device="a100"),
    "n is not a multiple of 8": lambda: finegemm.explain(1, 12, 16, device="h200"),
    "out_dtype of explain is unknown": lambda: finegemm.explain(
        1, 8, 16, device="h200", row_b_scales=True, out_dtype="int4"
    ),
    "groups are added to": lambda: finegemm.explain(1, 8, 16, device="h200", groups=2, accumulate=True),
    "bf16 is added to": lambda: finegemm.explain(1, 8, 16, device="h200", row_b_scales=True, accumulate=True),
    "bfloat16 and groups of k, added to": lambda: finegemm.explain(
        1, 8, 128, device="h200", k_groups=2, out_dtype="bfloat16", accumulate=True
    ),
    "alignment without groups": lambda: finegemm.explain(64, 64, 512, device="h200", alignment=77),
    "expected_m without groups": lambda: finegemm.explain(64, 64, 512, device="h200", k_groups=4, expected_m=5),
    "extent has more than 64 bits": lambda: finegemm.explain(2**70, 8, 16),
    "extent is negative": lambda: finegemm.explain(-1, 8, 16, device="h200"),
}


def sentence_of(call):
    with pytest.raises(finegemm.FineGemmError) as caught:
        call()
    return re.sub(r"\b0x[0-9a-f]+", "0x...", f"{type(caught.value).__name__}: {caught.value}")  # addresses differ


def test_the_golden_file_has_these_misuses():
    if os.environ.get("FG_UPDATE_GOLDEN"):
        GOLDEN.write_text(json.dumps({name: sentence_of(call) for name, call in MISUSES.items()}, indent=1) + "\n")
    assert sorted(json.loads(GOLDEN.read_text())) == sorted(MISUSES)


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_is_explained(name):
    assert sentence_of(MISUSES[name]) == json.loads(GOLDEN.read_text())[name]


def test_invalid_arguments_are_value_errors_with_a_code():
    with pytest.raises(ValueError) as caught:
        MISUSES["k differs"]()
    assert isinstance(caught.value, finegemm.InvalidArgument)
    assert caught.value.code == "InvalidArgument"


def test_a_refused_call_writes_nothing():
    a, sfa, b, sfb = operands(16, 32, 256)
    out = np.full((16, 32), 3, BF16)
    with pytest.raises(finegemm.FineGemmError):
        finegemm.gemm(a, sfa.astype(np.float64), b, sfb, out)
    assert np.all(out == 3)
