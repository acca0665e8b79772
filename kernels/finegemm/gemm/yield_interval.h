// How often a promotion lets other warps issue. Layer gemm.
#pragma once

#include <finegemm/gemm/arrivals.h>

namespace finegemm {

/// Yield interval: a promotion yields once in so many instructions; 0: as ptxas has it.
///
/// While tensor cores run, an FFMA takes about 1.3 clocks for each register that it reads. A factor that the FFMA
/// before has read, too, comes from the operand cache, but not after a yield; and ptxas lets every second FFMA of
/// most loops yield. Rarer yields make promotions shorter, but the other warpgroup starts its next block product
/// later: the numbers here are the fastest ones of 2, 3, 4, 6, 8, 12, 16 and never, and of 14 and 20 for 128x224
/// (docs/pipeline.md, "Yield interval"). Narrower tiles lose by any change, but for 128x64 and 128x80 with round-robin
/// producers.
FG_HD constexpr uint32_t yield_interval(const GemmConfig& c) {
    if (c.row_b_scales()) return 4;
    const bool narrow = round_robin_producers(c) && c.row_warpgroups() == 2 && c.tile_n >= 64;
    if (c.tile_n < 96 && !narrow) return 0;
    return c.wgmmas_m() > 1 ? 16 : c.tile_n > 208 ? 14 : 8;
}

}  // namespace finegemm
