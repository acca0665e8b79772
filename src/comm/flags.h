// Words that ranks on the CPU leave in each other's memory. Layer comm.
#pragma once

#include <finegemm/routing/peers.h>

#include "comm/group.h"

namespace finegemm::comm {

/// What this rank has written in anyone's memory before is there for whoever sees the word.
void tell(uint64_t& word, uint64_t said);

/// Waits until each rank's word says that it has come to call number `generation`; what they had written before can be
/// read then. Throws Error(Peer) that names those that have not come in the group's time, or have given up, with their
/// experts, and ends the group.
void wait_for_words(Group& group, std::span<uint64_t> words, uint32_t generation, int64_t experts);

}  // namespace finegemm::comm
