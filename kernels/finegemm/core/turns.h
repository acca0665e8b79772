// How often a promotion lets other warps issue. Layer core.
#pragma once

#include <finegemm/core/registers.h>

namespace finegemm {

/// Instructions of a promotion after which a math warp yields once; 0: as the compiler has it.
///
/// While tensor cores run, an FFMA takes about 1.3 clocks for each register that it reads. A factor that the FFMA before
/// has read, too, comes from the operand cache, but not after a yield; and ptxas lets every second FFMA of most loops
/// yield. Rarer turns make promotions shorter, but the other warpgroup starts its next block product later: the numbers
/// here are the fastest ones of 2, 3, 4, 6, 8, 12, 16 and never (docs/kernel.md, "Turns"). Smaller tiles than these lose
/// by any change.
FG_HD constexpr uint32_t promotion_turn(const GemmConfig& c) {
    if (c.row_b_scales()) return c.wgmmas_m() > 1 ? 4 : 0;
    if (c.tile_m * c.tile_n < 128 * 128) return 0;
    if (c.math_warpgroups == 3 || blocks_in_flight(c) == 2) return 8;
    return c.wgmmas_m() > 1 ? 16 : 12;
}

}  // namespace finegemm
