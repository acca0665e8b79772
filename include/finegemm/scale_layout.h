// Layouts of scales: other strides, exponents (UE8M0) packed four to a word, and back. Layer: public.
#pragma once

#include <finegemm/gemm.h>

namespace finegemm {

/// What the numbers of ScaleGroups mean. The values are part of the C ABI.
enum class ScaleGroupForm : int32_t {
    None = 0,
    Rows = 1,        ///< group g ends at row data[g] of `out` and begins at the next multiple of `alignment` after the
                     ///< one before. Rows of no group become 0, and `sf` is not read there
    KSizes = 2,      ///< group g has data[g] k: the next ceil(data[g] / scale_k) columns of `sf`. They are packed into
                     ///< words of their own. Words behind those of all groups become 0
    KPrefixSums = 3  ///< likewise, by where each group ends: it begins as in Rows. Columns of `sf` have no gaps
};

/// Numbers on the device of `out`, read when the work is done, so that they may be the result of work queued before it.
/// Numbers that break the rules never lead outside of the matrices.
struct ScaleGroups {
    ScaleGroupForm form = ScaleGroupForm::None;
    const int32_t* data = nullptr;
    int64_t size = 0;         ///< of data: the number of groups, from 1 to 4096
    int64_t alignment = 128;  ///< from 1 to 2^30; of Rows and KPrefixSums
    int64_t scale_k = 128;    ///< k that a scale serves, from 1 to 2^30; of KSizes and KPrefixSums
    Device device{};
};

/// Both are f32, or packed (UE8M0x4): four exponents in a word, the first column's in its lowest byte. They may differ
/// in strides, in format, and in rows: `sf` has as many as `out`, or one for each 128 of them, which is repeated.
struct ScaleLayoutArgs {
    ConstStack sf;  ///< [R, K] f32, or [R, ceil(K/4)] packed; any strides that are not negative
    Stack out;      ///< the same, or with groups of K [R, any] packed; each element has a place of its own
    ScaleGroups groups{};
};

struct ScaleLayoutOptions {
    bool power_of_two_scales = false;  ///< round |scale| up to a power of two from 2^-126 to 2^127, 0 to the least,
                                       ///< infinity and NaN to the largest; `sf` is f32 then
    Stream stream = nullptr;           ///< CUDA only
    Poll poll{};                       ///< as GemmOptions::poll
};

/// Writes the scales in the layout of `out`, which shares no memory with `sf`. f32 that are packed lose sign and
/// mantissa: those that are powers of two lose nothing; 0 and subnormal numbers become exponent 0, infinity and NaN
/// 255. Unpacked, exponent e is 2^(e - 127), 0 is 0.0 and 255 infinity. Missing columns of the last word are 0. Padding
/// of `out` is not written. On CUDA addresses are multiples of 4; where columns of `out` are contiguous at multiples of
/// 16 bytes, as TMA asks for, stores are the fastest. Not more than 2^31 - 1 tiles of up to 4096 elements. CPU and GPU
/// give the same bits. Throws Error: InvalidArgument, Unsupported, Driver, Compile.
FINEGEMM_API void scale_layout(Context& context, const ScaleLayoutArgs& args, const ScaleLayoutOptions& options = {});

}  // namespace finegemm
