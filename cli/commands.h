// The commands of the tool: each adds itself to the parser and returns what runs it. Layer cli.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace finegemm::cli {

/// Exit codes, as --help states them.
enum ExitCode { kOk = 0, kFailed = 1, kInvalid = 2, kUnsupported = 3, kWrongResult = 4 };

using Run = std::function<ExitCode()>;

Run add_run(CLI::App& app);
Run add_bench(CLI::App& app);
Run add_tune(CLI::App& app);
Run add_explain(CLI::App& app);
Run add_doctor(CLI::App& app);
Run add_cache(CLI::App& app);
Run add_pack(CLI::App& app);

}  // namespace finegemm::cli
