// A product with weights of 4 bits as everything behind the public functions sees it. Layer engine.
#pragma once

#include <string>

#include <finegemm/four_bit.h>
#include <finegemm/four_bit/four_bit.h>

#include "ops/gemm/call.h"

namespace finegemm {

constexpr FourBitCodes codes_of(FourBitFormat format) { return static_cast<FourBitCodes>(format); }
inline const char* name_of(FourBitFormat format) { return format == FourBitFormat::Mxfp4 ? "mxfp4" : "int4"; }

/// The options are borrowed.
struct FourBitCall : FourBitArgs {
    const FourBitOptions& options;

    bool has_fp8() const { return fp8.matrix.data != nullptr; }
    /// What the planner may see of it.
    FourBitShape shape() const;
    bool stacked() const { return groups.form == GroupForm::Masked || groups.form == GroupForm::Whole; }
    uint32_t n_blocks() const { return ceil_div(static_cast<uint32_t>(b.rows), kScaleBlock); }
    uint32_t k_blocks() const { return ceil_div(static_cast<uint32_t>(b.cols), kScaleBlock); }
};

/// The product of FP8 that the weights are. `options`: with those of the call.
GemmOptions fp8_options(const FourBitOptions& options);
Call fp8_call(const FourBitCall& call, const GemmOptions& options);

/// A line as the command line takes it: "four_bit_gemm 128x4096x7168 mxfp4 groups=8 expected_m=16 fp8".
std::string text_of(const FourBitShape& shape);

}  // namespace finegemm
