// The commands of the tool: each adds itself to the parser and returns what runs it. Layer cli.
#pragma once

#include <functional>
#include <ostream>
#include <string>

#include <CLI/CLI.hpp>

#include <finegemm/context.h>

namespace finegemm::cli {

/// Exit codes, as --help states them.
enum ExitCode { kOk = 0, kFailed = 1, kInvalid = 2, kUnsupported = 3, kWrongResult = 4 };

/// Who asked for a command.
struct Front {
    std::ostream& out;  // for the report
    std::function<Options()> options = Options::from_environment;
    Poll poll = [](double) {};  // what it throws ends long work
    std::string log{};          // what --log says where it is not given (cli/log.h); empty: no log
};

using Run = std::function<ExitCode(const Front&)>;

Run add_run(CLI::App& app);
Run add_bench(CLI::App& app);
Run add_tune(CLI::App& app);
Run add_explain(CLI::App& app);
Run add_doctor(CLI::App& app);
Run add_cache(CLI::App& app);
Run add_pack(CLI::App& app);

}  // namespace finegemm::cli
