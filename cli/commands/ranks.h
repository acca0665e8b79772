// finegemm bench --ep. Layer cli.
#pragma once

#include <string>
#include <vector>

#include "cli/commands.h"

namespace finegemm::cli {

struct RanksOptions {
    std::vector<std::string> lines;  // of layers; none: a table
    std::string device = "auto";
    std::string output;  // a file for the record, whole after each row; empty: none
    int ranks = 0;       // 0: as many as there are GPUs, on the CPU two
    int repeats = 0;     // 0: 50 on GPUs, 5 on a CPU
    uint64_t seed = 1;
    bool json = false;
};

/// A line for each layer, evenly routed and by Zipf's law.
ExitCode bench_ranks(const RanksOptions& o, const Front& front);

}  // namespace finegemm::cli
