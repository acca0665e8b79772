// GemmConfig: everything about a GEMM kernel that is fixed when it is compiled. Shapes are not in it.
// Layer gemm. One value is at once the template argument, the cache key, the log line and the JSON row.
#pragma once

#include <finegemm/gemm/finish.h>

namespace finegemm {

/// How the CTAs of one cluster work together.
enum class ClusterUse : uint32_t {
    None,    ///< clusters of one CTA
    ShareA,  ///< neighbours along N: each loads its part of the A tile and multicasts it to all
    ShareB,  ///< neighbours along M: each loads its part of the B tile and multicasts it to all
    SplitK,  ///< one output tile: each takes a range of K; partial sums meet through distributed shared memory
};

/// Layout of the row scales that a kernel reads: of A, and with 1D1D scales of B, too.
enum class ScaleLayout : uint32_t {
    Any,   ///< any strides
    Rows,  ///< row-major, loaded as vectors of kScaleVectorBlocks k-blocks of a row (has_scale_vectors)
};

/// How one kernel computes several products.
enum class Grouping : uint32_t {
    None,  ///< one product
    Rows,  ///< groups of rows, each with a B of its own; their sizes are in the device's memory (core/group_layout.h)
    K,     ///< groups of k-blocks, each with a D of its own, which all have one shape; likewise
    Sum,   ///< the matrices of two stacks, whose products are added up: K is cut into pieces, of which each has sums of
           ///< its own, and another kernel adds these (device/add_pieces.cuh)
};

/// The elements of D.
enum class Output : uint32_t {
    BF16,
    F32,  ///< overwritten or added to
    F16,
};

/// The elements of A or B.
enum class Element : uint32_t {
    E4M3,
    BF16,
    F16,
    E5M2,
    I8,
};
FG_HD constexpr uint32_t bytes_of(Element element) {
    return element == Element::BF16 || element == Element::F16 ? 2 : 1;
}

/// What one scale serves, for 128 of K. A has scales of rows; those of B make a product 1D2D (blocks) or 1D1D (rows).
enum class Scaling : uint32_t {
    Blocks,  ///< 128 rows
    Rows,    ///< one row
    None,    ///< there are no scales
    Mx,      ///< one row and 32 of K: powers of two, the exponents of a k-block's four in a word (gemm/mx_scale.h)
};

/// Which extent of an operand is contiguous in memory.
enum class Major : uint32_t {
    K,   ///< K: A is [M, K] and B [N, K], row-major
    MN,  ///< M or N: A is [K, M], B [K, N], row-major; elements of two bytes only, which alone wgmma takes so
};

/// What a kernel must know of A or of B.
struct Operand {
    Element element = Element::E4M3;
    Scaling scaling = Scaling::Rows;
    Major major = Major::K;

    constexpr bool operator==(const Operand&) const = default;
};
inline constexpr Operand kRowScaled{.scaling = Scaling::Rows}, kBlockScaled{.scaling = Scaling::Blocks};
FG_HD constexpr Operand unscaled(Element element, Major major = Major::K) {
    return {.element = element, .scaling = Scaling::None, .major = major};
}

/// Bytes of A's and B's rows in a stage, whatever the element: as wide as the swizzle, and four wgmma of 32 bytes.
inline constexpr uint32_t kRowBytes = 128;
/// Elements of M or N in such a row of an MN-major operand, and of K in a box of these rows: a k-block.
inline constexpr uint32_t kMnBox = kRowBytes / 2;

/// Rows of the boxes that together have `rows` rows of A or B.
FG_HD constexpr uint32_t loaded_rows(const Operand& operand, uint32_t rows) {
    return operand.major == Major::MN ? align_up(rows, kMnBox) : rows;
}

/// Rows of a tile come in so many for WGMMAs of a swapped product: what stmatrix stores at once.
inline constexpr uint32_t kSwappedStep = 16;

// Sources of kernels that pair columns say so. In all others what only these ask is not asked: the compilers order
// instructions of some anew with it, and spill registers.
#if defined(__CUDACC__) && !defined(FG_PAIRS_COLUMNS)
#define FG_LACKS_PAIRS
#endif

struct GemmConfig {
    uint32_t tile_m = 128;         // rows of D that one CTA computes: 64 * math_warpgroups * {1/2, 1, 2}, or 16 or 32
                                   // (swaps_mx)
    uint32_t tile_n = 128;         // columns of D that one CTA computes, at most 256: segment_cols
    uint32_t stages = 4;           // slots of the shared-memory ring, a multiple of k_slices(); one slot holds 128 of K
    uint32_t math_warpgroups = 2;  // each owns rows_per_warpgroup rows
    uint32_t cluster = 1;          // CTAs in a cluster
    ClusterUse cluster_use = ClusterUse::None;
    uint32_t ctas_per_sm = 1;  // bounds registers and shared memory
    ScaleLayout scales = ScaleLayout::Any;
    Grouping grouping = Grouping::None;
    Operand a = kRowScaled, b = kBlockScaled;
    Output output = Output::BF16;
    Finish finish = Finish::None;
    /// Each CTA counts the rows of groups in few choices of tokens (ChoiceParams), so that it knows its tiles, and
    /// loads B, before the kernels before this one have ended.
    bool counts_choices = false;
    /// Counts in memory what has been stored of each group (ReportParams), so that the kernel behind this one takes
    /// groups while others are multiplied.
    bool reports_rows = false;
    /// At most 64 rows of a product with MX scales of both, swapped, 64 columns to a tile: a promotion takes as long as
    /// WGMMAs have columns. Follows from the fields above; calls of what it follows from would make ptxas order
    /// instructions of other kernels otherwise.
    bool swaps_mx = has_few_mx_rows();
    FG_HD constexpr bool has_few_mx_rows() const {
        return tile_m < 64 || (a.scaling == Scaling::Mx && tile_m == 64 && tile_n == 64);
    }

    constexpr bool operator==(const GemmConfig&) const = default;

    /// Elements of K in a stage: a k-block.
    FG_HD constexpr uint32_t tile_k() const { return kRowBytes / bytes_of(a.element); }
    FG_HD constexpr uint32_t threads() const { return (math_warpgroups + 1) * 128; }
    /// K-slices: when 64 rows leave warpgroups idle, two of them compute the same rows, each over every second k-block;
    /// their sums are added before the epilogue (gemm/k_slices.h). Each slice has stages of its own, as a parity tells
    /// a round of the ring from the next one only. Fewer rows than 64 are as many to a warpgroup.
    FG_HD constexpr uint32_t k_slices() const { return max(1, math_warpgroups * 64 / max(64, tile_m)); }
    /// Warpgroups that share the rows of a tile.
    FG_HD constexpr uint32_t row_warpgroups() const { return math_warpgroups / k_slices(); }
    FG_HD constexpr uint32_t rows_per_warpgroup() const { return tile_m / row_warpgroups(); }
    /// Products of scales of MX products with this many rows to a tile the tensor cores make, so that a promotion takes
    /// one instruction. Fewer rows of one product take up to 5% longer with it.
    FG_HD constexpr bool multiplies_mx_scales() const { return swaps_mx && tile_m == 64; }
    /// Swapped: WGMMAs have columns of D for their 64 rows, a warpgroup 64 of them, and rows of a tile for their
    /// columns, which come in sixteens. Groups of rows seldom fill 64.
    FG_HD constexpr bool swapped() const {
        return swaps_mx || (row_groups() && b.scaling == Scaling::None && rows_per_warpgroup() > 64 &&
                            tile_n == 64 * math_warpgroups);
    }
    /// Rows of a tile that are multiplied together: what a tile lacks of them takes time like others.
    FG_HD constexpr uint32_t row_step() const { return swapped() ? kSwappedStep : rows_per_warpgroup(); }
    /// 64-row WGMMAs that one warpgroup stacks.
    FG_HD constexpr uint32_t wgmmas_m() const { return swapped() ? 1 : rows_per_warpgroup() / 64; }
    /// WGMMAs of one warpgroup side by side: of 128 gates of a tile and of their ups, for which there are no registers
    /// at once. Each has a segment.
#ifdef FG_LACKS_PAIRS
    FG_HD constexpr uint32_t wgmmas_n() const { return pairs_columns(finish) ? 2 : 1; }
#else
    FG_HD constexpr uint32_t wgmmas_n() const { return pairs_columns(finish) && tile_n > kScaleBlock ? 2 : 1; }
#endif
    FG_HD constexpr uint32_t wgmma_cols() const { return swapped() ? tile_m : tile_n / wgmmas_n(); }
    /// WGMMAs of one warpgroup in a k-block.
    FG_HD constexpr uint32_t wgmmas() const { return wgmmas_m() * wgmmas_n(); }
    /// CTAs that receive each multicast load.
    FG_HD constexpr uint32_t a_sharers() const { return cluster_use == ClusterUse::ShareA ? cluster : 1; }
    FG_HD constexpr uint32_t b_sharers() const { return cluster_use == ClusterUse::ShareB ? cluster : 1; }
    /// CTAs that have the columns of one scale of D: they share loads of A.
    FG_HD constexpr uint32_t d_sharers() const { return pairs_columns(finish) ? cluster : 1; }
    FG_HD constexpr uint32_t k_splits() const { return cluster_use == ClusterUse::SplitK ? cluster : 1; }
    FG_HD constexpr bool grouped() const { return grouping != Grouping::None; }
    FG_HD constexpr bool row_groups() const { return grouping == Grouping::Rows; }
    FG_HD constexpr bool k_groups() const { return grouping == Grouping::K; }
    FG_HD constexpr bool summed() const { return grouping == Grouping::Sum; }
    /// A tile whose columns lie in several 128-wide scale blocks of B.
    FG_HD constexpr bool several_segments() const { return b.scaling == Scaling::Blocks && kScaleBlock % tile_n != 0; }
    FG_HD constexpr bool mx() const { return b.scaling == Scaling::Mx; }
    FG_HD constexpr bool row_b_scales() const { return b.scaling == Scaling::Rows || mx(); }
};

/// Can kernels load operands of these layouts? Boxes of an MN-major one fill a tile, and are not shared.
FG_HD constexpr bool has_layouts(const GemmConfig& c) {
    const auto has = [&](const Operand& x, uint32_t tile, uint32_t sharers) {
        return x.major == Major::K || (x.scaling == Scaling::None && tile % kMnBox == 0 && sharers == 1);
    };
    return has(c.a, c.tile_m, c.a_sharers()) && has(c.b, c.tile_n, c.b_sharers());
}

// Each calls visit(name, its member of each of `configs`), which have members of these names.

/// What a kernel computes, as against how.
template <typename Visit, typename... Configs>
FG_HD constexpr void kind_fields(const Visit& visit, Configs&... configs) {
    visit("grouping", configs.grouping...);
    visit("a", configs.a...);
    visit("b", configs.b...);
    visit("output", configs.output...);
    visit("finish", configs.finish...);
}
template <typename Visit, typename... Configs>
FG_HD constexpr void config_fields(const Visit& visit, Configs&... configs) {
    visit("tile_m", configs.tile_m...);
    visit("tile_n", configs.tile_n...);
    visit("stages", configs.stages...);
    visit("math_warpgroups", configs.math_warpgroups...);
    visit("cluster", configs.cluster...);
    visit("cluster_use", configs.cluster_use...);
    visit("ctas_per_sm", configs.ctas_per_sm...);
    visit("scales", configs.scales...);
    kind_fields(visit, configs...);
}

}  // namespace finegemm
