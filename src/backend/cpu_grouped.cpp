// The grouped GEMM on the CPU: a GEMM for each stretch of rows of one group, the tiles of all of them over threads.
// Layer backend.
#include "backend/cpu_grouped.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "backend/cpu_gemm.h"

namespace finegemm {

namespace {

/// Rows of matrix i.
template <typename AnyStack>
auto part_of(const AnyStack& stack, int64_t i, RowRange rows) {
    auto part = stack.matrix;
    using Byte = std::conditional_t<std::is_same_v<decltype(part), ConstMatrix>, const uint8_t, uint8_t>;
    part.data = static_cast<Byte*>(part.data) + (i * stack.stride + rows.begin * part.row_stride) * size_of(part.dtype);
    part.rows = rows.size();
    return part;
}

}  // namespace

GemmArgs gemm_of(const GroupedGemmArgs& args, const GroupRows& of, bool stacked) {
    const int64_t of_rows = stacked ? of.group : 0;
    GemmArgs part{.a = {}, .sfa = {}, .b = {}, .sfb = {}, .d = part_of(args.d, of_rows, of.rows)};
    if (of.group < 0) return part;
    const auto whole = [&](const ConstStack& stack) {
        return part_of(stack, of.group, {0, static_cast<uint32_t>(stack.matrix.rows)});
    };
    part.a = part_of(args.a, of_rows, of.rows);
    part.sfa = part_of(args.sfa, of_rows, of.rows);
    part.b = whole(args.b);
    part.sfb = whole(args.sfb);
    return part;
}

namespace {

void write_zeros(const CpuTile& t) {
    for (int64_t r = t.row; r < t.row + t.rows; ++r)
        std::fill_n(static_cast<uint16_t*>(t.args.d.data) + r * t.args.d.row_stride + t.col, t.cols, uint16_t{0});
}

}  // namespace

void cpu_grouped_gemm(const GroupedGemmArgs& args, const GemmOptions& options, ThreadPool& pool) {
    const GroupLayout layout = layout_of(args);
    const std::vector<GroupRows> parts = rows_by_group(layout);
    std::vector<int64_t> ends;  // of each part's tiles, in one count for all
    for (const GroupRows& of : parts)
        ends.push_back((ends.empty() ? 0 : ends.back()) + cpu_tiles_of(of.rows.size(), args.d.matrix.cols));
    pool.parallel_for(ends.empty() ? 0 : ends.back(), [&](int64_t i) {
        const auto at = static_cast<size_t>(std::ranges::upper_bound(ends, i) - ends.begin());
        const GemmArgs part = gemm_of(args, parts[at], layout.stacked);
        const CpuTile tile = cpu_tile_at(part, at == 0 ? i : i - ends[at - 1]);
        if (parts[at].group < 0) write_zeros(tile);
        else cpu_gemm_tile(tile, options.numerics, Arithmetic{});  // a row's bits depend on its group alone
    });
}

}  // namespace finegemm
