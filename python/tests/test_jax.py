"""JAX arrays on the CPU: read without a copy, and results are JAX arrays too. Skipped where JAX is not installed."""

import numpy as np
import pytest

import finegemm
from support import operands

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy


def arrays(args):
    return [jax.device_put(x, jax.devices("cpu")[0]) for x in args]


@pytest.mark.parametrize("out_dtype", ("bfloat16", "float16", "float32"))
def test_a_product_of_jax_arrays_is_one(out_dtype):
    args = operands(33, 136, 272)
    out = finegemm.gemm(*arrays(args), out_dtype=out_dtype)
    assert isinstance(out, jax.Array) and out.dtype == out_dtype
    np.testing.assert_array_equal(np.asarray(out), finegemm.gemm(*args, out_dtype=out_dtype))
    assert jnp.isfinite(out.astype(jnp.float32) + 1).all()  # it goes on in JAX


def test_codes_and_scales_are_jax_arrays():
    x = jax.random.normal(jax.random.key(0), (48, 256), jnp.bfloat16)
    for quantize in (finegemm.quantize_rows, finegemm.quantize_blocks):
        codes, scales = quantize(x)
        assert isinstance(codes, jax.Array) and isinstance(scales, jax.Array)
        assert codes.dtype == jnp.float8_e4m3fn and scales.dtype == jnp.float32
        for got, want in zip((codes, scales), quantize(np.asarray(x)), strict=True):
            np.testing.assert_array_equal(np.asarray(got), want)


def test_columns_of_groups_and_rows_are_jax_arrays():
    x, offsets = jax.random.normal(jax.random.key(0), (48, 256), jnp.bfloat16), np.array([0, 5, 48], np.int32)
    results = finegemm.quantize_columns(x, offsets=jnp.asarray(offsets), rows=True)
    for got, want in zip(results, finegemm.quantize_columns(np.asarray(x), offsets=offsets, rows=True), strict=True):
        assert isinstance(got, jax.Array)
        np.testing.assert_array_equal(np.asarray(got), want)


def test_only_what_is_not_given_is_made():
    x, codes = jnp.ones((16, 256)), np.zeros((16, 256), np.uint8)
    first, scales = finegemm.quantize_rows(x, codes)
    assert first is codes and codes.any() and isinstance(scales, jax.Array)


def test_groups_and_layouts_of_scales_are_jax_arrays():
    a, sfa, b, sfb = operands(40, 128, 256)
    groups = (a, sfa, np.stack([b, b]), np.stack([sfb, 2 * sfb]))
    offsets = np.array([0, 10, 40], np.int32)
    out = finegemm.grouped_gemm(*arrays(groups), offsets=jnp.asarray(offsets))
    np.testing.assert_array_equal(np.asarray(out), finegemm.grouped_gemm(*groups, offsets=offsets))
    packed = finegemm.scale_layout(jnp.asarray(sfa), packed=True)
    assert isinstance(packed, jax.Array)
    np.testing.assert_array_equal(np.asarray(packed), finegemm.scale_layout(sfa, packed=True))


def test_a_jax_array_is_not_written_to():
    args = arrays(operands(16, 32, 128))
    with pytest.raises(finegemm.InvalidArgument, match="d: JAX arrays are immutable; pass an array of another library"):
        finegemm.gemm(*args, jnp.zeros((16, 32), jnp.bfloat16))
