// The kernels of an indexer's logits: configuration, parameters, shared memory, and which keys a query sees.
// Layer mqa. docs/indexer_kernels.md has the picture.
#pragma once

#include <finegemm/core/tensor_map.h>
#include <finegemm/mqa/arithmetic.h>

namespace finegemm {

/// Where keys lie: one behind the other, or in pages of a cache that a table names.
enum class MqaKeys : uint32_t { Rows, Pages };
/// How sums over heads take relu(x): mqa/arithmetic.h.
enum class MqaForm : uint32_t { Exact, Abs };

/// Where the abs form is computed. With fewer heads its columns, two for each query, take longer than they save, and so
/// they do in decoding, which memory limits; there the exact form is computed in its place.
FG_HD constexpr bool has_abs_form(MqaKeys keys, uint32_t heads) { return keys == MqaKeys::Rows && heads >= 32; }

inline constexpr uint32_t kMqaTileKeys = 64;         // rows of a wgmma: keys that a warpgroup multiplies at once
inline constexpr uint32_t kMqaWarpgroups = 4;        // that multiply, each with a ring of its own; one more loads
inline constexpr uint32_t kMqaQueriesOfRequest = 8;  // at most

struct MqaConfig {
    uint32_t heads, dim;
    MqaKeys keys;
    MqaForm form;
    constexpr bool operator==(const MqaConfig&) const = default;

    static constexpr uint32_t kCount = 4 * 3 * 2 * 2;
    /// Position among the configurations.
    FG_HD constexpr uint32_t index() const {
        const uint32_t of_heads = heads == 8 ? 0 : heads == 16 ? 1 : heads == 32 ? 2 : 3, of_dim = dim / 64;
        return ((of_heads * 3 + of_dim) * 2 + static_cast<uint32_t>(keys)) * 2 + static_cast<uint32_t>(form);
    }
    FG_HD static constexpr uint32_t threads() { return (kMqaWarpgroups + 1) * 128; }

    /// Queries whose heads are the columns of a product.
    FG_HD constexpr uint32_t queries() const { return kMqaColumns / heads; }
    /// Columns of a product, those for the linear part among them: a pair for each query of 32 heads; of 64 heads the
    /// same pair twice.
    FG_HD constexpr uint32_t columns() const { return kMqaColumns + (form == MqaForm::Abs ? 8 : 0); }
    /// Columns of a product for so few queries that half of all columns hold them: requests may have as few.
    FG_HD constexpr uint32_t few_columns() const { return keys == MqaKeys::Pages ? kMqaColumns / 2 : columns(); }
    /// Columns of D whose linear parts a lane adds up: as few as keep all lanes of a warp busy, but eight at most.
    FG_HD constexpr uint32_t linear_columns() const { return dim * queries() > 4 * kWarpSize ? 8 : 4; }
    /// Products by which all queries of a request are multiplied, at most.
    FG_HD constexpr uint32_t most_parts() const {
        return keys == MqaKeys::Pages ? ceil_div(kMqaQueriesOfRequest, queries()) : 1;
    }
    /// Stages of each ring. Four tiles of 128 hide the latency of memory; narrower ones take less of it.
    FG_HD constexpr uint32_t stages() const { return dim == 128 ? 4 : 8; }
    /// Stages in use where a CTA has few tiles. Half as many keep memory busy, from which all pages come; more only let
    /// the first tiles wait for one another.
    FG_HD constexpr uint32_t few_stages() const { return keys == MqaKeys::Pages ? 256 / dim : stages(); }
    FG_HD constexpr uint32_t smem_bytes() const;
};

/// Registers of a thread. The launch has as many as 640 threads can have; loaders give some to the math warpgroups.
struct MqaRegisters {
    static constexpr uint32_t kLoad = 32, kMath = 112, kLaunch = 96;
};
static_assert(kMqaWarpgroups * MqaRegisters::kMath + MqaRegisters::kLoad ==
              (kMqaWarpgroups + 1) * MqaRegisters::kLaunch);

/// Room for the queries of an item and for what is told of them.
inline constexpr uint32_t kMqaSlots = 4;
inline constexpr uint32_t kMqaMostQueries = 16;               // of an item: those of a product, or of a request
inline constexpr uint32_t kMqaFillBytes = 4096;               // of -inf, which are stored at once
inline constexpr uint32_t kMqaFillPiece = 4 * kMqaFillBytes;  // of a row, which a warp fills

/// Offsets in shared memory, in bytes, and sizes of a stage or a slot.
struct MqaSmemPlan {
    uint32_t queries, queries_slot;  // kMqaSlots x columns x dim; an item with several parts has as many slots
    uint32_t keys, keys_stage;       // ring after ring: stages x 64 x dim
    uint32_t scales, scales_stage;   // likewise: 64 f32
    uint32_t tiles;                  // likewise: the key and the word of an MqaTile
    uint32_t weights, weights_slot;  // f32, for each column; then the step of each query, 0 if it takes the exact form
    uint32_t windows, windows_slot;  // an MqaRow for each query
    uint32_t fill;                   // kMqaFillBytes of -inf
    uint32_t sums;                   // of the abs form, of columns to be: linear_columns f32 of each loading thread
    uint32_t split;                  // sums of each warp, then this CTA's share
    uint32_t full, empty, queries_full, queries_empty;  // mbarriers
    uint32_t queries_in;                                // likewise, of the abs form: codes, before their columns
    uint32_t total;
};

FG_HD constexpr MqaSmemPlan mqa_smem(const MqaConfig& c) {
    MqaSmemPlan p{};
    uint32_t top = 0;
    auto take = [&top](uint32_t bytes, uint32_t alignment) {
        const uint32_t at = align_up(top, alignment);
        top = at + bytes;
        return at;
    };
    const uint32_t stages = kMqaWarpgroups * c.stages();
    p.queries_slot = c.columns() * c.dim;
    p.keys_stage = kMqaTileKeys * c.dim;
    p.scales_stage = kMqaTileKeys * 4;
    p.weights_slot = align_up((kMqaColumns + (c.form == MqaForm::Abs ? c.queries() : 0)) * 4, 16);  // read by fours
    p.windows_slot = kMqaMostQueries * 16;
    p.queries = take(kMqaSlots * p.queries_slot, 1024);
    p.keys = take(stages * p.keys_stage, 1024);
    p.scales = take(stages * p.scales_stage, 128);
    p.fill = take(kMqaFillBytes, 16);
    p.sums = take(c.form == MqaForm::Abs ? kMqaWarpgroups * kWarpSize * c.linear_columns() * 4 : 0, 16);
    p.tiles = take(stages * 8, 8);
    p.weights = take(kMqaSlots * p.weights_slot, 16);
    p.windows = take(kMqaSlots * p.windows_slot, 16);
    p.split = take((c.threads() / kWarpSize + 4) * 4, 16);
    p.full = take(stages * 8, 8);
    p.empty = take(stages * 8, 8);
    p.queries_full = take(kMqaSlots * 8, 8);
    p.queries_empty = take(kMqaSlots * 8, 8);
    p.queries_in = take(c.form == MqaForm::Abs ? kMqaSlots * 8 : 0, 8);
    p.total = align_up(top, 16) + 1024;  // the driver aligns dynamic shared memory to 16 only; the kernel rounds up
    return p;
}

FG_HD constexpr uint32_t MqaConfig::smem_bytes() const { return mqa_smem(*this).total; }

/// Which of the additional columns of a product has residual column `j` of a query. Where there are two queries each
/// has its pair twice: lanes of a quad have two columns each, and two of them go on with each query.
FG_HD constexpr uint32_t mqa_linear_column(const MqaConfig& c, uint32_t query, uint32_t copy, uint32_t j) {
    return kMqaColumns + query * (8 / c.queries()) + copy * 2 + j;
}
FG_HD constexpr uint32_t mqa_linear_copies(const MqaConfig& c) { return max(1, 4 / c.queries()); }

/// What a stage holds: keys; or none, but the word that another portion begins; or that none does.
enum class MqaStage : uint32_t { Keys, Portion, End };
struct MqaTile {
    uint32_t key;      // the first one
    uint32_t portion;  // of the key; or that begins, or how many there were
    MqaStage stage;

    /// Both in one word, which a warp shares by one instruction. Fewer portions than tiles: 2^30 are enough.
    FG_HD constexpr uint32_t word() const { return portion * 4 + static_cast<uint32_t>(stage); }
    FG_HD static constexpr MqaTile of(uint32_t key, uint32_t word) {
        return {key, word / 4, static_cast<MqaStage>(word % 4)};
    }
};

/// Where the logits of a query go: the place of key 0's, which need not exist; the first key, and how many there are.
struct MqaRow {
    uint64_t logits;
    uint32_t first, count;
};

/// Keys that a query sees.
struct MqaWindow {
    uint32_t begin = 0, end = 0;
    FG_HD constexpr bool meets(uint32_t first, uint32_t last) const { return begin < last && first < end; }
    constexpr bool operator==(const MqaWindow&) const = default;
};

/// One launch. An item has queries that are multiplied together: those of a product, or of a request.
struct MqaParams {
    TensorMap q, k, k_scales;  // k: rows, or pages; k_scales: of rows
    const float* weights;
    int64_t weights_stride;        // elements
    const int32_t *starts, *ends;  // rows: windows; pages: no starts, and lengths
    int64_t ends_stride;           // elements, from the lengths of a request to those of the next
    const int32_t* table;          // of pages
    int64_t table_stride;          // elements
    const uint8_t* pages;
    int64_t page_stride;  // bytes
    uint8_t* logits;
    int64_t logits_stride;                     // bytes
    uint32_t rows;                             // of logits
    uint32_t items, item_queries, item_parts;  // parts: products
    uint32_t keys;                             // that exist, or that the table has room for
    uint32_t width;                            // columns of logits
    uint32_t page_log2, page_count;
    uint32_t own_lengths;  // 1: `ends` has one for each query, else for each request
    uint32_t compressed;   // 1: column 0 is of the first key that the query sees
    uint32_t fill;         // 1: -inf goes where there is no logit
    uint32_t bf16;         // 1: logits are bf16, else f32

    FG_HD constexpr uint32_t element_bytes() const { return bf16 ? 2 : 4; }
    /// Row of logits of query `i` of an item; there need be none.
    FG_HD constexpr uint32_t row(uint32_t item, uint32_t i) const { return item * item_queries + i; }
    FG_HD constexpr bool has_row(uint32_t item, uint32_t i) const { return i < item_queries && row(item, i) < rows; }

    /// What query `i` of an item sees, whose row exists. Numbers that break the rules give keys that exist, or none.
    template <MqaKeys Keys>
    FG_HD constexpr MqaWindow window(uint32_t item, uint32_t i) const {
        if (Keys == MqaKeys::Rows) {
            const uint32_t at = row(item, i);
            const uint32_t begin = clipped(starts[at], keys);
            const uint32_t end = clipped(ends[at], min(keys, compressed ? saturated(begin, width) : width));
            return begin < end ? MqaWindow{begin, end} : MqaWindow{};
        }
        const uint32_t most = min(keys, width);
        if (!own_lengths) {
            const int32_t length = ends[item * ends_stride];
            const int32_t behind = static_cast<int32_t>(item_queries - 1 - i);
            return {0, length > behind ? clipped(length - behind, most) : 0};
        }
        return {0, min(clipped(ends[item * ends_stride + i], most), context(item))};
    }
    /// Pages: keys that the last query of a request sees, which sees the most. One load, without a branch: it is looked
    /// up for many requests before the first tile.
    FG_HD constexpr uint32_t context(uint32_t item) const {
        return clipped(ends[item * ends_stride + (own_lengths ? item_queries - 1 : 0)], min(keys, width));
    }

private:
    FG_HD static constexpr uint32_t clipped(int32_t x, uint32_t most) {
        return x < 0 ? 0 : min(static_cast<uint32_t>(x), most);
    }
    FG_HD static constexpr uint32_t saturated(uint32_t a, uint32_t b) { return a + min(b, ~a); }
};
static_assert(sizeof(MqaParams) <= 4096, "a kernel of CUDA 12.0 takes no more");

/// Tiles of 64 keys between the first and the last key that a query of an item sees.
struct MqaTiles {
    uint32_t first = 0, count = 0;
};
template <MqaConfig C>
FG_HD constexpr MqaTiles mqa_tiles(const MqaParams& p, uint32_t item) {
    if (C.keys == MqaKeys::Pages) return {0, ceil_div(p.context(item), kMqaTileKeys)};
    uint32_t begin = ~0u, end = 0;
    for (uint32_t i = 0; i < C.queries(); ++i) {  // without branches, so that all windows are loaded at once
        const uint32_t row = min(p.row(item, i), p.rows - 1);
        const MqaWindow w = p.window<C.keys>(0, row);
        begin = min(begin, w.end > 0 ? w.begin : ~0u), end = max(end, w.end);
    }
    if (end == 0) return {};
    const uint32_t first = begin / kMqaTileKeys;
    return {first, ceil_div(end, kMqaTileKeys) - first};
}

/// What an item takes, in the time of a tile: some more than it has tiles, as its queries are loaded, and no less than
/// a warp takes for that, which has three others beside it. In the abs form it makes columns, too, and loads its tiles
/// meanwhile. Fitted to the clocks that CTAs of an H200 took.
FG_HD constexpr uint32_t mqa_cost(const MqaConfig& c, uint32_t tiles) {
    if (tiles == 0) return 0;
    if (c.form == MqaForm::Exact) return max(tiles + 2, 5);
    return max(tiles + 4, c.dim == 128 ? 14 + tiles * 3 / 4 : 11 + tiles / 2);
}

/// From so many tiles of a CTA on, in what it costs, rings of pages use all of their stages.
inline constexpr uint32_t kMqaManyTiles = 400;

/// CTA `cta`'s share of `total`, what all items cost: where it begins, and how much it is.
struct MqaShare {
    uint32_t first = 0, count = 0;
};
FG_HD constexpr MqaShare mqa_share(uint32_t total, uint32_t cta, uint32_t ctas) {
    const uint32_t each = total / ctas, rest = total % ctas;
    return {cta * each + min(cta, rest), each + (cta < rest ? 1 : 0)};
}

}  // namespace finegemm
