// Ranks that are threads of one process, on the CPU. Layer comm.
#pragma once

#include "comm/group.h"

namespace finegemm::comm {

/// The ends of a group, which each have a thread of their own.
std::vector<std::unique_ptr<Group>> groups_of_threads(int ranks, Seconds timeout);

}  // namespace finegemm::comm
