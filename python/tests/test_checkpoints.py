"""Weights of checkpoints, as gemm takes them."""

import json

import numpy as np
import pytest

import finegemm
from support import assert_rounded, operands, product


def safetensors(path, **tensors):
    """`tensors`: by name dtype, and an array of its bits."""
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        end = len(data) + array.nbytes
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": (len(data), end)}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_weights_and_scales_multiply_as_they_are(tmp_path):
    a, sfa, b, _ = operands(16, 200, 272)
    scales = np.array([[0.5, 1, 2], [4, 8, 16]], np.float32)
    bits = (scales.view(np.uint32) >> 16).astype(np.uint16)
    safetensors(tmp_path / "model.safetensors", **{"w.weight": ("F8_E4M3", b), "w.weight_scale_inv": ("BF16", bits)})
    weights = finegemm.load_weights(f"{tmp_path}:w")
    assert weights.found == "w.weight_scale_inv, BF16 [2, 3] for 128x128 blocks"
    np.testing.assert_array_equal(weights.scales, scales)
    d = finegemm.gemm(a, sfa, weights.values, weights.scales, out_dtype="float32")
    np.testing.assert_allclose(d, product(a, sfa, b, scales), rtol=1e-5, atol=1e-3)


def test_scales_of_rows_are_those_of_each_row(tmp_path):
    a, sfa, b, _ = operands(16, 200, 272)
    rows = np.linspace(0.5, 2, 200, dtype=np.float32)[:, None]
    safetensors(tmp_path / "m.safetensors", **{"w.weight": ("F8_E4M3", b), "w.weight_scale": ("F32", rows)})
    _, scales, found = weights = finegemm.load_weights(tmp_path / "m.safetensors:w.weight")
    assert scales.shape == (200, 3) and found.endswith("for rows")
    assert_rounded(finegemm.gemm(a, sfa, weights.values, scales), product(a, sfa, b, scales))


def test_values_have_no_scales(tmp_path):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(tmp_path / "x.npy", x)
    values, scales, found = finegemm.load_weights(tmp_path / "x.npy")
    np.testing.assert_array_equal(values, x)
    assert scales is None and found == ""


def test_what_is_not_there_is_an_error(tmp_path):
    safetensors(tmp_path / "m.safetensors", w=("F32", np.zeros((2, 2), np.float32)))
    with pytest.raises(finegemm.IoError, match="has no tensor 'v'; it has: w"):
        finegemm.load_weights(f"{tmp_path}/m.safetensors:v")
    with pytest.raises(finegemm.InvalidArgument, match=r"must be FILE\.npy"):
        finegemm.load_weights("m.bin")
