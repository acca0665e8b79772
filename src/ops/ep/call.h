// A call of a layer of experts over ranks, as everything behind the public function sees it. Layer engine.
#pragma once

#include <string>

#include <finegemm/ep.h>
#include <finegemm/routing/peers.h>
#include <finegemm/routing/slots.h>

#include "comm/flags.h"
#include "ops/moe/call.h"

namespace finegemm {

/// Memory of all ranks of a group.
struct PeerMemoryState {
    MoeShape most;
    int64_t bytes;  // of each
    const comm::Group* group;
    std::unique_ptr<comm::PeerTable> table;
};

/// The options are borrowed.
struct EpMoeCall {
    const MoeArgs& layer;
    const MoeOptions& options;
    const EpOptions& how;
    comm::Group& group;
    bool check_values = false;                // the options', or the context's
    const PeerMemoryState* memory = nullptr;  // that of `how`

    bool has_peers() const;  // rows travel through memory that all ranks reach
    int64_t ranks() const { return group.ranks(); }
    int64_t experts() const { return shape().experts; }  // of each rank
    int64_t choices() const { return layer.ids.rows * layer.ids.cols; }
    Device device() const { return layer.out.device; }
    MoeShape shape() const { return MoeCall{layer, options}.shape(); }
};

/// Where rows are in messages to ranks.
struct SlotsCall {
    SlotsParams params;
    const RouteOptions& options;
};

/// Rows of tokens that other ranks have, to experts here: waits for all ranks.
struct PullCall {
    PullParams params;
    int64_t most_tokens;  // of a rank
    const PermuteOptions& options;
    comm::Group& group;
};
/// Rows of experts here, to the ranks whose tokens chose them: waits until those of all ranks have come.
struct PushCall {
    PushParams params;
    const PermuteOptions& options;
    comm::Group& group;
};

/// How a row travels: values, scales, its tail.
struct SentRow {
    int64_t scales = 0, tail = 0, bytes = 0;  // where each begins
};
SentRow sent_row(int64_t hidden);

/// Rows of all messages that one rank may have: more are too large for the layer that they are handed to.
int64_t most_rows(int64_t hidden);

/// The layer that experts here compute, of so many rows of all ranks: of each one choice.
MoeShape local_shape(const MoeShape& shape, int64_t rows);

/// Where in the workspace is what of a call with a capacity.
struct EpMemory {
    int64_t inverse = 0, offsets = 0, slots = 0, counts = 0;  // of choices
    int64_t sent = 0, received = 0;                           // messages there
    int64_t y = 0, returned = 0;                              // and back
    int64_t layer = 0, layer_bytes = 0;                       // workspace of `moe`
    int64_t bytes = 0;
};
EpMemory memory_of(const MoeShape& shape, int64_t ranks, int64_t capacity);

/// Where in the memory of each of `ranks` is what.
PeerPlaces peer_places(const MoeShape& most, int64_t ranks);

/// "ep_moe rank 1 of 4, 64x7168 bf16, 8 of 128 experts, 2048 pairs"
std::string text_of(const EpMoeCall& call);

}  // namespace finegemm
