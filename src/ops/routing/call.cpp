// Calls of routing as lines of text, and checks of the numbers that they are told. Layer engine.
#include "ops/routing/call.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "engine/any_address.h"
#include "ops/gemm/groups.h"
#include "plan/elements.h"
#include "plan/reject.h"

namespace finegemm {

namespace {

RouteForm form_of(GroupForm form) {
    switch (form) {
        case GroupForm::Indices: return RouteForm::Indices;
        case GroupForm::PrefixSums: return RouteForm::PrefixSums;
        case GroupForm::Masked: return RouteForm::Masked;
        default: return RouteForm::Offsets;
    }
}

void check_row(int64_t row, int64_t rows, int64_t t, int64_t c) {
    if (row < kNoRow || row >= rows)
        reject("inverse", "[{}, {}] is {}, must be from 0 to {}, or -1 for none; look at what computed it", t, c, row,
               rows - 1);
}

/// Calls visit(row, t, c) for each choice.
template <typename Visit>
void for_inverse(const ConstMatrix& inverse, const Visit& visit) {
    for (int64_t t = 0; t < inverse.rows; ++t)
        for (int64_t c = 0; c < inverse.cols; ++c) visit(load<int32_t>(inverse.data, t * inverse.row_stride + c), t, c);
}

}  // namespace

RoutePlaces RouteCall::places() const {
    const bool aligned = form == GroupForm::Indices || form == GroupForm::PrefixSums;
    return {.experts = static_cast<uint32_t>(experts),
            .rows = static_cast<uint32_t>(rows),
            .alignment = aligned ? static_cast<uint32_t>(alignment) : 1,
            .form = form_of(form)};
}

RowStack rows_of(const ConstStack& stack, int64_t unit) {
    const ConstMatrix& m = stack.matrix;
    const auto height = static_cast<uint32_t>(std::max<int64_t>(m.rows, 1));
    return {.rows = static_cast<uint32_t>(stack.count * m.rows),
            .by_height = Divider::by(height),
            .row_stride = m.row_stride * unit,
            .stride = stack.stride * unit};
}

std::string text_of(const RouteCall& call) {
    return fmt::format("route {}x{} to {} experts, {}", call.ids.rows, call.ids.cols, call.experts, name_of(call.form));
}

std::string text_of(const PermuteCall& call) {
    return fmt::format("permute_quantize {}x{} {} to {} rows {}", call.x.rows, call.x.cols, name_of(call.x.dtype),
                       call.rows(), name_of(call.q.matrix.dtype));
}

std::string text_of(const CombineCall& call) {
    return fmt::format("combine {} rows to {}x{} of {}", call.rows(), call.out.rows, call.out.cols, call.inverse.cols);
}

int64_t id_of(const ConstMatrix& ids, int64_t t, int64_t c) {
    const int64_t at = t * ids.row_stride + c;
    return ids.dtype == DType::I64 ? load<int64_t>(ids.data, at) : load<int32_t>(ids.data, at);
}

void check_numbers(const RouteCall& call) {
    const RoutePlaces places = call.places();
    std::array<int64_t, kMostExperts + 1> choices{};
    for (int64_t t = 0; t < call.ids.rows; ++t)
        for (int64_t c = 0; c < call.ids.cols; ++c) ++choices[places.expert(id_of(call.ids, t, c), call.first)];
    int64_t end = 0;
    for (uint32_t e = 0; e < places.experts; ++e) {
        const int64_t of_expert = choices[e], id = call.first + e;
        if (places.masked() && of_expert > call.rows)
            reject("ids",
                   "choose expert {} {} times, but there are {} rows for each expert; pass memory with more rows, or "
                   "limit what is chosen",
                   id, of_expert, call.rows);
        if (of_expert == 0) continue;
        end = (end + places.alignment - 1) / places.alignment * places.alignment + of_expert;
        if (!places.masked() && end > call.rows)
            reject("ids",
                   "choose so often that the rows of expert {} end at {}, but there are {} rows; pass memory with more "
                   "rows: T * k + E * (alignment - 1) are always enough",
                   id, end, call.rows);
    }
}

void check_numbers(const PermuteCall& call) {
    std::vector<bool> taken(static_cast<size_t>(call.rows()));
    for_inverse(call.inverse, [&](int64_t row, int64_t t, int64_t c) {
        check_row(row, call.rows(), t, c);
        if (row == kNoRow) return;
        if (taken[static_cast<size_t>(row)])
            reject("inverse", "[{}, {}] is {}, as another one is, but a row has one token; look at what computed it", t,
                   c, row);
        taken[static_cast<size_t>(row)] = true;
    });
}

void check_numbers(const CombineCall& call) {
    for_inverse(call.inverse, [&](int64_t row, int64_t t, int64_t c) { check_row(row, call.rows(), t, c); });
}

}  // namespace finegemm
