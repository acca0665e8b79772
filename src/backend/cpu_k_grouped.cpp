// The K-grouped GEMM on the CPU: a GEMM for each group, the tiles of all of them over threads. Layer backend.
#include "backend/cpu_k_grouped.h"

#include <vector>

#include "backend/cpu_gemm.h"

namespace finegemm {

namespace {

/// `count` columns from `first` on.
ConstMatrix columns_of(ConstMatrix x, int64_t first, int64_t count) {
    x.data = static_cast<const uint8_t*>(x.data) + first * x.col_stride * size_of(x.dtype);
    x.cols = count;
    return x;
}

/// A group's part of A or B, whose elements are bytes: `count` of K from `first` on.
ConstMatrix part_of(ConstMatrix x, KLayout layout, int64_t first, int64_t count) {
    if (layout == KLayout::Columns) return columns_of(x, first, count);
    x.data = static_cast<const uint8_t*>(x.data) + x.rows * first;
    x.cols = x.row_stride = count;
    return x;
}

}  // namespace

GemmArgs gemm_of(const KGroupedGemmArgs& args, uint32_t g, KRange blocks) {
    const int64_t k = int64_t{blocks.begin} * kScaleBlock, length = int64_t{blocks.size()} * kScaleBlock;
    GemmArgs part{.a = part_of(args.a, args.layout, k, length),
                  .sfa = columns_of(args.sfa, blocks.begin, blocks.size()),
                  .b = part_of(args.b, args.layout, k, length),
                  .sfb = columns_of(args.sfb, blocks.begin, blocks.size()),
                  .d = args.d.matrix};
    part.d.data = static_cast<float*>(part.d.data) + g * args.d.stride;
    return part;
}

plan::Problem problem_of(const KGroupedGemmArgs& args, bool batch_invariant, const GemmOptions& options) {
    return {.m = static_cast<uint32_t>(args.d.matrix.rows),
            .n = static_cast<uint32_t>(args.d.matrix.cols),
            .k = static_cast<uint32_t>(args.a.cols),
            .batch_invariant = batch_invariant,
            .num_sms = static_cast<uint32_t>(options.num_sms),
            .b_scales = ScaleBlocks::Rows,
            .output = Output::F32,
            .accumulate = options.accumulate,
            .k_groups = static_cast<uint32_t>(args.groups)};
}

void cpu_k_grouped_gemm(const KGroupedGemmArgs& args, const GemmOptions& options, ThreadPool& pool) {
    const KGroupLayout layout = layout_of(args);
    std::vector<GemmArgs> parts;
    for (uint32_t g = 0; g < layout.groups; ++g)
        if (const KRange blocks = layout.group(g); blocks.size() > 0 || !options.accumulate)
            parts.push_back(gemm_of(args, g, blocks));
    const bool model = options.numerics == Numerics::Hopper && !parts.empty() && args.a.cols > 0;
    const Arithmetic kernel =
        model ? arithmetic_of(problem_of(args, options.batch_invariant.value_or(false), options), options.config)
              : Arithmetic{};
    const int64_t tiles = cpu_tiles_of(args.d.matrix.rows, args.d.matrix.cols);
    pool.parallel_for(tiles * static_cast<int64_t>(parts.size()), [&](int64_t i) {
        const CpuTile tile = cpu_tile_at(parts[static_cast<size_t>(i / tiles)], i % tiles);
        cpu_gemm_tile(tile, options.numerics, kernel, options.accumulate);
    });
}

}  // namespace finegemm
