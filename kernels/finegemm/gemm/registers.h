// How many registers each role may use: the register file of an SM, dealt out.
// Layer gemm. PTX ISA, setmaxnreg: multiples of 8; a CTA's total may not exceed what it was launched with.
#pragma once

#include <finegemm/gemm/arrivals.h>

namespace finegemm {

inline constexpr uint32_t kRegisterFile = 65536;

struct RegisterPlan {
    uint32_t launch;  // per thread, as the compiler assigns them from the launch bounds
    uint32_t load;    // of the producer warpgroup, after it has given the rest back
    uint32_t math;    // of each math warpgroup, after it has taken them
};

FG_HD constexpr RegisterPlan register_plan(const GemmConfig& c) {
    constexpr uint32_t kMost = 240;
    // Measured: with less a candidate spills. Scale warps that load vectors hold four scales of every row; beside math
    // warps of wide tiles, which need all that they may have, producers make do with the least; those that split scales
    // for 136 columns with 40, as with 24 a k-block takes 12% longer.
    const bool splits_more = c.row_b_scales() && c.tile_n == 136;
    const uint32_t load = c.scales == ScaleLayout::Rows && c.tile_m > 192 ? 80
                          : c.tile_n > 208                                ? 24
                          : splits_more                                   ? 40
                                                                          : 56;
    const uint32_t launch = min(kRegisterFile / (c.ctas_per_sm * c.threads()) / 8 * 8, 248);
    const uint32_t math = (launch * c.threads() - load * 128) / (c.math_warpgroups * 128) / 8 * 8;
    return {.launch = launch, .load = load, .math = min(math, kMost)};
}

/// Does a math warpgroup have registers for its sums and two more sets that `wgmma` writes?
FG_HD constexpr bool holds_three_sets(const GemmConfig& c) {
    constexpr uint32_t kOthers = 28;  // addresses, scales, loop state
    return c.wgmmas_m() == 1 && 3 * c.tile_n / 2 + kOthers <= register_plan(c).math;
}

/// Products of scales by the tensor cores (gemm/split_scale.h): a block product comes with its factors. Narrow tiles,
/// for which shared memory's port has less to do, take up to 10% longer with it.
FG_HD constexpr bool tensor_core_scales(const GemmConfig& c) {
    return c.row_b_scales() && c.tile_n >= 128 && holds_three_sets(c);
}

/// Block products that a math warpgroup keeps in flight. With two, the tensor cores work on the next block while this
/// one is promoted; it takes a second set of registers, which only one 64-row WGMMA per warpgroup leaves room for. With
/// several scales of B a promotion takes so long that warpgroups of different rows, which alternate, are faster with
/// one each; k-slices are not (64x48, 64x80: 2% slower), nor are tiles with round-robin producers (128x80, 128x96: 1%).
FG_HD constexpr uint32_t blocks_in_flight(const GemmConfig& c) {
    const bool long_promotions = c.several_segments() && !round_robin_producers(c);
    const bool alternate = c.row_b_scales() || (long_promotions && c.row_warpgroups() > 1);
    return !alternate && holds_three_sets(c) ? 2 : 1;
}

}  // namespace finegemm
