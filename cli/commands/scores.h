// Scores of an indexer in finegemm run and bench. Layer cli.
#pragma once

#include <string>
#include <vector>

#include "cli/bench/scores.h"
#include "cli/commands.h"

namespace finegemm::cli {

/// What these take of the commands' options.
struct ScoresOptions {
    std::string device = "auto";
    int repeats = 5;  // 0: 50 on a GPU, 5 on a CPU
    uint64_t seed = 1;
    bool json = false;
};

ExitCode run_scores(const std::string& line, const ScoresOptions& o, const Front& front);
ExitCode explain_scores(const std::string& line, bool json, const Front& front);
/// A line of the table for each. Throws Error(InvalidArgument) where one is a product.
ExitCode bench_scores(const std::vector<std::string>& lines, const ScoresOptions& o, const Front& front);

}  // namespace finegemm::cli
