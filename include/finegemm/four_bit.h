// Products of FP8 activations with weights of 4 bits, and how weights are packed for them. Layer: public.
#pragma once

#include <string>

#include <finegemm/gemm.h>

namespace finegemm {

/// Elements of packed weights and their scales. The values are part of the C ABI.
enum class FourBitFormat : int32_t {
    Mxfp4 = 1,  ///< e2m1 with a power of two (E8M0) for each 32 of K
    Int4 = 2,   ///< -8 to 7 with a bf16 for each 128 of K
};

/// Weights [N, K] of 4 bits as checkpoints have them, in memory of the host: two in each byte, neighbours in K.
struct FourBitSource {
    FourBitFormat format = FourBitFormat::Mxfp4;
    ConstMatrix codes;        ///< [N, K/2], any type of one byte, K a multiple of 32 (Int4: of 128); rows contiguous
    ConstMatrix scales;       ///< Mxfp4: [N, K/32], any type of one byte: biased exponents. Int4: [N, K/128] bf16
    bool high_first = false;  ///< the upper four bits of a byte are those of the even k
    bool offset = false;      ///< Int4: codes are 8 above their values (0 is -8), not in two's complement
};

/// Bytes of packed weights [N, K]: blocks of 128 x 128, the last ones padded with zeros. Throws Error(InvalidArgument).
FINEGEMM_API int64_t four_bit_bytes(FourBitFormat format, int64_t rows, int64_t cols);

/// Packs weights for four_bit_gemm, exactly. In each block of 128 x 128 exponents of Mxfp4 whose 32 weights are not all
/// zero may differ by up to 11; the error for more names the block. `packed`: four_bit_bytes, on the host. Throws
/// Error(InvalidArgument): a shape, a scale that is NaN (255), infinite or negative, a block that is too wide.
FINEGEMM_API void pack_four_bit(const FourBitSource& source, void* packed);

/// Packed weights: G matrices [N, K], one behind the other. On CUDA the pointer is aligned to 16.
struct FourBitWeights {
    const void* data = nullptr;
    FourBitFormat format = FourBitFormat::Mxfp4;
    int64_t groups = 1, rows = 0, cols = 0;  ///< G, N, K
    Device device{};
};

/// Packed weights as FP8 with scales, exactly: those of which four_bit_gemm has the product. On the host. q: [N, K]
/// e4m3 of matrix `group`; scales: f32, [ceil(N/128), ceil(K/128)] of Mxfp4, [N, K/128] of Int4. Rows and columns have
/// any strides. Throws Error(InvalidArgument).
FINEGEMM_API void unpack_four_bit(const FourBitWeights& weights, int64_t group, const Matrix& q, const Matrix& scales);

struct FourBitOptions {
    Numerics numerics = Numerics::Fast;  ///< CPU only
    int32_t num_sms = 0;                 ///< as GemmOptions::num_sms
    bool pdl = false;                    ///< as GemmOptions::pdl
    Stream stream = nullptr;             ///< CUDA only
    Poll poll{};                         ///< as GemmOptions::poll
};

/// D[m, n] = sum over k of A[m, k] * sfa[m, k / 128] * B[g, n, k], g the group of row m.
struct FourBitArgs {
    ConstStack a;      ///< as GroupedGemmArgs::a
    ConstStack sfa;    ///< as GroupedGemmArgs::sfa
    FourBitWeights b;  ///< on the device of D
    Stack d;           ///< [M, N] bf16, N contiguous and a multiple of 8; Masked and Whole: [G, M, N]
    Groups groups{.form = GroupForm::Whole};  ///< Whole, of one matrix each: a dense product
    ConstStack fp8{};         ///< b as unpack_four_bit makes it, [G, N, K] e4m3; left out: b alone is multiplied
    ConstStack fp8_scales{};  ///< its scales, [G, ceil(N/128), ceil(K/128)] of Mxfp4, [G, N, K/128] of Int4
};

/// A product as far as the host knows it.
struct FourBitShape {
    FourBitFormat format = FourBitFormat::Mxfp4;
    int64_t m = 0, n = 0, k = 0;      ///< m: of all groups together; of masked groups G times that of each
    std::optional<int64_t> groups{};  ///< of rows; left out: a dense product
    int64_t expected_m = 0;           ///< as Groups::expected_m
    int64_t alignment = 0;            ///< as GemmShape::alignment
    int32_t num_sms = 0;              ///< as GemmOptions::num_sms
    bool fp8 = false;                 ///< is FourBitArgs::fp8 given?
    bool operator==(const FourBitShape&) const = default;
};

/// The bits are those of the FP8 product of the unpacked weights (docs/four_bit.md), whatever the other rows are. Rows
/// of D that belong to no group are not written; of Indices with `fp8` they may become zero. M = 0 does nothing. There
/// are kernels for few rows of a group and for many; of these, and of FP8 where `fp8` is given, the one is taken that
/// is expected to be fastest, by Groups::expected_m or, without it, by M. The bits of Mxfp4 are the same; of Int4 with
/// FP8 on a GPU last ones may differ, as the FP8 product has its scales multiplied by tensor cores. Numbers that break
/// the rules never lead outside of the matrices. D shares no memory with what is read. On CUDA the work is queued and
/// the call does not wait. Throws Error: InvalidArgument, Unsupported, Driver, Compile.
FINEGEMM_API void four_bit_gemm(Context& context, const FourBitArgs& args, const FourBitOptions& options = {});

/// Which kernel a GPU takes and why: JSON text with `kernel`, predicted `us`, `why`, the kernel's `config` and `forms`,
/// the predicted times of products of 4 bits and, where it is given, of FP8, with the `line` that explains that one.
/// `device`: as of explain(GemmShape). Throws Error(InvalidArgument) for what no call may have.
FINEGEMM_API std::string explain(const FourBitShape& shape, const std::string& device = {});

}  // namespace finegemm
