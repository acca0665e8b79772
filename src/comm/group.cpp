// Words about ranks. Layer comm.
#include "comm/group.h"

#include <fmt/format.h>

namespace finegemm::comm {

std::string name_of_rank(int rank, int64_t experts) {
    return experts > 0 ? fmt::format("rank {} (experts {} to {})", rank, rank * experts, (rank + 1) * experts - 1)
                       : fmt::format("rank {}", rank);
}

std::string sentence_of_missing(std::span<const int> ranks, int64_t experts, Seconds timeout) {
    std::string names;
    for (size_t i = 0; i < ranks.size(); ++i)
        names += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + name_of_rank(ranks[i], experts);
    return fmt::format("{} {} not come within {:g} s; the group has ended, make another of the ranks that are left",
                       names, ranks.size() == 1 ? "has" : "have", timeout.count());
}

}  // namespace finegemm::comm
