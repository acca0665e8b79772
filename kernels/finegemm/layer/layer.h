// A layer of experts for few tokens as one kernel: configuration, shared memory, tiles, counters, and the launch's
// parameters. Layer layer.
#pragma once

#include <finegemm/core/tensor_map.h>
#include <finegemm/quantize/activation.h>
#include <finegemm/routing/routing.h>

namespace finegemm {

inline constexpr uint32_t kLayerMostColumns = 7168, kLayerMostBlocks = kLayerMostColumns / kScaleBlock;

/// Everything about the kernel that is fixed when it is compiled.
struct LayerConfig {
    uint32_t rows = 16;  // of an expert that a tile has at most: 16 or 32

    static constexpr uint32_t kMostChoices = 64;  // of tokens: a lane of the warp that lists groups has two

    static constexpr uint32_t kCount = 2;  // kernels that there are
    FG_HD constexpr uint32_t index() const { return rows / 16 - 1; }
    constexpr bool operator==(const LayerConfig&) const = default;

    // Warps: those of two math warpgroups, which alternate by tiles; then one that loads weights, one that loads
    // tokens, and those that publish what tiles have become.
    static constexpr uint32_t kMathWarpgroups = 2, kMathWarps = kMathWarpgroups * 4, kPublishers = 4;
    static constexpr uint32_t kWeightsWarp = kMathWarps, kTokensWarp = kMathWarps + 1, kFirstPublisher = kMathWarps + 2;
    FG_HD static constexpr uint32_t math_threads() { return kMathWarps * kWarpSize; }
    FG_HD static constexpr uint32_t warps() { return kFirstPublisher + kPublishers; }
    FG_HD static constexpr uint32_t threads() { return warps() * kWarpSize; }

    // A tile has 64 rows of weights: of the first product 32 of gates and as many of ups. A stage has two k-blocks.
    static constexpr uint32_t kTileRows = 64, kHalf = kTileRows / 2, kStageBlocks = 2;
    static constexpr uint32_t kBlockBytes = kTileRows * kScaleBlock, kWeightBytes = kStageBlocks * kBlockBytes;
    static constexpr uint32_t kBoxRows = 16;  // of tokens
    FG_HD constexpr uint32_t token_bytes() const { return rows * kScaleBlock; }
    FG_HD constexpr uint32_t stage_bytes() const { return kWeightBytes + kStageBlocks * token_bytes(); }
    FG_HD constexpr uint32_t stages() const { return rows > 16 ? 6 : 9; }
    /// Scales of tiles that are there at once. Even: those of a warpgroup's next tile go where its last ones were.
    static constexpr uint32_t kScales = 4;
    /// Tiles that roles may be apart: no tile has less than a stage.
    static constexpr uint32_t kTiles = 32;
    FG_HD constexpr uint32_t smem_bytes() const;
};

/// Rows of an expert that tiles share.
struct LayerGroup {
    uint16_t expert, row, rows;
};

/// All scales of a tile.
template <LayerConfig C>
struct LayerScales {
    alignas(16) float of_tokens[C.rows * kLayerMostBlocks];  // [rows][k-blocks]
    alignas(16) float of_weights[2][kLayerMostBlocks];       // of gates and of ups
};

template <LayerConfig C>
struct LayerShared {
    alignas(1024) uint8_t stages[C.stages()][C.stage_bytes()];
    LayerScales<C> scales[C.kScales];
    uint16_t sums[C.kPublishers][C.kTileRows][C.rows + 2];  // of tiles, in bf16; two more: columns meet other banks
    alignas(8) uint64_t full[C.stages()], empty[C.stages()], armed[C.stages()];
    uint64_t scales_full[C.kScales], scales_empty[C.kScales];
    uint64_t given[C.kPublishers], taken[C.kPublishers];
    uint64_t tile_known[C.kTiles];
    uint32_t tickets[C.kTiles];
    uint32_t stages_armed;  // of all rounds
    uint32_t rows_missing;  // tiles wait for rows of tokens or of the activation
    uint32_t first_ticket, first_task, groups, is_last;
    uint32_t rows[C.kMostChoices];     // of choices
    uint32_t choices[C.kMostChoices];  // of rows
    float weights[C.kMostChoices];     // of choices
    LayerGroup group[C.kMostChoices];
};

FG_HD constexpr uint32_t LayerConfig::smem_bytes() const {
    constexpr uint32_t kAlignment = 1024;
    return kAlignment + (rows > 16 ? sizeof(LayerShared<LayerConfig{32}>) : sizeof(LayerShared<LayerConfig{16}>));
}

/// Counters of a launch, each of what CTAs share on a line of its own. All are zero before it, and after it again.
struct LayerCounters {
    static constexpr uint32_t kLine = 32;                                         // words
    static constexpr uint32_t kTasks = 0, kTickets = kLine, kTokens = 2 * kLine;  // claimed; done
    static constexpr uint32_t kCtas = 3 * kLine, kPieces = 4 * kLine;             // done
    static constexpr uint32_t kWords = 8192, kSlots = 64;  // of a slot; of launches that may run at once
    static constexpr uint32_t kAll = kSlots * kWords;

    /// Pieces: blocks of codes that each group has; arrivals at each of these, then at columns of y.
    FG_HD static constexpr uint32_t words(uint32_t groups, uint32_t code_blocks, uint32_t y_tiles) {
        return kPieces + groups * (1 + code_blocks) + y_tiles;
    }
};

struct LayerParams {
    TensorMap gate_up, down, rows, codes;  // rows: of tokens
    RouteParams route;
    const uint8_t* x;
    const float *weights, *gate_up_scales, *down_scales;
    uint8_t* out;
    uint8_t *q, *z;                        // codes of tokens' rows, and of the activation
    float *q_scales, *z_scales;            // [rows][k-blocks]
    uint16_t *between, *y;                 // the activation, and rows of the second product, in bf16
    int64_t x_row_stride, out_row_stride;  // bytes
    int64_t weight_row_stride;
    uint32_t tokens, k, hidden, pairs;
    uint32_t power_of_two;
    SwigluRule rule;
    uint32_t slot;      // of counters
    uint32_t tasks;     // chunks of all tokens
    Divider by_chunks;  // of a token
    uint32_t copies;    // of the only token's codes: rows that an expert may have

    static constexpr uint32_t kChunk = 256;  // columns of a token that a warp quantises
    FG_HD constexpr uint32_t hidden_blocks() const { return hidden / kScaleBlock; }
    FG_HD constexpr uint32_t pair_blocks() const { return pairs / kScaleBlock; }
    FG_HD constexpr uint32_t gate_tiles() const { return pairs / LayerConfig::kHalf; }
    FG_HD constexpr uint32_t y_tiles() const { return hidden / LayerConfig::kTileRows; }
    FG_HD constexpr uint32_t tiles(uint32_t groups) const { return groups * (gate_tiles() + y_tiles()); }
};

/// A tile by its ticket: group after group, first of one product, then of the other, so that what the first tiles of
/// the second one multiply is there long before.
struct LayerTile {
    bool second;
    uint32_t group, col, k_blocks;  // col: in tiles

    FG_HD static constexpr LayerTile of(const LayerParams& p, uint32_t groups, uint32_t ticket) {
        const uint32_t of_gates = p.gate_tiles(), first = groups * of_gates;
        if (ticket < first) return {false, ticket / of_gates, ticket % of_gates, p.hidden_blocks()};
        return {true, (ticket - first) / p.y_tiles(), (ticket - first) % p.y_tiles(), p.pair_blocks()};
    }
    FG_HD constexpr uint32_t stages() const { return ceil_div(k_blocks, LayerConfig::kStageBlocks); }
};

}  // namespace finegemm
