// A product with weights of 4 bits in words. Layer engine.
#include "ops/four_bit/call.h"

#include <fmt/format.h>

#include "ops/gemm/groups.h"

namespace finegemm {

std::string text_of(const FourBitCall& call) {
    const int64_t groups = call.b.groups;
    return fmt::format("four_bit_gemm {}{}x{}x{} {}{}", groups > 1 ? fmt::format("{} groups ", groups) : "",
                       call.a.matrix.rows, call.b.rows, call.b.cols, name_of(call.b.format),
                       call.groups.form == GroupForm::Whole ? "" : fmt::format(" {}", name_of(call.groups.form)));
}

}  // namespace finegemm
