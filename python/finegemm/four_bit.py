"""Products of FP8 activations with weights of 4 bits, and how checkpoints' weights are packed for them."""

import dataclasses
import json
from typing import Any, Generic, TypeVar

from finegemm import _native
from finegemm.calls import T, Tensor, native
from finegemm.context import Context

B = TypeVar("B", bound=Tensor)


@dataclasses.dataclass(frozen=True)
class FourBitWeights(Generic[B]):
    """Packed weights, G matrices [rows, cols] of N and K. data: uint8 [G, bytes], contiguous; format: mxfp4 or int4.

    fp8 and fp8_scales: the same weights as unpack_four_bit makes them of all matrices, for products of many rows, or
    None.
    """

    data: B
    format: str
    rows: int
    cols: int
    fp8: B | None = None
    fp8_scales: B | None = None

    def with_fp8(self) -> "FourBitWeights[B]":
        """Those with their FP8 beside them, which takes twice as much memory more; on the CPU."""
        codes, scales = unpack_four_bit(self, None)
        return dataclasses.replace(self, fp8=codes, fp8_scales=scales)

    def to(self, *args: Any) -> "FourBitWeights[Any]":
        """Those where `data.to(*args)` is, on a GPU say."""
        names = ("data", "fp8", "fp8_scales")
        tensors: dict[str, Any] = {name: getattr(self, name) for name in names}
        return dataclasses.replace(self, **{name: t.to(*args) for name, t in tensors.items() if t is not None})


def pack_mxfp4(codes: T, exponents: Tensor, *, high_first: bool = False) -> FourBitWeights[T]:
    """Packs e2m1 codes with a power of two for each 32 of K, exactly, on the CPU.

    codes [N, K/2] or [G, N, K/2]: uint8 (or int8), two codes in a byte, that of the even k in its lower four bits, or,
    `high_first`, in its upper ones. exponents [N, K/32] or [G, N, K/32]: uint8 (or float8_e8m0fnu), biased by 127. N is
    a multiple of 8, K of 32. gpt-oss has codes [G, N, K/32, 16]: reshape them.

    In a block of 128 x 128 exponents whose 32 weights are not all zero may differ by up to 11. InvalidArgument for
    more, for an exponent of 255 (NaN) and for what breaks another rule.
    """
    given = {"codes": codes, "exponents": exponents, "high_first": high_first, "format": "mxfp4"}
    return _packed(codes, given)


def pack_int4(codes: T, scales: Tensor, *, offset: bool = False, high_first: bool = False) -> FourBitWeights[T]:
    """Packs integers from -8 to 7 with a scale for each 128 of K, exactly, on the CPU.

    codes as of pack_mxfp4, in two's complement, or, `offset`, 8 above their values, as packed integers of
    compressed-tensors are: view those as uint8. scales [N, K/128] or [G, N, K/128]: bfloat16 (or uint16, its bits). N
    is a multiple of 8, K of 128. InvalidArgument for a scale that is negative, infinite or NaN and for what breaks
    another rule.
    """
    given = {"codes": codes, "scales": scales, "offset": offset, "high_first": high_first, "format": "int4"}
    return _packed(codes, given)


def _packed(codes: T, given: dict[str, Any]) -> FourBitWeights[T]:
    data = _native.pack_four_bit(given)
    shape = codes.shape  # type: ignore[attr-defined]
    return FourBitWeights(data, given["format"], int(shape[-2]), int(shape[-1]) * 2)


def unpack_four_bit(weights: FourBitWeights[T], group: int | None = 0) -> tuple[T, T]:
    """The same weights as FP8 with scales, exactly, on the CPU: codes float8_e4m3fn [N, K] of a group, and scales.

    scales: float32, [ceil(N/128), ceil(K/128)] of mxfp4, [N, K/128] of int4, as gemm takes them with its b. Of all
    groups where `group` is None, [G, N, K] with scales of as many, as grouped_gemm takes them. InvalidArgument for what
    breaks a rule.
    """
    codes, scales = _native.unpack_four_bit({"weights": weights, "group": group})
    return codes, scales


@native
def four_bit_gemm(
    a: T,
    sfa: Tensor,
    b: FourBitWeights[Any],
    d: T | None = None,
    *,
    offsets: Tensor | None = None,
    m_indices: Tensor | None = None,
    prefix_sums: Tensor | None = None,
    masked_m: Tensor | None = None,
    alignment: int = 128,
    expected_m: int = 0,
    numerics: str = "fast",
    num_sms: int = 0,
    pdl: bool = False,
    stream: Any = None,
    context: Context | None = None,
) -> T:
    """d[m, n] = sum over k of a[m, k] * sfa[m, k / 128] * b[g, n, k], g the group of row m. Returns d.

    a [M, K]: float8_e4m3fn (or uint8, its bits), K contiguous; sfa [M, ceil(K/128)]: float32, any strides. b: weights
    of pack_mxfp4 or pack_int4 on a's device. d [M, N]: bfloat16 (or uint16, its bits), N contiguous; a new array of
    a's library when None.

    One of offsets, m_indices, prefix_sums and masked_m, as of grouped_gemm, says which rows belong to which group of b.
    With masked_m, or with none of them and several groups, a [G, M, K], sfa and d have three dimensions, a matrix for
    each group. Rows of d without a group are not written.

    The bits are those of the product of the unpacked weights (unpack_four_bit), whatever the other rows are. On a GPU
    expected_m, the rows of a group, or without it M decides between kernels for few rows and for many. With weights
    that have their FP8 beside them, b.with_fp8(), the product is that of FP8 where this is expected to be faster: the
    bits are the same, but for last ones of int4 on a GPU, and rows of m_indices without a group may become zero. The
    rest as in gemm; docs/four_bit.md has formats and speeds. InvalidArgument for what breaks a rule.
    """


def explain_four_bit(
    m: int,
    n: int,
    k: int,
    format: str,
    *,
    groups: int | None = None,
    expected_m: int = 0,
    alignment: int = 0,
    num_sms: int = 0,
    fp8: bool = False,
    device: str | None = None,
) -> dict[str, Any]:
    """Which kernel a GPU takes for four_bit_gemm, and why. `device`: as in explain.

    m: rows of all groups; groups None: a dense product. fp8: weights have their FP8 beside them. Returns a dict with
    `kernel`, predicted `us`, `why`, `config` of the kernel for weights of 4 bits, and `forms`: both products that there
    may be, each with its kernel and `us`, that of FP8 with the `line` that explains it.
    """
    told: dict[str, Any] = json.loads(_native.explain_four_bit(locals()))
    return told
