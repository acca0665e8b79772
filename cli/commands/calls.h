// Calls besides those of gemm and its kind in finegemm run, explain and bench. Layer cli.
#pragma once

#include <string>
#include <vector>

#include "cli/bench/trial.h"
#include "cli/commands.h"

namespace finegemm::cli {

/// What these take of the commands' options.
struct CallOptions {
    std::string device = "auto";
    int repeats = 5;  // 0: 50 on a GPU, 5 on a CPU
    uint64_t seed = 1;
    bool json = false;
};

ExitCode run_call(const std::string& line, const CallOptions& o, const Front& front);
/// `device`: a known one, or empty for the GPU present.
ExitCode explain_call(const std::string& line, const std::string& device, bool json, const Front& front);
/// A line of the table for each. Throws Error(InvalidArgument) where one is a product.
ExitCode bench_calls(const std::vector<std::string>& lines, const CallOptions& o, const Front& front);

}  // namespace finegemm::cli
