// What follows from a layer's shape: its rows, its memory; and its line of text. Layer engine.
#include "ops/moe/call.h"

#include <algorithm>

#include <finegemm/core/base.h>
#include <fmt/format.h>

#include "ops/four_bit/call.h"
#include "plan/elements.h"

namespace finegemm {

namespace {

constexpr int64_t kLine = 256;  // bytes: parts begin at multiples of it, as a product whose rows do not takes longer

constexpr int64_t blocks(int64_t extent) { return (extent + kScaleBlock - 1) / kScaleBlock; }

/// Hands out memory, one part behind the other.
struct Parts {
    int64_t end = 0;
    int64_t take(int64_t bytes) {
        const int64_t begin = end;
        end += (bytes + kLine - 1) / kLine * kLine;
        return begin;
    }
};

}  // namespace

MoeShape MoeCall::shape() const {
    return {.tokens = x.rows,
            .choices = ids.cols,
            .hidden = x.cols,
            .intermediate = has_four_bit() ? down_packed.cols : down.matrix.cols,
            .experts = has_four_bit() ? gate_up_packed.groups : gate_up.count,
            .rows = options.rows,
            .expected_m = options.expected_m,
            .num_sms = options.num_sms,
            .f32_between = options.f32_between,
            .fused = options.fused,
            .four_bit = has_four_bit() ? std::optional(gate_up_packed.format) : std::nullopt,
            .four_bit_alone = !has_fp8(),
            .biased = has_bias()};
}

int64_t rows_of(const MoeShape& s) { return std::max<int64_t>(s.rows > 0 ? s.rows : s.tokens * s.choices, 1); }

int64_t expected_rows_of(const MoeShape& s) {
    return s.expected_m > 0 ? std::min(s.expected_m * s.experts, rows_of(s)) : rows_of(s);
}

std::optional<bool> fused_by_rule(const MoeShape& s) {
    if (s.intermediate % kScaleBlock != 0 || s.four_bit_alone || s.biased) return false;
    return s.f32_between ? true : s.fused;
}

bool may_store_sums(const MoeShape& s) { return s.choices == 1 && s.tokens > kCountedChoices && !s.biased; }

MoeForms usual_forms(const MoeShape& s) {
    return {fused_by_rule(s).value_or(true), s.four_bit_alone, s.four_bit_alone};
}

MoeMemory memory_of(const MoeShape& s, bool fused) {
    constexpr int64_t kOfBf16 = 2, kOfWord = 4;
    const int64_t rows = rows_of(s);
    MoeMemory m;
    m.scale_stride = (rows + 3) / 4 * 4;
    Parts parts;
    m.inverse = parts.take(s.tokens * s.choices * kOfWord);
    m.offsets = parts.take((s.experts + 1) * kOfWord);
    m.stored = parts.take(!fused && awaits_rows(s) ? s.experts * kOfWord : 0);
    m.permutation = parts.take(s.choices == 1 ? rows * kOfWord : 0);
    m.codes = parts.take(rows * s.intermediate);
    m.code_scales = parts.take(blocks(s.intermediate) * m.scale_stride * kOfWord);
    Parts again = parts;
    m.rows = parts.take(rows * s.hidden);
    m.row_scales = parts.take(blocks(s.hidden) * m.scale_stride * kOfWord);
    m.weights_of_rows = parts.take(rows * kOfWord);
    m.between = parts.take(fused ? 0 : rows * 2 * s.intermediate * kOfBf16);
    m.y = again.take(rows * s.hidden * kOfBf16);
    m.bytes = std::max(parts.end, again.end) + kLine - 1;
    return m;
}

uint8_t* first_line(void* memory) {
    const auto address = reinterpret_cast<uintptr_t>(memory);
    return static_cast<uint8_t*>(memory) + (kLine - address % kLine) % kLine;
}

RouteArgs route_of(const MoeCall& call, const MoeMemory& parts, void* memory) {
    const MoeShape s = call.shape();
    const auto at = [&](int64_t offset) { return first_line(memory) + offset; };
    return {.ids = call.ids,
            .inverse = {at(parts.inverse), DType::I32, s.tokens, s.choices, s.choices, 1, call.device()},
            .numbers = {at(parts.offsets), DType::I32, 1, s.experts + 1, s.experts + 1, 1, call.device()},
            .form = GroupForm::Offsets,
            .experts = s.experts,
            .first = call.first,
            .rows = rows_of(s)};
}

std::string text_of(const MoeCall& call) {
    const MoeShape s = call.shape();
    return fmt::format("moe {}x{} {}, {} of {} experts, {} pairs{}{}", s.tokens, s.hidden, name_of(call.x.dtype),
                       s.choices, s.experts, s.intermediate, s.four_bit ? fmt::format(" {}", name_of(*s.four_bit)) : "",
                       s.biased ? " biased" : "");
}

}  // namespace finegemm
