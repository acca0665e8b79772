"""JAX arrays, read without a copy and as results, and programs of JAX. Skipped where JAX is not installed."""

import os
import pathlib
import shutil
import subprocess
import sys
import types

import numpy as np
import pytest

import finegemm
from support import operands

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy
import finegemm.jax as fj  # noqa: E402


@pytest.fixture(autouse=True)
def on_the_cpu():
    """Where nothing else is said, though there is a GPU."""
    with jax.default_device(jax.devices("cpu")[0]):
        yield


def arrays(args):
    return [jnp.asarray(x) for x in args]


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


def test_results_are_on_the_device_of_what_goes_in():
    code = (
        "import finegemm, jax; first, second = jax.devices('cpu')\n"
        "x = jax.device_put(jax.numpy.ones((16, 128)), second)\n"
        "assert all(y.devices() == {second} for y in finegemm.quantize_rows(x))"
    )
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0


def test_results_on_a_gpu_are_those_of_finegemm_jax():
    class OnGpu:
        __module__ = "jaxlib"

        def devices(self):
            return [types.SimpleNamespace(platform="gpu")]

    with pytest.raises(finegemm.InvalidArgument, match=r"d: JAX arrays on a GPU .* finegemm\.jax"):
        finegemm.arrays.empty_like(OnGpu(), "bfloat16", "d", 16, 16)


# Programs that jax.jit compiles.

DEVICES = {device.platform: device for device in (jax.devices("cpu")[0], jax.devices()[0])}
SOURCES = pathlib.Path(__file__).parents[1] / "src"


@pytest.fixture(params=DEVICES)
def run(request):
    """Compiles a function for a device and calls it with what is put there."""
    device = DEVICES[request.param]
    return lambda function, *args: jax.jit(function)(*jax.device_put(args, device))


def assert_equal(got, want):
    """To the bit on the CPU; on a GPU casts are, and sums of products are in another order."""
    for x, y in zip(got, want, strict=True):
        assert isinstance(x, jax.Array) and x.shape == y.shape and x.dtype == y.dtype
        exact = "cpu" in {device.platform for device in x.devices()} or x.dtype.itemsize == 1
        x, y = (np.asarray(z).astype(np.float32) for z in (x, y))
        np.testing.assert_allclose(x, y, rtol=0 if exact else 2**-7, atol=0 if exact else 2**-7 * np.abs(y).max())


def values(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


OFFSETS = np.array([0, 10, 40], np.int32)


@pytest.mark.parametrize("out_dtype", ("bfloat16", "float16", "float32"))
def test_a_program_quantises_and_multiplies(out_dtype, run):
    def layer(module, x, w, bias):
        a, b = module.quantize_rows(x), module.quantize_blocks(w)
        return *a, *b, module.gemm(*a, *b, out_dtype=out_dtype, alpha=0.5, bias=bias)

    args = values(0, 40, 256), values(1, 136, 256), values(2, 136)
    assert_equal(run(lambda *args: layer(fj, *args), *args), layer(finegemm, *args))


def test_a_program_has_products_of_groups(run):
    def layer(module, x, weights, offsets):
        q, scales, transposed = module.quantize_weights(weights)
        y = module.grouped_gemm(*module.quantize_rows(x), q, scales, offsets=offsets)
        whole = x[:32].reshape(2, 16, 256)
        counts = offsets[1:] // 10 + 12  # 13 and 16 of 16 rows
        masked = module.grouped_gemm(whole.astype("bfloat16"), None, weights.astype("bfloat16"), None, masked_m=counts)
        return q, scales, transposed, y, masked[:, :13]

    args = values(0, 40, 256), values(1, 2, 128, 256), OFFSETS
    assert_equal(run(lambda *args: layer(fj, *args), *args), layer(finegemm, *args))


def test_a_program_has_gradients_of_groups_of_weights(run):
    def gradient(module, dy, x, offsets):
        *columns_of_dy, begins, rows, scales = module.quantize_columns(dy, offsets=offsets, rows=True)
        columns_of_x = module.quantize_columns(x, offsets=offsets)[:2]
        return begins, rows, scales, module.k_grouped_gemm(*columns_of_dy, *columns_of_x, offsets=begins)

    args = values(0, 40, 128), values(1, 40, 256), OFFSETS
    assert_equal(run(lambda *args: gradient(fj, *args), *args), gradient(finegemm, *args))


def test_a_program_has_products_of_heads_and_before_a_norm(run):
    def products(module, a, b, w):
        a, b = a.astype("bfloat16"), b.astype("bfloat16")
        heads, total = module.einsum("bhr,hdr->bhd", a, b), module.einsum("bmk,bnk->mn", a, a, out_dtype="float32")
        return heads, total, *module.prenorm_gemm(a[:, 0], w), *module.prenorm_gemm(a[:, 1], w, num_splits=3)

    args = values(0, 5, 8, 64), values(1, 8, 16, 64), values(2, 24, 64)
    assert_equal(run(lambda *args: products(fj, *args), *args), products(finegemm, *args))


@pytest.mark.parametrize("blocks", (False, True))
def test_a_program_has_scales_of_exponents(blocks, run):
    def scaled(module, codes, words):
        return module.reencode(codes, words, blocks=blocks)

    codes = finegemm.quantize_rows(values(1, 140, 256))[0]
    words = np.random.default_rng(2).integers(0, 2**31, (2, 140, 2), dtype=np.int32)
    args = np.stack([codes] * 2), words
    assert_equal(run(lambda *args: scaled(fj, *args), *args), scaled(finegemm, *args))


def test_codes_may_be_e5m2(run):
    codes, _ = run(lambda x: fj.quantize_rows(x, dtype=jnp.float8_e5m2, power_of_two_scales=True), values(0, 16, 128))
    assert codes.dtype == jnp.float8_e5m2 and np.asarray(codes.astype(jnp.float32)).any()


def test_a_batch_of_calls_has_the_results_of_each(run):
    a, sfa, b, sfb = operands(40, 128, 256)
    batch = np.stack([a, a[::-1]]), np.stack([sfa, sfa[::-1]])
    got = run(jax.vmap(lambda a, sfa: fj.gemm(a, sfa, b, sfb)), *batch)
    assert_equal(got, [finegemm.gemm(x, s, b, sfb) for x, s in zip(*batch, strict=True)])


def test_the_page_of_jax_runs():
    page = SOURCES.parents[1] / "docs/jax.md"
    done = subprocess.run(
        [sys.executable, SOURCES.parents[1] / "tools/run_pages.py", page], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_program_says_what_is_wrong(run):
    a, sfa, b, sfb = operands(16, 32, 256)
    with pytest.raises(Exception, match="InvalidArgument: b: has 128 columns, but a has 256"):
        jax.block_until_ready(run(fj.gemm, a, sfa, b[:, :128].copy(), sfb))
    with pytest.raises(Exception, match="InvalidArgument: a: has dtype int32, must be"):
        jax.block_until_ready(run(fj.gemm, a.astype(np.int32), sfa, b, sfb))
    with pytest.raises(finegemm.InvalidArgument, match=r"^a: has 3 dimensions, gemm takes 2; reshape it"):
        run(fj.gemm, a[None], sfa, b, sfb)


# Structs of ours and of XLA, and members that lie at the same places.
STRUCTS = (
    ("ApiVersion", "Api_Version", "minor:minor_version"),
    ("Metadata", "Metadata", "version:api_version"),
    ("MetadataExtension", "Metadata_Extension", "base.type:extension_base.type metadata:metadata"),
    ("Buffer", "Buffer", "dtype:dtype data:data rank:rank dims:dims"),
    ("Text", "ByteSpan", "data:ptr size:len"),
    ("Scalar", "Scalar", "dtype:dtype value:value"),
    ("Buffers", "Args", "size:size types:types items:args"),
    ("Buffers", "Rets", "size:size types:types items:rets"),
    ("Attributes", "Attrs", "size:size types:types names:names values:attrs"),
    ("ErrorCreate", "Error_Create_Args", "message:message code:errc"),
    ("ErrorDestroy", "Error_Destroy_Args", "error:error"),
    ("StreamGet", "Stream_Get_Args", "execution:ctx stream:stream"),
    ("DeviceGet", "DeviceOrdinal_Get_Args", "execution:ctx device:device_ordinal"),
    (
        "Api",
        "Api",
        "version:api_version error_create:XLA_FFI_Error_Create error_destroy:XLA_FFI_Error_Destroy "
        "stream_get:XLA_FFI_Stream_Get device_get:XLA_FFI_DeviceOrdinal_Get",
    ),
    (
        "CallFrame",
        "CallFrame",
        "api:api execution:ctx stage:stage operands:args results:rets attributes:attrs",
    ),
)
VALUES = (
    "kMajorVersion:API_MAJOR kMetadata:Extension_Metadata kScalar:AttrType_SCALAR kText:AttrType_STRING "
    "kInvalidArgument:Error_Code_INVALID_ARGUMENT kBool:DataType_PRED kS32:DataType_S32 kS64:DataType_S64 "
    "kU8:DataType_U8 kU16:DataType_U16 kF16:DataType_F16 kF32:DataType_F32 kF64:DataType_F64 kBF16:DataType_BF16 "
    "kF8E5M2:DataType_F8E5M2 kF8E4M3FN:DataType_F8E4M3FN"
)


def test_declarations_of_xla_are_those_of_its_header(tmp_path):
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    lines = ['#include "xla.h"', "#include <xla/ffi/api/c_api.h>", "namespace xla = finegemm::python::xla;"]
    for ours, theirs, members in STRUCTS:
        for mine, its in (pair.split(":") for pair in members.split()):
            lines.append(f"static_assert(offsetof(xla::{ours}, {mine}) == offsetof(XLA_FFI_{theirs}, {its}));")
    for mine, its in (pair.split(":") for pair in VALUES.split()):
        lines.append(f"static_assert(int(xla::{mine}) == int(XLA_FFI_{its}));")
    source = tmp_path / "same.cpp"
    source.write_text("\n".join(lines))
    command = [compiler, "-std=c++20", "-fsyntax-only", f"-I{SOURCES}", f"-isystem{jax.ffi.include_dir()}", source]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
