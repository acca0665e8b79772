// Argument checks of the K-grouped GEMM. Layer api.
#include <finegemm/core/base.h>

#include "api/argument.h"
#include "api/checks.h"

namespace finegemm {

void check_k_grouped(const KGroupedGemmArgs& args, const GemmOptions& options) {
    const ConstMatrix d_view = args.d.matrix;
    const Argument a{"a", args.a}, sfa{"sfa", args.sfa}, b{"b", args.b}, sfb{"sfb", args.sfb};
    const Argument d{"d", d_view, args.d.count, args.d.stride};
    if (args.groups < 1 || args.groups > kMaxGroups)
        reject("groups", "is {}, must be from 1 to {}; use several calls for more", args.groups, kMaxGroups);
    if (d.count != args.groups)
        reject("d", "has {} matrices, must have {}, one for each group; pass a stack", d.count, args.groups);
    check_operands(a, sfa, b, sfb, d, BScales::Rows);
    if (a.x.cols % kScaleBlock != 0)
        reject("a",
               "has K = {} columns, must be a multiple of {}, as each group has whole blocks; pad groups with zeros",
               a.x.cols, kScaleBlock);

    check_numbers({"offsets", args.offsets, args.groups + 1, args.offsets_device}, d.x.device, d);
    const bool launches = d.x.device.type == DeviceType::Cuda && !d.empty() && a.x.cols > 0;
    check_gemm_options(options, launches);
}

}  // namespace finegemm
