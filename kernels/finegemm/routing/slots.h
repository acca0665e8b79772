// Places of rows in messages between ranks, and the kernel that finds them. Layer routing.
#pragma once

#include <finegemm/routing/routing.h>

namespace finegemm {

/// What stands behind the values and the scales of a row that travels.
struct RowTail {
    int32_t id;      // of the expert; kNoRow: the row is not used
    uint32_t state;  // kThere; of the first row of a message that has not come, kMissing
};
inline constexpr uint32_t kThere = 0, kMissing = ~0u;  // kMissing: two NaN, too, as bf16

/// Rows lie in the order of experts; those for a rank are a message.
struct RankSlots {
    uint32_t ranks = 1;
    uint32_t capacity = 0;  // rows of each message; 0: as many as there are, and messages lie one behind the other
    Divider by_experts;     // of a rank
    Divider by_capacity;    // of 0 by 1

    /// Rows of all messages; 0: as many as there are.
    FG_HD constexpr uint32_t all() const { return ranks * capacity; }
    /// Where row `row` of all goes, if those for `rank` begin at `first`; all() where its message is full.
    FG_HD constexpr uint32_t of(uint32_t rank, uint32_t row, uint32_t first) const {
        if (capacity == 0) return row;
        return row - first < capacity ? rank * capacity + (row - first) : all();
    }
};

struct SlotsConfig {
    static constexpr uint32_t kCount = 1;
    FG_HD static constexpr uint32_t index() { return 0; }
    FG_HD static constexpr uint32_t threads() { return 256; }
    FG_HD static constexpr uint32_t ctas_per_sm() { return 4; }
};

struct SlotsParams {
    const uint8_t* ids;      // [tokens, k]
    const int32_t* inverse;  // [tokens, k], contiguous: rows in the order of experts
    const int32_t* offsets;  // of all experts, and one more
    int32_t* slots;          // [tokens, k], contiguous
    int32_t* counts;         // [ranks]: choices of each
    uint8_t* tails;          // of the first row that is sent
    uint8_t* coming;         // the tail of the first row that is received; null where messages have no places yet
    uint8_t* returned;       // the first row that comes back, behind whose last one there is another; likewise
    int64_t row_bytes;       // of those with a tail
    uint32_t returned_row_bytes;
    int64_t ids_row_stride;
    uint32_t choices;
    uint32_t wide;  // ids have 64 bits
    Divider by_k;
    RankSlots rank_slots;

    /// Choices, rows of messages, ranks, and words of the row behind the last one: a thread each.
    FG_HD constexpr uint32_t tasks() const {
        return max(max(choices, rank_slots.all()), max(rank_slots.ranks, returned_row_bytes / 4));
    }
};

}  // namespace finegemm
