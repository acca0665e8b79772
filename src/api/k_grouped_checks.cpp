// Argument checks of the K-grouped GEMM. Layer api.
#include <finegemm/core/base.h>

#include "api/argument.h"
#include "api/checks.h"
#include "backend/check_groups.h"

namespace finegemm {

namespace {

constexpr const char* kWholeBlocks = "must be a multiple of 128, as each group has whole blocks; pad groups with zeros";
static_assert(kScaleBlock == 128);

/// Checks groups that are blocks of their own.
void check_blocks(const KGroupedGemmArgs& args, const Argument& a, const Argument& b) {
    for (const Argument& x : {a, b})
        if (!x.empty() && x.x.rows > 1 && x.x.row_stride != x.x.cols)
            reject(x.name,
                   "has row stride {}, must be its {} columns where groups are blocks, which lie one behind the other "
                   "without gaps; make it contiguous",
                   x.x.row_stride, x.x.cols);
    if (args.offsets_device.type != DeviceType::Cpu)
        reject("offsets",
               "are not on the CPU, must be there where groups are blocks, whose rows are as long as their "
               "groups; copy them to the host, or lay groups out as columns");
}

}  // namespace

void check_k_grouped_shape(const KGroupedShape& shape) {
    check_group_count(shape.groups);
    if (shape.k % kScaleBlock != 0) reject("K", "is {}, {}", shape.k, kWholeBlocks);
}

void check_k_grouped(const KGroupedGemmArgs& args, const GemmOptions& options) {
    const ConstMatrix d_view = args.d.matrix;
    const Argument a{"a", args.a}, sfa{"sfa", args.sfa}, b{"b", args.b}, sfb{"sfb", args.sfb};
    const Argument d{"d", d_view, args.d.count, args.d.stride};
    check_group_count(args.groups);
    if (d.count != args.groups)
        reject("d", "has {} matrices, must have {}, one for each group; pass a stack", d.count, args.groups);
    check_operands(a, sfa, b, sfb, d, BScales::Rows);
    if (a.x.cols % kScaleBlock != 0) reject("a", "has K = {} columns, {}", a.x.cols, kWholeBlocks);

    if (args.layout != KLayout::Columns && args.layout != KLayout::Blocks)
        reject("layout", "is {}, must be 0 (columns) or 1 (blocks); pass one of them",
               static_cast<int32_t>(args.layout));
    if (args.layout == KLayout::Blocks) check_blocks(args, a, b);
    const Device where = args.offsets_device.type == DeviceType::Cpu ? Device{} : d.x.device;
    check_numbers({"offsets", args.offsets, args.groups + 1, args.offsets_device}, where, d);
    if (where.type == DeviceType::Cpu) check_k_offsets(args);
    check_no_prefetch(options);
    const bool launches = d.x.device.type == DeviceType::Cuda && !d.empty() && a.x.cols > 0;
    check_gemm_options(options, launches);
}

}  // namespace finegemm
