"""Weights of 4 bits as checkpoints lay them out: against decoders in plain NumPy, written from what the formats say."""

import numpy as np
import pytest

import finegemm
from finegemm import InvalidArgument
from finegemm import four_bit_layouts as layouts
from torch_support import torch

N, K = 24, 256
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]


def random(seed):
    return np.random.default_rng(seed)


def words(nibbles):
    """int32 [...] of [..., 8], the first one in the lowest bits."""
    return sum(nibbles[..., i].astype(np.uint32) << np.uint32(4 * i) for i in range(8)).astype(np.uint32).view(np.int32)


def bf16_scales(seed, *shape):
    return torch.from_numpy(random(seed).uniform(0.01, 0.02, shape).astype(np.float32)).bfloat16()


def values_of(x):
    return x.values.to(torch.float64).numpy() * x.scales.to(torch.float64).repeat_interleave(x.group, -1).numpy()


def values_of_fp8(codes, scales):
    codes, scales = torch.as_tensor(codes), torch.as_tensor(scales)
    rows = scales if scales.shape[-2] == codes.shape[-2] else scales.repeat_interleave(128, -2)[: codes.shape[-2]]
    return (codes.to(torch.float64) * rows.to(torch.float64).repeat_interleave(128, -1)[..., : codes.shape[-1]]).numpy()


@pytest.mark.parametrize("group", [32, 128])
@pytest.mark.parametrize("zeros", [False, True])
def test_compressed_tensors(group, zeros):
    q, z = random(1).integers(0, 16, (N, K)), random(2).integers(0, 16, (N, K // group))
    scales = bf16_scales(3, N, K // group)
    packed_zeros = torch.from_numpy(words(z.reshape(N // 8, 8, -1).swapaxes(1, 2))) if zeros else None
    x = layouts.compressed_tensors(torch.from_numpy(words(q.reshape(N, K // 8, 8))), scales, packed_zeros)
    wanted = np.zeros((N, K))
    for n in range(N):
        for k in range(K):
            zero = z[n, k // group] - 8 if zeros else 0
            wanted[n, k] = (q[n, k] - 8 - zero) * float(scales[n, k // group])
    assert (values_of(x) == wanted).all() and x.group == group and x.order is None
    if group == 32:
        with pytest.raises(InvalidArgument, match=r"^scales: are for groups of 32 columns, .* take to_bf16"):
            x.pack() if not zeros else x.to_fp8()
    else:
        assert (values_of_fp8(*x.to_fp8()[:2]) == wanted).all()
    rounded = x.to_bf16()
    assert np.allclose(rounded.values.to(torch.float64).numpy(), wanted, rtol=2**-8, atol=0)
    assert float(rounded.exact) == pytest.approx((rounded.values.to(torch.float64).numpy() == wanted).mean())


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
def test_gptq(v2, ordered):
    q, z = random(4).integers(0, 16, (K, N)), random(5).integers(1, 16, (K // 128, N))
    scales = bf16_scales(6, K // 128, N).to(torch.float16)
    of_k = random(7).permutation(K) // 128 if ordered else np.arange(K) // 128
    x = layouts.gptq(
        torch.from_numpy(words(q.reshape(K // 8, 8, N).swapaxes(1, 2))),
        scales,
        torch.from_numpy(words((z if v2 else z - 1).reshape(K // 128, N // 8, 8))),
        torch.from_numpy(of_k.astype(np.int32)),
        v2=v2,
    )
    wanted = np.zeros((N, K))
    for n in range(N):
        for k in range(K):
            wanted[n, k] = (q[k, n] - z[of_k[k], n]) * float(scales[of_k[k], n])
    order = x.order.numpy() if ordered else np.arange(K)
    assert (x.order is not None) == ordered and (values_of(x) == wanted[:, order]).all()
    assert (values_of_fp8(*x.to_fp8()[:2]) == wanted[:, order]).all()


def test_gptq_without_zero_points_is_packed():
    q = random(8).integers(0, 16, (K, N))
    scales = bf16_scales(9, K // 128, N)
    x = layouts.gptq(torch.from_numpy(words(q.reshape(K // 8, 8, N).swapaxes(1, 2))), scales)
    wanted = (q.T - 8) * scales.double().numpy().T.repeat(128, 1)
    assert (values_of_fp8(*finegemm.unpack_four_bit(x.pack())) == wanted).all()


def test_awq():
    q, z = random(10).integers(0, 16, (K, N)), random(11).integers(0, 16, (K // 128, N))
    scales = bf16_scales(12, K // 128, N)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    packed = (torch.from_numpy(words(x.reshape(-1, N // 8, 8)[..., order])) for x in (q, z))
    x = layouts.awq(*packed, scales)
    wanted = np.zeros((N, K))
    for n in range(N):
        for k in range(K):
            wanted[n, k] = (q[k, n] - z[k // 128, n]) * float(scales[k // 128, n])
    assert (values_of(x) == wanted).all() and (values_of_fp8(*x.to_fp8()[:2]) == wanted).all()
    with pytest.raises(InvalidArgument, match=r"^values: are from -15 to 15, must be from -8 to 7; take to_fp8"):
        x.pack()


@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("high_first", [False, True])
def test_integers_of_bytes(offset, high_first):
    codes = torch.from_numpy(random(13).integers(-128, 128, (2, N, K // 2), dtype=np.int8))
    scales = bf16_scales(14, 2, N, K // 128)
    x = layouts.integers_of_bytes(codes, scales, offset=offset, high_first=high_first)
    for g, n, k in ((0, 0, 0), (0, 5, 1), (1, N - 1, K - 1), (1, 3, 130)):
        byte = int(codes[g, n, k // 2]) & 255
        nibble = byte >> 4 if (k % 2 == 1) != high_first else byte & 15
        assert int(x.values[g, n, k]) == (nibble - 8 if offset else nibble - 16 * (nibble > 7))
    packed = finegemm.pack_int4(codes.view(torch.uint8), scales, offset=offset, high_first=high_first)
    assert torch.equal(x.pack().data, packed.data)


def test_scales_of_f16_that_bf16_lacks_are_counted():
    x = layouts.integers_of_bytes(torch.zeros(8, 64, dtype=torch.int8), torch.full((8, 1), 1 + 2**-9).half())
    with pytest.raises(InvalidArgument, match=r"^scales: 8 of 8 of torch.float16 are none of bfloat16"):
        x.pack()
    assert (x.to_fp8().scales == 1 + 2**-9).all()


def mxfp4(seed, *shape, low, high):
    codes = torch.from_numpy(random(seed).integers(0, 256, (*shape[:-1], shape[-1] // 2), dtype=np.uint8))
    exponents = random(seed + 1).integers(low, high, (*shape[:-1], shape[-1] // 32), dtype=np.uint8)
    return codes, torch.from_numpy(exponents)


def values_of_mxfp4(codes, exponents):
    wanted = np.zeros((*codes.shape[:-1], codes.shape[-1] * 2))
    for at in np.ndindex(*wanted.shape):
        byte, e = int(codes[(*at[:-1], at[-1] // 2)]), int(exponents[(*at[:-1], at[-1] // 32)])
        code = byte >> 4 if at[-1] % 2 else byte & 15
        wanted[at] = (-1 if code & 8 else 1) * E2M1[code & 7] * 2.0 ** (e - 127)
    return wanted


def test_gpt_oss():
    """2880 of K is no multiple of 128, rows of gates and ups alternate, and a bias is added afterwards."""
    experts, rows, k = 1, 16, 2880
    codes, exponents = mxfp4(20, experts, rows, k, low=118, high=128)
    blocks = codes.reshape(experts, rows, k // 32, 16)
    wanted = values_of_mxfp4(codes, exponents)
    alternate = layouts.gates_above_ups(blocks.reshape(experts, rows, k // 2))
    weights = finegemm.pack_mxfp4(alternate, layouts.gates_above_ups(exponents))
    assert weights.cols == k and weights.data.shape[1] == 23 * 8448 + 128, "23 blocks of 128 columns, padded with zeros"
    q, scales = finegemm.unpack_four_bit(weights)
    assert (values_of_fp8(q, scales) == np.concatenate((wanted[0, 0::2], wanted[0, 1::2]))).all()
    bias = torch.arange(float(rows)).reshape(1, rows)
    assert layouts.gates_above_ups(bias, -1).tolist() == [[*range(0, rows, 2), *range(1, rows, 2)]]


def test_wide_blocks_are_detected_and_kept_exactly():
    codes, exponents = mxfp4(22, 136, 256, low=120, high=124)
    exponents[130, :4], exponents[7, 5] = torch.tensor([120, 122, 122, 136]), 150
    codes[7, 5 * 16 : 6 * 16] = 0
    codes[130, 0], codes[130, 3 * 16] = 0x11, 0x77
    spreads = layouts.mxfp4_spreads(codes, exponents)
    assert spreads.tolist() == [[3, 3], [16, 3]]
    with pytest.raises(InvalidArgument, match=r"^exponents: range from 120 to 136 in the block .* at \[128, 0\]"):
        finegemm.pack_mxfp4(codes, exponents)
    wanted, fp8 = values_of_mxfp4(codes, exponents), layouts.reencode_mxfp4(codes, exponents)
    same = (values_of_fp8(fp8.codes, fp8.scales) == wanted).reshape(136, 2, 128).all(-1)
    assert float(fp8.exact) == pytest.approx(same.mean()) and not same[130, 0] and same.sum() == 271
    bf16 = layouts.mxfp4_to_bf16(codes, exponents)
    assert (bf16.values.double().numpy() == wanted).all() and float(bf16.exact) == 1
    exponents[130, 3] = 134  # 14 above the least
    fp8 = layouts.reencode_mxfp4(codes, exponents)
    assert (values_of_fp8(fp8.codes, fp8.scales) == values_of_mxfp4(codes, exponents)).all() and float(fp8.exact) == 1


def test_groups_of_32_run_with_bf16_activations():
    q = random(24).integers(0, 16, (N, K))
    x = layouts.compressed_tensors(torch.from_numpy(words(q.reshape(N, K // 8, 8))), bf16_scales(25, N, K // 32))
    weights = x.to_bf16().values
    a = torch.from_numpy(random(26).standard_normal((70, K)).astype(np.float32)).bfloat16()
    d = finegemm.gemm(a, None, weights, None)
    wanted = a.double() @ weights.double().T
    assert torch.allclose(torch.as_tensor(d).double(), wanted, rtol=2**-8, atol=1e-3)
