// Layers of experts over ranks, each a thread: with a GPU of its own, or on the CPU. Layer cli.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <finegemm/ep.h>

#include "cli/target.h"

namespace finegemm::cli {

/// What of a layer's experts each of `ranks` has. Throws Error(InvalidArgument) where they are no multiple.
MoeShape shape_of_rank(const MoeShape& shape, int ranks);

/// Medians in microseconds, of the slowest rank.
struct RanksTimes {
    double layer = 0;     // with a capacity that all choices fit
    double local = 0;     // the experts here alone, with the tokens of all ranks
    double exchange = 0;  // the layer's messages alone, there and back
    double memory = 0;    // the layer through memory of all ranks; 0: they do not reach it
    /// What the layer takes beside its experts.
    double exposed() const { return layer - local; }
};

struct RanksMeasured {
    int64_t capacity = 0;  // rows from each rank to each other
    RanksTimes us{};
    double of_bound = 0;  // the largest error of the tokens that were looked at, as a share of its bound
    bool right() const { return of_bound <= 1; }
};

class Ranks {
public:
    /// `device`: cpu; cuda: GPUs from 0 on; or auto: these, where there are enough. `count` 0: as many as there are
    /// GPUs, on the CPU two. Throws Error(Unsupported) where there are too few, and what communicators throw.
    /// `seed`: of random operands.
    Ranks(Context& context, const std::string& device, int count, uint64_t seed);

    int count() const { return static_cast<int>(targets_.size()); }
    bool on_gpus() const { return targets_[0].gpu != nullptr; }
    std::string machine() const { return on_gpus() ? targets_[0].gpu->name() : "cpu"; }

    /// Tokens and experts are the shape's: tokens of each rank, experts of all together. `zipf`: experts are chosen by
    /// Zipf's law, on all ranks alike, not evenly.
    RanksMeasured measure(const MoeShape& shape, bool zipf, int repeats);

private:
    /// Calls body(rank) on a thread for each. What one throws ends the communicator for all, and is thrown.
    void on_ranks(const std::function<void(int rank)>& body);

    Context& context_;
    const uint64_t seed_;
    const HostMatrix codes_, values_;  // random ones, for the operands of all
    std::vector<Target> targets_;
    std::vector<std::unique_ptr<Communicator>> communicators_;
};

}  // namespace finegemm::cli
