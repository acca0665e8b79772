// Memory that ranks reach of each other: who tells whom what there, and the parameters of the kernels that take rows of
// tokens to experts, and results back. Layer routing.
#pragma once

#include <finegemm/routing/routing.h>

namespace finegemm {

inline constexpr uint32_t kMostPeers = 64;

// What a rank tells another is one word: the number of the call, and something about it. Numbers grow, so that nothing
// has to be put back, neither between calls nor between replays of a graph.
inline constexpr uint32_t kGaveUp = ~0u;  // it has missed another rank, and does not do its part
FG_HD constexpr uint64_t peer_word(uint32_t generation, uint32_t said) {
    return static_cast<uint64_t>(generation) << 32 | said;
}
FG_HD constexpr uint32_t said_by(uint64_t word) { return static_cast<uint32_t>(word); }
FG_HD constexpr bool has_come(uint64_t word, uint32_t generation) {
    return static_cast<int32_t>(static_cast<uint32_t>(word >> 32) - generation) >= 0;
}

/// What the memory of a rank begins with. Other ranks write the words alone, each its own.
struct PeerHeader {
    uint32_t generation;            // of the last call that has ended here
    uint32_t ended;                 // CTAs of the kernel that runs
    uint64_t ready[kMostPeers];     // of each rank: its rows may be read, and it has so many tokens
    uint64_t returned[kMostPeers];  // of each rank: what its experts have made of rows from here is here
};

/// Where in the memory of each rank is what, as bytes.
struct PeerPlaces {
    int64_t coming = 0;    // [ranks, experts + 1] from each rank: its offsets, of the experts here
    int64_t inverse = 0;   // [tokens, k]: rows of this rank's choices, in the order of experts of all ranks
    int64_t offsets = 0;   // [ranks * experts + 1]: where those of an expert begin
    int64_t order = 0;     // [tokens]: 0, 1, 2, ...
    int64_t rows = 0;      // [tokens]: values, then scales of each
    int64_t returned = 0;  // [tokens * k] of bf16, in the order of experts
    int64_t bytes = 0;
};

/// A rank's view of the memory of all, in one call.
struct PeerView {
    uint8_t* memory[kMostPeers];
    PeerPlaces places;
    uint64_t* missing;  // of this rank's group: those that have not come, a bit each; no call does anything from then
                        // on. Null on the CPU
    uint64_t timeout_ns;
    uint32_t rank, ranks;
    uint32_t experts;       // of each rank
    uint32_t tokens, k;     // of this rank
    uint32_t capacity;      // rows from each rank to each other
    uint32_t value_bytes;   // of a row on its way there, a multiple of 16
    uint32_t scale_blocks;  // of it
    uint32_t row_bytes;     // from one to the next
    uint32_t result_bytes;  // of a row on its way back, a multiple of 16

    template <typename T>
    FG_HD T* at(uint32_t of, int64_t place) const {
        return reinterpret_cast<T*>(memory[of] + place);
    }
    FG_HD PeerHeader* header(uint32_t of) const { return at<PeerHeader>(of, 0); }
    /// Offsets of rank `from`, of the experts of rank `of`, where the latter has them.
    FG_HD int32_t* coming(uint32_t of, uint32_t from) const {
        return at<int32_t>(of, places.coming) + from * (experts + 1);
    }
    FG_HD uint8_t* row(uint32_t of, uint32_t token) const {
        return memory[of] + places.rows + static_cast<int64_t>(token) * row_bytes;
    }
    FG_HD uint8_t* result(uint32_t of, uint32_t row) const {
        return memory[of] + places.returned + static_cast<int64_t>(row) * result_bytes;
    }
    /// An offset, as far as rows fit that begin at `first`.
    FG_HD constexpr uint32_t fitting(uint32_t offset, uint32_t first) const {
        return offset - first < capacity ? offset : first + capacity;
    }
};

/// The place of row number `i` of a rank among rows of an expert: ranks alternate as long as they have rows. So
/// results, which leave in this order, are for all ranks at any time, and no link waits while another has all.
/// `begins`: where rows of each rank, and those of the next expert, would begin if they did not.
FG_HD constexpr uint32_t place_in_turn(const uint32_t* begins, uint32_t ranks, uint32_t rank, uint32_t i) {
    uint32_t place = begins[0];
    for (uint32_t r = 0; r < ranks; ++r) place += min(begins[r + 1] - begins[r], i + (r < rank ? 1 : 0));
    return place;
}

/// A kernel that takes rows of tokens to experts, or results back. Its CTAs wait for other ranks, and leave room for
/// those of the next layer.
struct PeersConfig {
    bool pushes = false;
    uint32_t warps = 8;

    static constexpr uint32_t kCount = 2;
    FG_HD constexpr uint32_t index() const { return pushes ? 1 : 0; }
    FG_HD constexpr uint32_t threads() const { return warps * kWarpSize; }
    FG_HD static constexpr uint32_t ctas_per_sm() { return 4; }  // that there is room for
    FG_HD static constexpr uint32_t most_per_sm() { return 2; }
    FG_HD static constexpr uint32_t chunk_bytes() { return 2048; }  // that a warp takes of a row at once
    FG_HD static constexpr uint32_t smem_bytes();
};

/// What a CTA finds: rows of an expert here from a rank, by experts, then by ranks.
struct PeersShared {
    uint32_t there[kMostExperts];     // where they begin at the rank
    uint32_t here[kMostExperts + 1];  // and here; behind the last ones, how many there are
    uint32_t ends[kMostPeers];        // of the rows of a rank that fit
    uint32_t tokens[kMostPeers];      // of each rank, in the order in which this one goes through them
    uint32_t sums[kWarpSize];         // of warps
    uint32_t given_up, lost;          // a rank has been missed before; is missed now
    uint32_t last;                    // of all CTAs this one has ended last
};
FG_HD constexpr uint32_t PeersConfig::smem_bytes() { return sizeof(PeersShared); }

/// Rows from other ranks go where experts here have theirs: by experts, in whose rows ranks alternate.
struct PullParams {
    PeerView peers;
    Divider by_ranks = {}, by_chunks = {};  // chunks: of a row
    uint8_t* q;                             // [ranks * capacity, value_bytes]
    float* scales;                          // of its rows, which are contiguous
    int64_t scale_col_stride;
    int32_t* numbers;   // [experts + 1]: where the rows of an expert begin
    int32_t* counts;    // [ranks]: rows that this rank has for each, whether they fit or not
    uint64_t* results;  // [ranks * capacity]: the address at which each row's result belongs
};

struct PushParams {
    PeerView peers;
    Divider by_chunks = {};
    const uint8_t* y;         // [ranks * capacity, result_bytes], as pulled; null: they are where they belong
    const int32_t* numbers;   // of PullParams
    const uint64_t* results;  // of PullParams
};

}  // namespace finegemm
