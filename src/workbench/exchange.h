// Messages of a layer of experts over ranks, alone, for timing. Layer api.
#pragma once

#include <cstdint>

#include <finegemm/ep.h>

namespace finegemm {

/// Bytes of a row on its way to an expert.
int64_t sent_row_bytes(int64_t hidden);

/// As many bytes for each rank as from each: those for rank 0, 1 and so on lie at `sent`. On a GPU it is queued on the
/// default stream. Throws Error: Driver, Peer.
void exchange_evenly(Communicator& communicator, const void* sent, void* received, int64_t bytes);

}  // namespace finegemm
