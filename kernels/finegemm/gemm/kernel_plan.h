// KernelPlan: every decision that follows from a GemmConfig. Layer gemm.
// kernel_plan() is the one place that decides; the kernel, the host, the CPU model and the tests read its fields.
#pragma once

#include <finegemm/gemm/roles.h>
#include <finegemm/gemm/smem_plan.h>
#include <finegemm/gemm/store_layout.h>

namespace finegemm {

/// How the producer warps share their work.
enum class Producers : uint32_t {
    WarpRoles,   ///< one warp loads all tiles, three load scales
    RoundRobin,  ///< each warp loads every fourth k-block, tiles and scales
};

/// How scales come to shared memory.
enum class ScalePath : uint32_t {
    None,         ///< there are none
    Async,        ///< asynchronous copies from any layout, for which nobody waits
    Vector,       ///< row-major scales of several k-blocks of a row in one load
    Split,        ///< through registers from any layout, as a SplitScale each
    SplitVector,  ///< row-major scales of several k-blocks in one load, as a SplitScale each
    Mx,           ///< through registers from any layout, as an MxScale each
};

/// What a block product is multiplied with when it is added to the sums.
enum class Promotion : uint32_t {
    BlockScale,  ///< 1D2D: products of a row's scale of A and a segment's of B
    RowScale,    ///< 1D1D: products of a row's scale of A and a column's of B, one by one in FP32
    TensorCore,  ///< 1D1D: products that the tensor cores make of split scales (gemm/split_scale.h)
    None,        ///< without scales the tensor cores add block after block to the sums
    Mx,          ///< products of a row's and a column's MxScales, for the products of each 32 of K
    MxProducts,  ///< likewise, products that the tensor cores make
};

/// Bytes of a row's scales in a stage.
FG_HD constexpr uint32_t scale_bytes_of(Promotion promotion) {
    switch (promotion) {
        case Promotion::None: return 0;
        case Promotion::TensorCore: return kSplitScaleBytes;
        case Promotion::Mx:
        case Promotion::MxProducts: return kMxScaleBytes;
        default: return 4;
    }
}

/// How sums become D.
enum class Store : uint32_t {
    Strip,       ///< math warps store strips; f32 is overwritten, or L2 adds to it
    Tma,         ///< TMA stores a tile of panels while the math warps go on
    SourceTile,  ///< the same, after TMA has loaded the old D, or C (the source tile) to add to
    SplitK,      ///< the CTAs of a cluster reduce their partial sums, and each stores a share of the columns
    Registers,   ///< math warps store from registers, after an exchange between the lanes of a row
};

/// Registers of each role: the register file of an SM, dealt out. PTX ISA, setmaxnreg: multiples of 8; a CTA's total
/// may not exceed what it was launched with.
struct RegisterPlan {
    uint32_t launch;  // per thread, as the compiler assigns them from the launch bounds
    uint32_t load;    // of the producer warpgroup, after it has given the rest back
    uint32_t math;    // of each math warpgroup, after it has taken them
    /// Producers give registers to math warpgroups.
    FG_HD constexpr bool move() const { return math > launch; }
};
inline constexpr uint32_t kRegisterFile = 65536;

/// Arrivals that complete each kind of mbarrier: derived from the roles, not written as literals.
struct Arrivals {
    uint32_t full;   // the TMA warp's, which expects the bytes (transaction count), and of each lane of a scale warp
    uint32_t empty;  // of every math warp that reads the stage: of one k-slice, with multicast in the whole cluster
    uint32_t slice_sums;  // of each warp of the earlier k-slice
};

/// How many mbarriers there are of each kind that not all kernels have.
struct Barriers {
    uint32_t partials, slice_sums, source, largest;
};

struct KernelPlan {
    Segments segments;        // of a tile's columns
    bool published_tiles;     // the TMA warp tells the math warps each tile; else all warps run a scheduler
    bool persistent;          // as many clusters as fit, each with many tiles; else one tile for each cluster
    bool waits_before_roles;  // all warps wait for previous kernels; else the warps that load do
    Producers producers;
    uint32_t producers_served;  // CTAs whose producers wait for this CTA's math warps
    ScalePath scale_path;
    bool shifted_scales;           // scales of A lie in a stage as far behind 16 bytes as in memory
    uint32_t scale_vector_blocks;  // k-blocks in a vector that a scale warp holds
    uint32_t vector_scale_warps;   // scale warps that own vectors round-robin
    Promotion promotion;
    uint32_t blocks_in_flight;  // block products of a math warpgroup
    Store store;
    uint32_t strip_cols;  // that a math warp writes to shared memory at once, for Store::Strip
    RegisterPlan registers;
    Arrivals arrivals;
    Barriers barriers;
    uint32_t yield_interval;  // instructions of a promotion from one yield to the next; 0: as ptxas has it
    SmemPlan smem;

    FG_HD constexpr bool tensor_core_scales() const { return promotion == Promotion::TensorCore; }
    /// Products of a k-block, each with registers of its own, as each has factors of its own.
    FG_HD constexpr uint32_t products() const { return promotion == Promotion::Mx ? kMxParts : 1; }
    /// TMA stores D, so that math warps go on with the next tile at once.
    FG_HD constexpr bool tma_store() const { return store == Store::Tma || store == Store::SourceTile; }
    FG_HD constexpr bool loads_source() const { return store == Store::SourceTile; }
};

/// The decisions, each from the configuration and the ones before it.
namespace decide {

/// How many tiles there are, or how many k-blocks a tile of groups has, the device's memory says, which one warp reads.
FG_HD constexpr bool published_tiles(const GemmConfig& c) { return c.grouped(); }

/// Kernels that add up parts of K give each cluster one tile: there need be no hand-shake for the room of partial sums.
FG_HD constexpr bool persistent(const GemmConfig& c) { return c.k_splits() == 1 && c.k_slices() == 1; }

/// Measured: with less a candidate spills. Scale warps that load vectors hold four scales of every row; beside math
/// warps of wide tiles, which need all that they may have, producers make do with the `least`; those that split scales
/// for 136 columns with 40, as with 24 a k-block takes 12% longer.
FG_HD constexpr RegisterPlan registers(const GemmConfig& c, uint32_t least = 24) {
    constexpr uint32_t kMost = 240;
    const bool splits_more = c.row_b_scales() && c.tile_n == 136;
    const uint32_t load = c.scales == ScaleLayout::Rows && c.tile_m > 192 ? 80
                          : c.tile_n > 208                                ? least
                          : splits_more || c.swaps_mx                     ? 40
                                                                          : 56;
    const uint32_t launch = min(kRegisterFile / (c.ctas_per_sm * c.threads()) / 8 * 8, 248);
    const uint32_t math = (launch * c.threads() - load * 128) / (c.math_warpgroups * 128) / 8 * 8;
    return {.launch = launch, .load = load, .math = min(math, kMost)};
}

/// Boxes of an MN-major B take more beside published tiles. In `registers` this would make ptxas spill in 128x208.
FG_HD constexpr uint32_t least_load_registers(const GemmConfig& c) {
    if (published_tiles(c) && pairs_columns(c.finish)) return 40;
    return published_tiles(c) && c.b.major == Major::MN ? 56 : 24;
}

/// A math warpgroup has registers for its sums and for two more sets that `wgmma` writes.
FG_HD constexpr bool holds_three_sets(const GemmConfig& c) {
    constexpr uint32_t kOthers = 28;  // addresses, scales, loop state
    return c.wgmmas() == 1 && 3 * c.tile_n / 2 + kOthers <= registers(c).math;
}

/// With the tensor cores' products of scales, a block product comes with its factors. Narrow tiles, for which shared
/// memory's port has less to do, take up to 10% longer with it.
FG_HD constexpr Promotion promotion(const GemmConfig& c) {
    if (c.b.scaling == Scaling::None) return Promotion::None;
    if (c.mx()) return c.multiplies_mx_scales() ? Promotion::MxProducts : Promotion::Mx;
    if (!c.row_b_scales()) return Promotion::BlockScale;
    return c.tile_n >= 128 && holds_three_sets(c) ? Promotion::TensorCore : Promotion::RowScale;
}

/// A thread takes 190 clocks to issue two loads and 240 to issue three, and three warps are no faster with the scales:
/// small tiles are multiplied in less, so each warp loads every fourth block of them. Larger tiles gain nothing from
/// that, or lose up to 3% (docs/pipeline.md, "Round-robin producers").
///
/// All blocks of a warp are in one k-slice, whose part of the ring has room for the warp's next one: so a stage that it
/// waits for is one round behind at most, which a parity can tell.
FG_HD constexpr Producers producers(const GemmConfig& c) {
    const bool can = c.stages >= kProducerWarps && kProducerWarps % c.k_slices() == 0;
    const bool plain = !published_tiles(c) && c.b.scaling == Scaling::Blocks && c.scales == ScaleLayout::Any;
    const bool small = c.a_sharers() * c.b_sharers() == 1 && c.tile_m * c.tile_n < 128 * 128;
    return can && plain && small ? Producers::RoundRobin : Producers::WarpRoles;
}

FG_HD constexpr ScalePath scale_path(const GemmConfig& c, Promotion promotion) {
    if (promotion == Promotion::None) return ScalePath::None;
    if (promotion == Promotion::Mx || promotion == Promotion::MxProducts) return ScalePath::Mx;
    const bool split = promotion == Promotion::TensorCore;
    if (c.scales == ScaleLayout::Rows) return split ? ScalePath::SplitVector : ScalePath::Vector;
    return split ? ScalePath::Split : ScalePath::Async;
}

/// A group of rows may begin at any row. Where each row of B has a scale, those of A are read while the sums of a tile
/// are promoted, when the shift of the next one is known: these stages have no shift. Nor have those of rows that are
/// found by numbers, which are copied one by one.
FG_HD constexpr bool shifted_scales(const GemmConfig& c) {
    return c.grouping == Grouping::Rows && c.b.scaling == Scaling::Blocks;
}

/// For tiles of 136 columns a scale warp has no registers for vectors of four.
FG_HD constexpr uint32_t scale_vector_blocks(const GemmConfig& c) {
    return c.row_b_scales() && c.tile_n > 128 ? 2 : kScaleVectorBlocks;
}

/// A parity tells a round of the ring from the next one only, so a warp may not skip as many stages as the ring has.
/// Three warps are no faster with vectors of four.
FG_HD constexpr uint32_t vector_scale_warps(const GemmConfig& c, uint32_t vector_blocks) {
    return min(1 + (c.stages - 1) / vector_blocks, vector_blocks < kScaleVectorBlocks ? kScaleWarps : 2);
}

/// With two blocks in flight, the tensor cores work on the next one while this one is promoted; it takes a second set
/// of registers, which only one 64-row WGMMA per warpgroup leaves room for. With several scales of B a promotion takes
/// so long that warpgroups of different rows, which alternate, are faster with one each; k-slices are not (64x48,
/// 64x80: 2% slower), nor are tiles with round-robin producers (128x80, 128x96: 1%). In groups of rows ptxas gives up
/// on two blocks in flight beside an affine epilogue: it then has wgmma wait for each other.
FG_HD constexpr uint32_t blocks_in_flight(const GemmConfig& c, Producers producers) {
    const bool long_promotions = c.several_segments() && producers != Producers::RoundRobin;
    const bool crowded = facts_of(c.finish).loads_source && published_tiles(c);
    const bool alternate = c.row_b_scales() || ((long_promotions || crowded) && c.row_warpgroups() > 1);
    return !alternate && holds_three_sets(c) ? 2 : 1;
}

/// While tensor cores run, an FFMA takes about 1.3 clocks for each register that it reads. A factor that the FFMA
/// before has read, too, comes from the operand cache, but not after a yield; and ptxas lets every second FFMA of
/// most loops yield. Rarer yields make promotions shorter, but the other warpgroup starts its next block product
/// later: the numbers here are the fastest ones of 2, 3, 4, 6, 8, 12, 16 and never, and of 14 and 20 for 128x224,
/// of 20 and 32 for 128 pairs of columns (docs/pipeline.md, "Yield interval"). Narrower tiles lose by any change, but
/// for 128x64 and 128x80 with round-robin producers. Promotions of integers, which ptxas lets never yield, have a
/// conversion beside each FFMA, counted too: the fastest of 8, 16, 32 and never.
FG_HD constexpr uint32_t yield_interval(const GemmConfig& c, Producers producers) {
    if (c.b.scaling == Scaling::None || c.mx()) return 0;
    const bool integers = c.a.element == Element::I8;
    if (c.row_b_scales()) return integers ? 0 : 4;
    const bool narrow = producers == Producers::RoundRobin && c.row_warpgroups() == 2 && c.tile_n >= 64;
    if (c.tile_n < 96 && !narrow) return 0;
    if (c.wgmmas_n() > 1) return 20;
    if (integers) return published_tiles(c) && c.wgmmas_m() == 1 ? 8 : 16;
    return c.wgmmas_m() > 1 ? 16 : c.tile_n > 208 ? 14 : 8;
}

FG_HD constexpr Arrivals arrivals(const GemmConfig& c, ScalePath scale_path) {
    const uint32_t warps = 4 * c.row_warpgroups() * kLanesArrive;
    return {.full = 1 + (scale_path == ScalePath::None ? 0 : kWarpSize),
            .empty = warps * c.a_sharers() * c.b_sharers(),
            .slice_sums = warps};
}

FG_HD constexpr Barriers barriers(const GemmConfig& c, Store store) {
    return {.partials = store == Store::SplitK ? c.row_warpgroups() : 0,
            .slice_sums = c.k_slices() > 1 ? 1u : 0,
            .source = store == Store::SourceTile ? c.math_warpgroups * 4 : 0,
            .largest = c.d_sharers() > 1 ? c.math_warpgroups * 4 * kLargestTurns : 0};
}

/// The layout of shared memory, for a store that has strips of so many columns if it has any.
FG_HD constexpr SmemPlan smem(const GemmConfig& c, Store store, uint32_t strip_cols) {
    SmemPlan p{};
    uint32_t top = 0;
    auto take = [&top](uint32_t bytes, uint32_t alignment) {
        const uint32_t at = align_up(top, alignment);
        top = at + bytes;
        return at;
    };
    const bool split = c.k_splits() > 1, no_d = split || store == Store::Registers,
               by_tma = store == Store::Tma || store == Store::SourceTile;
    p.a_stage = c.tile_m * kRowBytes;  // a multiple of 1024: eight 128-byte rows, one swizzle atom
    p.b_stage = c.tile_n * kRowBytes;
    p.d_warp = no_d          ? 0
               : c.swapped() ? swapped_strip_bytes(c) / 4
               : by_tma      ? c.wgmmas_m() * panels_bytes(c)
                             : kWarpRows * strip_pitch(c, strip_cols);
    const uint32_t of_rank =
        c.swapped() ? split_cols(c) * swapped_split_pitch(c) : c.rows_per_warpgroup() * split_pitch(c);
    p.partials_warpgroup = split ? c.k_splits() * of_rank * 4 : 0;
    const uint32_t scale_bytes = scale_bytes_of(promotion(c));
    p.sfa_stage = (c.tile_m + (shifted_scales(c) ? kScalePiece : 0)) * scale_bytes;
    p.sfb_stage = b_scales(c) * scale_bytes;
    p.tile_stage = published_tiles(c) ? 16 : 0;
    p.a = take(c.stages * p.a_stage, 1024);
    p.b = take(c.stages * p.b_stage, 1024);
    p.d = take(c.row_warpgroups() * 4 * p.d_warp, by_tma ? 1024 : 16);
    p.partials = take(c.row_warpgroups() * p.partials_warpgroup, 16);
    p.sfa = take(c.stages * p.sfa_stage, 16);
    p.sfb = take(c.stages * p.sfb_stage, c.row_b_scales() ? 16 : 8);
    // Behind sfb, whose rows a wgmma reads twice: compute-sanitizer takes that for as many bytes behind them.
    p.zeros = take(promotion(c) == Promotion::TensorCore ? c.math_warpgroups * kZeroRows * kSplitScaleBytes : 0, 16);
    p.tiles = take(c.stages * p.tile_stage, 16);
    p.full = take(c.stages * 8, 8);
    p.empty = take(c.stages * 8, 8);
    p.partials_full = take(split ? c.row_warpgroups() * 8 : 0, 8);
    p.slice_sums_full = take(c.k_slices() > 1 ? 8 : 0, 8);
    p.d_full = take(store == Store::SourceTile ? c.math_warpgroups * 4 * 8 : 0, 8);
    const uint32_t turns = c.d_sharers() > 1 ? c.math_warpgroups * 4 * kLargestTurns : 0;
    p.largest = take(turns * kWarpRows * 4, 16);
    p.largest_full = take(turns * 8, 8);
    p.total = align_up(top, 16) + 1024;  // the driver aligns dynamic shared memory to 16 only; the kernel rounds up
    return p;
}

/// Panels that TMA stores: in f32 none in groups of rows, whose tiles may end where the next group begins (in bf16 math
/// warps copy such panels); in bf16 none in groups of K, whose parameters have room for one map of D.
FG_HD constexpr bool may_have_panels(const GemmConfig& c) {
    return c.grouping != (c.output == Output::F32 ? Grouping::Rows : Grouping::K);
}

/// TMA stores only with room for a whole tile beside the ring; not where each CTA has one tile, and in bf16 not where
/// another CTA works while this one stores. A finish with a source always has the room, to which TMA loads it.
FG_HD constexpr Store store(const GemmConfig& c) {
    if (facts_of(c.finish).loads_source) return Store::SourceTile;
    if (pairs_columns(c.finish)) return Store::Registers;
    if (c.k_splits() > 1) return Store::SplitK;
    if (c.swapped() || finds_rows(c.finish)) return Store::Strip;
    if (c.summed()) return Store::Strip;  // to memory of each call, for which no tensor map is made
    const bool f32 = c.output == Output::F32;
    const bool whole_panels = c.wgmmas_m() == 1 && c.tile_n % kF32PanelCols == 0;
    const bool pays = persistent(c) && may_have_panels(c) && (f32 ? whole_panels : c.ctas_per_sm == 1);
    const Store by_tma = f32 ? Store::SourceTile : Store::Tma;
    return pays && smem(c, by_tma, 0).total <= most_shared(c) ? by_tma : Store::Strip;
}

/// In bf16 a strip is narrower than the widest where the ring leaves no room for that.
FG_HD constexpr uint32_t strip_cols(const GemmConfig& c) {
    uint32_t cols = widest_strip(c);
    if (c.output == Output::F32) return cols;
    while (cols > 16 && (segment_cols(c, 0) % cols != 0 || smem(c, Store::Strip, cols).total > most_shared(c)))
        cols -= 16;
    return cols;
}

}  // namespace decide

FG_HD constexpr KernelPlan kernel_plan(const GemmConfig& c) {
    const Promotion promotion = decide::promotion(c);
    const ScalePath scale_path = decide::scale_path(c, promotion);
    const Producers producers = decide::producers(c);
    const uint32_t vector_blocks = decide::scale_vector_blocks(c);
    const Store store = decide::store(c);
    const uint32_t strip_cols = decide::strip_cols(c);
    return {.segments = Segments::of(c),
            .published_tiles = decide::published_tiles(c),
            .persistent = decide::persistent(c),
            .waits_before_roles = decide::published_tiles(c) || store == Store::SourceTile,
            .producers = producers,
            .producers_served = c.a_sharers() * c.b_sharers(),
            .scale_path = scale_path,
            .shifted_scales = decide::shifted_scales(c),
            .scale_vector_blocks = vector_blocks,
            .vector_scale_warps = decide::vector_scale_warps(c, vector_blocks),
            .promotion = promotion,
            .blocks_in_flight = decide::blocks_in_flight(c, producers),
            .store = store,
            .strip_cols = strip_cols,
            .registers = decide::registers(c, decide::least_load_registers(c)),
            .arrivals = decide::arrivals(c, scale_path),
            .barriers = decide::barriers(c, store),
            .yield_interval = decide::yield_interval(c, producers),
            .smem = decide::smem(c, store, strip_cols)};
}

/// Row pitch of the kernel's strips.
FG_HD constexpr uint32_t strip_pitch(const GemmConfig& c) { return strip_pitch(c, decide::strip_cols(c)); }

/// The plan of a kernel that is compiled.
template <GemmConfig C>
inline constexpr KernelPlan kPlan = kernel_plan(C);

/// The byte of the kernel's strips at which an element of a row lies, from a constant pitch. If the compiler had to
/// work that out at each address, whether it keeps addresses of D from strip to strip, for which wide tiles have no
/// registers, would hang on all that decides about shared memory.
template <GemmConfig C>
FG_HD constexpr uint32_t strip_offset(RowCol at) {
    constexpr uint32_t kPitch = strip_pitch(C);
    return strip_offset(C, kPitch, at);
}

}  // namespace finegemm
