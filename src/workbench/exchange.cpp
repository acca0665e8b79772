// Messages of a layer of experts over ranks, alone. Layer api.
#include "workbench/exchange.h"

#include <vector>

#include "comm/group.h"
#include "ops/ep/call.h"

namespace finegemm {

int64_t sent_row_bytes(int64_t hidden) { return sent_row(hidden).bytes; }

void exchange_evenly(Communicator& communicator, const void* sent, void* received, int64_t bytes) {
    std::vector<comm::Message> messages;
    std::vector<comm::Place> places;
    for (int64_t r = 0; r < communicator.ranks(); ++r) {
        messages.push_back({static_cast<const uint8_t*>(sent) + r * bytes, static_cast<size_t>(bytes)});
        places.push_back({static_cast<uint8_t*>(received) + r * bytes, static_cast<size_t>(bytes)});
    }
    communicator.group().all_to_all({messages, places});
}

}  // namespace finegemm
