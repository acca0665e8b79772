// A product with weights of 4 bits: as a shape, in words, and as the product of FP8 that it is. Layer engine.
#include "ops/four_bit/call.h"

#include <fmt/format.h>

namespace finegemm {

FourBitShape FourBitCall::shape() const {
    const bool whole = groups.form == GroupForm::Whole;
    const int64_t rows = a.matrix.rows, alignment = row_alignment(groups);
    FourBitShape shape{.format = b.format,
                       .m = rows * a.count,
                       .n = b.rows,
                       .k = b.cols,
                       .num_sms = options.num_sms,
                       .fp8 = has_fp8()};
    if (whole && b.groups == 1) return shape;
    shape.groups = b.groups;
    shape.expected_m = whole ? rows : groups.expected_m;
    shape.alignment = alignment > 1 ? alignment : 0;
    return shape;
}

GemmOptions fp8_options(const FourBitOptions& o) {
    return {.stream = o.stream,
            .numerics = o.numerics,
            .batch_invariant = true,
            .num_sms = o.num_sms,
            .pdl = o.pdl,
            .poll = o.poll};
}

Call fp8_call(const FourBitCall& call, const GemmOptions& options) {
    const bool dense = call.groups.form == GroupForm::Whole && call.b.groups == 1;
    if (dense)
        return {GemmArgs{call.a.matrix, call.sfa.matrix, call.fp8.matrix, call.fp8_scales.matrix, call.d.matrix},
                options};
    return {GroupedGemmArgs{call.a, call.sfa, call.fp8, call.fp8_scales, call.d, call.groups}, options};
}

std::string text_of(const FourBitShape& s) {
    std::string text = fmt::format("four_bit_gemm {}x{}x{} {}", s.m, s.n, s.k, name_of(s.format));
    const auto add = [&](const char* name, int64_t value) {
        if (value > 0) text += fmt::format(" {}={}", name, value);
    };
    add("groups", s.groups.value_or(0)), add("expected_m", s.expected_m), add("alignment", s.alignment);
    add("num_sms", s.num_sms);
    return text + (s.fp8 ? " fp8" : "");
}

}  // namespace finegemm
