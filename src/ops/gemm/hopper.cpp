// A call as the parameters of a launch. Layer engine.
#include "ops/gemm/hopper.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <finegemm/error.h>
#include <finegemm/gemm/boxes.h>
#include <finegemm/gemm/schedule.h>
#include <fmt/format.h>

#include "cuda/tensor_map.h"
#include "ops/gemm/finish/finishes.h"
#include "ops/gemm/groups.h"

namespace finegemm {

namespace {

/// Up to so many rows of a product, or of a group, the weights are read about once: they should not push the
/// activations out of L2.
constexpr uint32_t kStreamingRows = 384, kStreamingGroupRows = 128;
/// A and B of a sum that L2 could hold go there first: modified lines of others then stay, whose writing takes 1 us of
/// 17. Longer ones would push out what tiles of other rows and columns still wait for.
constexpr uint64_t kShortSum = 50u << 20;
/// A D of so many elements of f32 that is added to comes to L2 beside A and B; a larger one would push these out.
constexpr int64_t kPrefetchedElements = 1 << 20;
/// Strides of tensor maps, in bytes, are below this. CUDA driver API, cuTensorMapEncodeTiled.
constexpr int64_t kMaxTensorMapStride = 1ll << 40;

uint64_t checked_stride(const char* name, const char* of, int64_t stride, DType dtype) {
    if (stride >= kMaxTensorMapStride / size_of(dtype))
        throw Error(Errc::Unsupported,
                    fmt::format("{}: has {} stride {}, must be below {} for the GPU's copy engine; copy it to memory "
                                "with a smaller one",
                                name, of, stride, kMaxTensorMapStride / size_of(dtype)));
    return static_cast<uint64_t>(stride * size_of(dtype));
}

/// `stacked`: the kernel gives TMA the index of a matrix. `by_lines`: as in GlobalMatrix.
TensorMap map_of(const cuda::Driver& driver, const char* name, const ConstStack& x, const TmaBox& box, bool stacked,
                 bool by_lines = false) {
    const ConstMatrix& m = x.matrix;
    // The stride of a single row is never used, but must be legal: take that of a tight row.
    const int64_t row_stride = m.rows > 1 ? m.row_stride : (m.cols + 15) / 16 * 16;
    cuda::GlobalMatrix matrix{m.data, static_cast<uint64_t>(m.rows), static_cast<uint64_t>(m.cols),
                              checked_stride(name, "row", row_stride, m.dtype)};
    matrix.by_lines = by_lines;
    if (stacked) {
        matrix.count = static_cast<uint64_t>(x.count);
        matrix.stride_bytes = x.count > 1 ? checked_stride(name, "stack", x.stride, m.dtype) : matrix.row_stride_bytes;
    }
    return cuda::encode(driver, matrix, box);
}

/// An MN-major operand as the row-major matrix that TMA reads.
ConstStack transposed(ConstStack x) {
    std::swap(x.matrix.rows, x.matrix.cols);
    std::swap(x.matrix.row_stride, x.matrix.col_stride);
    return x;
}

ScaleView view_of(const ConstMatrix& scales) {
    return {static_cast<const float*>(scales.data), scales.row_stride, scales.col_stride};
}

/// Rows of A that a B is multiplied by, as far as is known.
uint32_t expected_rows_of_b(const plan::Problem& p) {
    return p.groups.kind == Grouping::Rows ? static_cast<uint32_t>(p.busy_groups().rows) : p.m;
}

/// Pieces of K of a sum.
uint32_t pieces_of(const plan::Problem& p, const GemmConfig& c, uint32_t clusters) {
    return k_pieces(p.k_blocks(), p.batch_invariant ? 0 : raster(c, p.m, p.n).size(), clusters);
}

/// Makes the parameters of one call.
class Builder {
public:
    Builder(const cuda::Driver& driver, const Call& call, const plan::Problem& problem, const GemmConfig& config,
            uint32_t clusters)
        : driver_(driver), call_(call), p_(problem), c_(config), clusters_(clusters) {}

    LaunchParams params() const {
        if (c_.counts_choices) return ChoiceParams{row_groups(), *call_.choices};
        if (c_.reports_rows) return ReportParams{row_groups(), call_.stored};
        if (call_.of_rows()) return completed(row_groups());
        if (call_.summed()) return summed();
        return call_.of_k() ? LaunchParams(k_groups()) : completed(segmented());
    }

private:
    /// With what the kernel takes for its finish beside the others' parameters.
    template <typename Base>
    LaunchParams completed(const Base& base) const {
        LaunchParams params = base;
        const auto fill = [&](auto& maps, const char* name, const ConstStack& x) { fill_panel_maps(maps, name, x); };
        with_finish(c_.finish, [&]<typename T>() {
            if constexpr (T::kFinish != Finish::None)
                params = WithFinish<Base, T::kFinish>{base, T::params(call_, fill)};
        });
        return params;
    }
    /// Maps of D or C by the widths of the panels of a tile; in f32 there is one.
    void fill_panel_maps(TensorMap (&maps)[kPanelWidths], const char* name, const ConstStack& x) const {
        const auto map = [&](const TmaBox& box) {
            return map_of(driver_, name, x, box, call_.grouping != Grouping::None);
        };
        for (uint32_t width = 0; c_.output != Output::F32 && width < kPanelWidths; ++width)
            if (panels_of_width(c_, width) > 0) maps[width] = map(d_box(width));
        if (c_.output == Output::F32) maps[0] = map(kF32DBox);
    }

    /// What is common to all products. Groups of rows fill the maps of A and what depends on the number of rows.
    GemmParams common() const {
        const bool streaming = is_streaming();
        GemmParams params{.raster = call_.of_rows() ? raster_of_columns(c_, p_.n) : raster(c_, p_.m, p_.n),
                          .m = call_.of_rows() ? 0 : p_.m,
                          .n = p_.n,
                          .k_blocks = p_.k_blocks(),
                          .a_rows_of_last = call_.of_rows()
                                                ? 0
                                                : loaded_rows(c_.a, rows_of_last_tile(p_.m, c_.tile_m, c_.a_sharers())),
                          .b_rows_of_last = loaded_rows(c_.b, b_rows_of_last(c_, p_.n)),
                          .a_policy = streaming ? kEvictLast : kEvictNormal,
                          .b_policy = streaming ? kEvictFirst : kEvictNormal,
                          .sfa = view_of(call_.sfa.matrix),
                          .sfb = view_of(call_.sfb.matrix),
                          .d_data = call_.d.matrix.data,
                          .d_row_stride = call_.d.matrix.row_stride,
                          .accumulate = p_.d.accumulate,
                          .prefetch_weights = call_.options.prefetch_weights,
                          .a = {},
                          .b = loads("b", call_.b, b_boxes(c_, p_.n))};
        if (call_.of_rows()) params.a.whole = operand_map("a", call_.a, load_box(c_.a, c_.tile_m / c_.a_sharers()));
        else params.a = loads("a", call_.a, a_boxes(c_, p_.m));
        return params;
    }

    SegmentedParams segmented() const {
        SegmentedParams params{common(), {}, {}};
        for (uint32_t segment = 1; segment < n_segments(c_); ++segment)
            params.b_segments[segment - 1] = operand_map("b", call_.b, b_segment_box(c_, segment));
        ConstStack d = call_.d;
        d.matrix.cols = call_.d_width;
        if (kernel_plan(c_).tma_store()) fill_panel_maps(params.d, "d", d);
        return params;
    }

    GroupedParams row_groups() const {
        GroupedParams params{};
        static_cast<SegmentedParams&>(params) = segmented();
        params.groups = row_layout_of(call_);
        // Else a wave of tiles shall be of few groups, whose operands then are in L2.
        const bool whole = is_whole();
        params.both_ends = is_streaming() && !whole;
        const uint32_t most = c_.tile_m / c_.a_sharers();
        for (uint32_t i = 0; i < kRowBoxes; ++i)
            params.a_rows[i] = operand_map("a", call_.a, load_box(c_.a, std::min(1u << i, most)));
        // Weights that stream are read once, by tiles that come one after the other: they need no band.
        if (whole && !p_.scaled())
            params.whole = WholeGroups::of(c_, params.groups.groups, params.groups.rows, p_.n,
                                           is_streaming() ? kBandBytes : weights());
        if (params.whole.band > 1) {
            params.a_policy = kEvictNormal, params.b_policy = kEvictLast;  // weights wait for the next rows of a band
        } else if (whole) {
            // For the tiles of other columns, which D pushes it out before; where there are none, few rows go as B
            // does.
            const bool read_once = is_streaming() && params.raster.tiles_n == 1;
            params.a_policy = read_once ? kEvictFirst : kEvictLast;
        }
        params.expected = ExpectedGroups::of(c_, params.raster, expected_rows_of_b(p_));
        params.sfa_stride = call_.sfa.stride;
        params.sfb_stride = call_.sfb.stride;
        params.d_stride = call_.d.stride;
        return params;
    }

    KGroupedParams k_groups() const {
        KGroupedParams params{};
        static_cast<GemmParams&>(params) = common();
        params.groups = k_layout_of(call_);
        if (call_.has_host_offsets()) params.groups.offsets = nullptr;
        params.d_stride = call_.d.stride;
        params.blocks = call_.layout == KLayout::Blocks;
        if (kernel_plan(c_).loads_source()) params.d[0] = map_of(driver_, "d", call_.d, kF32DBox, true);
        return params;
    }

    SummedParams summed() const {
        SummedParams params{common(), {}, pieces_of(p_, c_, clusters_), int64_t{p_.m} * p_.n, {}};
        params.matrix_blocks = Divider::by(p_.k_blocks() / static_cast<uint32_t>(call_.group_count));
        const uint64_t bytes = (uint64_t{p_.m} + p_.n) * p_.k * bytes_of(p_.a.element);
        params.a_policy = params.b_policy =
            bytes <= kShortSum ? kEvictFirst : kEvictNormal;  // both are read about once
        params.d_data = nullptr;
        params.d_row_stride = p_.n;
        params.accumulate = 0;
        const ConstMatrix& d = call_.d.matrix;
        if (p_.d.accumulate && d.rows * d.cols <= kPrefetchedElements)
            params.old_d = {d.data, d.row_stride * size_of(d.dtype), Divider::by(ceil_div(p_.n * 4, kLineBytes))};
        return params;
    }

    /// Bytes of those of one group.
    uint64_t weights() const { return uint64_t{p_.n} * p_.k * bytes_of(p_.b.element); }

    bool is_streaming() const {
        return expected_rows_of_b(p_) <= (call_.of_rows() ? kStreamingGroupRows : kStreamingRows);
    }

    TileLoads loads(const char* name, const ConstStack& x, const LoadBoxes& boxes) const {
        const TensorMap last = operand_map(name, x, boxes.last);
        // No tile is whole, or all are.
        const bool one_map = boxes.whole == boxes.last || x.matrix.rows < boxes.whole.rows;
        return {one_map ? last : operand_map(name, x, boxes.whole), last};
    }

    /// A and B are stacks for kernels of groups of rows and of sums alone, C and D wherever there are groups.
    TensorMap operand_map(const char* name, const ConstStack& x, const TmaBox& box) const {
        const ConstStack& by_rows = major_of(x.matrix) == Major::MN ? transposed(x) : x;
        return map_of(driver_, name, by_rows, box, call_.of_rows() || call_.summed(), is_read_once());
    }

    /// A and B of sums, and of few rows of whole groups, are read about once, by tiles that work at the same time. What
    /// else a miss would bring to L2 may be gone when it is asked for.
    bool is_read_once() const { return call_.summed() || (is_whole() && is_streaming()); }
    bool is_whole() const { return call_.of_rows() && call_.groups.form == GroupForm::Whole; }

    const cuda::Driver& driver_;
    const Call& call_;
    const plan::Problem& p_;
    const GemmConfig& c_;
    uint32_t clusters_;
};

/// Can a kernel's variant for row-major scales, if it has one, read those of the call?
bool has_scale_vectors(const Call& call, const GemmConfig& c) {
    if (!call.scaled()) return false;
    const auto k_blocks = ceil_div(static_cast<uint32_t>(call.a.matrix.cols), kScaleBlock);
    const auto has = [&](const ConstStack& x) {
        return has_scale_vectors(view_of(x.matrix), k_blocks, c.k_splits()) &&
               (x.count == 1 || x.stride % kScaleVectorBlocks == 0);
    };
    return has(call.sfa) && (!c.row_b_scales() || has(call.sfb));
}

}  // namespace

GemmConfig variant_for(const Call& call, const GemmConfig& c) {
    if (call.choices && plan::for_counted_choices(c) != c) return plan::for_counted_choices(c);
    if (call.stored) {
        const GemmConfig reporting = plan::for_reported_rows(c);
        if (!reporting.reports_rows) throw Error(Errc::Internal, "no kernel of this kind reports what it has stored");
        return reporting;
    }
    return has_scale_vectors(call, c) ? plan::for_row_scales(c) : c;
}

LaunchParams params_of(const cuda::Driver& driver, const Call& call, const plan::Problem& problem, const GemmConfig& c,
                       uint32_t clusters) {
    return Builder(driver, call, problem, c, clusters).params();
}

AddPiecesLaunch add_pieces_of(const Call& call, const SummedParams& pieces) {
    const Matrix& d = call.d.matrix;
    const AddPiecesConfig config{find_type(d.dtype)->output.value()};
    const uint32_t ctas_of_row = config.ctas_of_row(pieces.n);
    return {config,
            {.sums = static_cast<const float*>(pieces.d_data),
             .d = d.data,
             .d_row_stride = d.row_stride,
             .m = pieces.m,
             .n = pieces.n,
             .pieces = pieces.pieces,
             .accumulate = call.options.accumulate,
             .ctas_of_row = Divider::by(ctas_of_row)},
            pieces.m * ctas_of_row};
}

uint32_t grid_of(const Call& call, const plan::Problem& p, const GemmConfig& c, uint32_t clusters) {
    if (!call.of_rows() || call.groups.form != GroupForm::Whole)
        return grid_size(c, most_tiles(p, c, clusters), clusters);
    const uint32_t groups = max(1, p.groups.count), tiles = max(1, raster(c, p.m / groups, p.n).size() * groups);
    return grid_size(c, ceil_div(tiles, ceil_div(tiles, clusters)), clusters);
}

uint32_t most_tiles(const plan::Problem& p, const GemmConfig& c, uint32_t clusters) {
    if (p.groups.kind == Grouping::Sum) return raster(c, p.m, p.n).size() * pieces_of(p, c, clusters);
    if (p.groups.kind != Grouping::Rows) return raster(c, p.m, p.n).size() * max(1, p.groups.of_k());
    const uint64_t below = p.m / c.tile_m + p.groups.count;
    return static_cast<uint32_t>(below * ceil_div(p.n, c.tile_n * cluster_tiles_n(c)));
}

namespace {

/// The map of the block that a group has of A or B.
TensorMap block_map(const cuda::Driver& driver, const char* name, const ConstMatrix& x, const Operand& o,
                    uint32_t rows) {
    return map_of(driver, name, {x}, load_box(o, rows), false);
}

}  // namespace

void put_groups(const cuda::Driver& driver, const Call& call, const GemmConfig& c, KGroupedParams& params) {
    const KGroupLayout layout = k_layout_of(call);
    std::copy_n(call.groups.data, layout.groups + 1, params.host_offsets);
    for (uint32_t g = 0; params.blocks && g < layout.groups; ++g) {
        const GemmArgs group = product_of(call, g, layout.group(g));
        if (group.a.cols == 0) continue;  // nothing is loaded
        params.block_maps[2 * g] = block_map(driver, "a", group.a, c.a, c.tile_m);
        params.block_maps[2 * g + 1] = block_map(driver, "b", group.b, c.b, c.tile_n);
    }
}

std::vector<GroupListParams> group_lists_of(const cuda::Driver& driver, const Call& call, const GemmConfig& c) {
    const bool blocks = call.layout == KLayout::Blocks;
    const auto groups = static_cast<uint32_t>(call.group_count);
    if (groups <= (blocks ? kBlockGroups : kHostGroups)) return {};
    GroupListParams list{};
    list.element_bytes = static_cast<uint32_t>(size_of(call.a.matrix.dtype));
    const auto listed = [&](const char* name, const ConstMatrix& x, const Operand& o, uint32_t tile) {
        return ListedBlocks{block_map(driver, name, x, o, tile), static_cast<const uint8_t*>(x.data),
                            x.rows * list.element_bytes};
    };
    if (blocks) list.a = listed("a", call.a.matrix, c.a, c.tile_m), list.b = listed("b", call.b.matrix, c.b, c.tile_n);
    std::vector<GroupListParams> lists;
    for (list.first = 0; list.first < groups; list.first += list.groups) {
        list.groups = std::min(kListedGroups, groups - list.first);
        std::copy_n(call.groups.data + list.first, list.groups + 1, list.offsets);
        lists.push_back(list);
    }
    return lists;
}

}  // namespace finegemm
