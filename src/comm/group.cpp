// Words about ranks. Layer comm.
#include "comm/group.h"

#include <vector>

#include <fmt/format.h>

namespace finegemm::comm {

std::string name_of_rank(int rank, int64_t experts) {
    return experts > 0 ? fmt::format("rank {} (experts {} to {})", rank, rank * experts, (rank + 1) * experts - 1)
                       : fmt::format("rank {}", rank);
}

namespace {

std::string names_of(std::span<const int> ranks, int64_t experts) {
    std::string names;
    for (size_t i = 0; i < ranks.size(); ++i)
        names += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + name_of_rank(ranks[i], experts);
    return names;
}

std::string sentence(const std::string& who, bool is_one, Seconds timeout) {
    return fmt::format("{} {} not come within {:g} s; the group has ended, make another of the ranks that are left",
                       who, is_one ? "has" : "have", timeout.count());
}

}  // namespace

std::string sentence_of_missing(std::span<const int> ranks, int64_t experts, Seconds timeout) {
    return sentence(names_of(ranks, experts), ranks.size() == 1, timeout);
}

std::string sentence_of_lost(std::span<const int> seen, int rank, int ranks, int64_t experts, Seconds timeout) {
    std::vector<int> others;
    for (int r = 0; r < ranks; ++r)
        if (r != rank) others.push_back(r);
    if (others.size() == 1) return sentence_of_missing(others, experts, timeout);
    if (!seen.empty() && seen.size() < others.size()) return sentence_of_missing(seen, experts, timeout);
    return sentence("one of " + names_of(others, experts), true, timeout);
}

}  // namespace finegemm::comm
