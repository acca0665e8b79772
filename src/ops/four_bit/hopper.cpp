// A product with weights of 4 bits as a launch. Layer engine.
#include "ops/four_bit/hopper.h"

#include <algorithm>

#include <finegemm/core/tma_box.h>

#include "cuda/tensor_map.h"
#include "ops/four_bit/planner.h"
#include "ops/gemm/groups.h"

namespace finegemm {

namespace {

int64_t number_of(const void* data) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(data)); }

/// Rows of A, of which a box has so many with a k-block. A stride that no step is taken with may be anything.
TensorMap map_of(const ConstStack& a, uint32_t box_rows, const cuda::Driver& driver) {
    const ConstMatrix& x = a.matrix;
    const int64_t row_stride = x.rows > 1 ? x.row_stride : align_up(static_cast<uint32_t>(x.cols), 16);
    return cuda::encode(driver,
                        {.data = x.data,
                         .rows = static_cast<uint64_t>(x.rows),
                         .cols = static_cast<uint64_t>(x.cols),
                         .row_stride_bytes = static_cast<uint64_t>(row_stride),
                         .count = static_cast<uint64_t>(a.count),
                         .stride_bytes = static_cast<uint64_t>(a.count > 1 ? a.stride : row_stride)},
                        {.rows = box_rows, .cols = kScaleBlock, .swizzle = Swizzle::B128});
}

GroupLayout layout_of(const FourBitCall& call) {
    const ConstStack codes{{nullptr, DType::E4M3, call.b.rows, call.b.cols, call.b.cols}, call.b.groups, 0};
    const GemmOptions options{};
    return row_layout_of(Call({call.a, call.sfa, codes, codes, call.d, call.groups}, options));
}

/// Tiles at most: of each matrix, or of rows that groups share, where each begins a tile.
uint64_t tiles_of(const FourBitCall& call, uint32_t tile_rows, uint32_t n_tiles) {
    const auto rows = static_cast<uint64_t>(call.a.matrix.rows), groups = static_cast<uint64_t>(call.b.groups);
    const uint64_t of_rows = (rows + tile_rows - 1) / tile_rows;
    return (call.stacked() ? of_rows * groups : std::min(of_rows + groups, rows)) * n_tiles;
}

}  // namespace

FourBitCallKey call_key(const FourBitCall& call) {
    const auto& [a, sfa, b, d, groups, fp8, fp8_scales] = static_cast<const FourBitArgs&>(call);
    return {number_of(a.matrix.data),
            a.matrix.rows,
            a.matrix.row_stride,
            a.count,
            a.stride,
            number_of(sfa.matrix.data),
            sfa.matrix.row_stride,
            sfa.matrix.col_stride,
            sfa.stride,
            number_of(b.data),
            static_cast<int64_t>(b.format),
            b.groups,
            b.rows,
            b.cols,
            number_of(d.matrix.data),
            d.matrix.row_stride,
            d.stride,
            static_cast<int64_t>(groups.form),
            number_of(groups.data),
            groups.size,
            groups.alignment,
            groups.expected_m,
            call.options.num_sms};
}

FourBitLaunch launch_of(const FourBitCall& call, const cuda::Driver& driver, const plan::DeviceSpec& device) {
    const plan::Problem fp8 = plan::problem_of(fp8_shape(call.shape()));
    return launch_of(call, driver, device.sms, four_bit_cost(fp8, device).rows);
}

FourBitLaunch launch_of(const FourBitCall& call, const cuda::Driver& driver, uint32_t sms, FourBitRows rows) {
    const FourBitConfig config{codes_of(call.b.format), rows};
    FourBitParams p{};
    p.a = map_of(call.a, config.box_rows(), driver);
    p.b = static_cast<const uint8_t*>(call.b.data);
    p.sfa = static_cast<const float*>(call.sfa.matrix.data);
    p.d = static_cast<uint16_t*>(call.d.matrix.data);
    p.sfa_row_stride = call.sfa.matrix.row_stride;
    p.sfa_col_stride = call.sfa.matrix.col_stride;
    p.sfa_stride = call.sfa.stride;
    p.d_row_stride = call.d.matrix.row_stride;
    p.d_stride = call.d.stride;
    p.groups = layout_of(call);
    p.n = static_cast<uint32_t>(call.b.rows);
    p.n_blocks = call.n_blocks();
    p.k_blocks = call.k_blocks();
    const auto budget = static_cast<uint32_t>(call.options.num_sms);
    const uint32_t ctas = budget > 0 ? std::min(budget, sms) : sms;
    const uint64_t tiles = tiles_of(call, config.tile_rows(), p.n_tiles(config));
    return {config, p, static_cast<uint32_t>(std::clamp<uint64_t>(tiles, 1, ctas))};
}

}  // namespace finegemm
