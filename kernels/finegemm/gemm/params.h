// GemmParams: everything about one launch that is not fixed when the kernel is compiled.
// Layer gemm. The host fills it, the kernel reads it from constant memory.
#pragma once

#include <finegemm/core/counted_choices.h>
#include <finegemm/core/divide.h>
#include <finegemm/core/group_layout.h>
#include <finegemm/core/tensor_map.h>
#include <finegemm/gemm/kernel_plan.h>
#include <finegemm/gemm/schedule.h>

namespace finegemm {

/// FP32 scales of one operand. Strides count elements; any layout is good.
struct ScaleView {
    const float* data;
    int64_t mn_stride;  // from one row (or one 128-row block of B) to the next
    int64_t k_stride;   // from one 128-wide block of K to the next
};

/// Can a kernel for ScaleLayout::Rows read these row scales: whole vectors, each sixteen aligned bytes?
inline FG_HD bool has_scale_vectors(const ScaleView& s, uint32_t k_blocks, uint32_t k_splits) {
    return s.k_stride == 1 && s.mn_stride % kScaleVectorBlocks == 0 && reinterpret_cast<uint64_t>(s.data) % 16 == 0 &&
           k_blocks % (kScaleVectorBlocks * k_splits) == 0;
}

/// Tensor maps of one operand's tiles: for whole ones and for the last one, which may have fewer rows.
struct TileLoads {
    TensorMap whole, last;
};

/// Parameters of every GEMM kernel. Those that are read first are together: an SM fetches parameters in lines of 64
/// bytes, and each takes 100s of clocks.
struct alignas(64) GemmParams {
    Raster raster;                            // the order of tiles
    uint32_t m, n, k_blocks;                  // k_blocks = ceil(K / 128), of all groups together
    uint32_t a_rows_of_last, b_rows_of_last;  // rows that the boxes of TileLoads::last have
    uint64_t a_policy, b_policy;              // L2 cache policies of the loads (createpolicy's 64-bit encoding)
    ScaleView sfa, sfb;
    void* d_data;               // row-major
    int64_t d_row_stride;       // elements
    uint32_t accumulate;        // 1: D is added to, not overwritten; where it is f32
    uint32_t prefetch_weights;  // 1: no kernel that this one may overlap with writes to B
    TileLoads a, b;             // b.whole: of first segments; b.last: of the last one, whichever that is
};

/// Parameters of kernels whose tiles may have several segments and may be stored by TMA.
struct SegmentedParams : GemmParams {
    TensorMap b_segments[kMaxSegments - 1];  // for the whole segments after the first one; unused where tiles have none
    TensorMap d[kPanelWidths];  // of the widths that tiles have, or the one that f32 has; none where math warps
                                // write D (uses_tma_store)
};

/// Heights of the boxes that the rows of a group's last tile are loaded by: powers of two, 1 to 128.
inline constexpr uint32_t kRowBoxes = 8;

/// Parameters that a kernel for groups of rows reads first: nothing begins before the sizes are known.
struct alignas(64) GroupParams {
    GroupLayout groups;
    bool both_ends;                            // tiles of 32 groups at a time come from_both_ends
    int64_t sfa_stride, sfb_stride, d_stride;  // elements from one group's to the next
};
static_assert(sizeof(GroupParams) == 64, "one line");

/// Parameters of kernels for groups of rows. A, sfa and D are stacks where GroupLayout says so, B and sfb always.
struct GroupedParams : GroupParams, SegmentedParams {  // `m` is unused; `raster` has the columns, and one band of rows
    TensorMap a_rows[kRowBoxes];                       // boxes of 2^i rows of A; TileLoads::last of A is unused
    ExpectedGroups expected;
    WholeGroups whole;
};

/// Parameters of kernels with counts_choices.
struct ChoiceParams : GroupedParams {
    CountedChoices choices;
};

/// Parameters of kernels with reports_rows.
struct ReportParams : GroupedParams {
    uint32_t* stored;  // [groups]: pieces of eight columns of a row of D that are there; zeros before
};

/// How many groups parameters have room for whose sizes the host knows, and how many that are blocks, with an A and a B
/// of their own: kernels of CUDA 12.0 take 4096 bytes. More groups are listed in memory (GroupListParams).
inline constexpr uint32_t kHostGroups = 64, kBlockGroups = 11;

/// Parameters of K-grouped kernels. D is a stack; `raster` has the tiles of one of its matrices.
struct KGroupedParams : GemmParams {
    KGroupLayout groups;  // without offsets: those below
    int64_t d_stride;     // elements from one group's D to the next
    TensorMap d[1];       // of the whole stack of D, where the old D is loaded
    int32_t host_offsets[kHostGroups + 1];
    uint32_t blocks;  // 1: each group has maps of its own, for whole tiles; those of GemmParams are not used
    const TensorMap* listed_blocks;  // A's and B's of each group in turn, in memory; null: these
    TensorMap block_maps[2 * kBlockGroups];

    FG_HD constexpr KGroupLayout k_groups() const {
        return {.offsets = groups.offsets ? groups.offsets : host_offsets,
                .groups = groups.groups,
                .k_blocks = groups.k_blocks};
    }
};
static_assert(sizeof(KGroupedParams) <= 4096, "a kernel of CUDA 12.0 takes no more");

inline constexpr uint32_t kLineBytes = 128;  // of L2

/// Rows of memory that the next kernel reads: they come to L2 meanwhile. Null: none do.
struct OldRows {
    const void* data;
    int64_t row_bytes;  // from one row to the next
    Divider lines;      // of 128 bytes, that a row has
};

/// Parameters of kernels for sums over stacks. K is that of all matrices, each in whole k-blocks; D is the sums of the
/// pieces, in f32, one piece's behind the other's.
struct SummedParams : GemmParams {
    Divider matrix_blocks;  // k-blocks of one matrix
    uint32_t pieces;
    int64_t d_stride;  // elements from one piece's sums to the next
    OldRows old_d;     // what the sums are added to, if it is short
};

/// Parameters of kernels for a grouping whose finish takes some of its own.
template <typename Base, Finish F>
struct WithFinish : Base {
    typename FinishParamsOf<F>::Type finish;
};

/// Numbers that say where rows of A are; null for kernels that take none.
template <typename Params>
FG_HD constexpr const int32_t* numbers_of_a(const Params& p) {
    if constexpr (requires { p.finish.numbers_of_a; }) return p.finish.numbers_of_a;
    return nullptr;
}
/// Has each row of D a place of its own?
template <typename Params>
FG_HD constexpr bool places_d(const Params& p) {
    if constexpr (requires { p.finish.numbers_of_d; }) return p.finish.numbers_of_d || p.finish.addresses_of_d;
    return false;
}

/// Counts of what a kernel has stored; null for kernels that report nothing.
template <typename Params>
FG_HD constexpr uint32_t* stored_by(const Params& p) {
    if constexpr (requires { p.stored; }) return p.stored;
    return nullptr;
}

/// The parameters that all kernels for grouping `G` take.
template <Grouping G>
struct ParamsOf {
    using Type = SegmentedParams;
};
template <>
struct ParamsOf<Grouping::Rows> {
    using Type = GroupedParams;
};
template <>
struct ParamsOf<Grouping::K> {
    using Type = KGroupedParams;
};
template <>
struct ParamsOf<Grouping::Sum> {
    using Type = SummedParams;
};
template <GemmConfig C>
using Params = typename ParamsOf<C.grouping>::Type;

/// All parameters of a kernel; what is not of the epilogue takes those of its grouping.
template <typename OfGrouping, Finish F, bool CountsChoices, bool ReportsRows>
struct KernelParamsOf {
    using Type = WithFinish<OfGrouping, F>;
};
template <typename OfGrouping>
struct KernelParamsOf<OfGrouping, Finish::None, false, false> {
    using Type = OfGrouping;
};
template <>
struct KernelParamsOf<GroupedParams, Finish::None, true, false> {
    using Type = ChoiceParams;
};
template <>
struct KernelParamsOf<GroupedParams, Finish::None, false, true> {
    using Type = ReportParams;
};
template <GemmConfig C>
using KernelParams = typename KernelParamsOf<Params<C>, C.finish, C.counts_choices, C.reports_rows>::Type;

}  // namespace finegemm
