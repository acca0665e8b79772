// A product with weights of 4 bits as everything behind the public functions sees it. Layer engine.
#pragma once

#include <finegemm/four_bit.h>
#include <finegemm/four_bit/four_bit.h>

#include "ops/gemm/call.h"

namespace finegemm {

constexpr FourBitCodes codes_of(FourBitFormat format) { return static_cast<FourBitCodes>(format); }
inline const char* name_of(FourBitFormat format) { return format == FourBitFormat::Mxfp4 ? "mxfp4" : "int4"; }

/// The options are borrowed.
struct FourBitCall : FourBitArgs {
    const FourBitOptions& options;

    bool stacked() const { return groups.form == GroupForm::Masked || groups.form == GroupForm::Whole; }
    uint32_t n_blocks() const { return ceil_div(static_cast<uint32_t>(b.rows), kScaleBlock); }
    uint32_t k_blocks() const { return ceil_div(static_cast<uint32_t>(b.cols), kScaleBlock); }
};

/// "four_bit_gemm 8x16x4096x7168 mxfp4 masks".
std::string text_of(const FourBitCall& call);

}  // namespace finegemm
