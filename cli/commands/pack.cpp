// finegemm pack: compile all kernels in advance. Layer cli.
#include <algorithm>
#include <filesystem>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/text.h"
#include "workbench/doctor.h"

namespace finegemm::cli {

namespace {

struct PackOptions {
    std::string out;
    int cuda = 0;
    unsigned jobs = std::max(1u, std::thread::hardware_concurrency());
    bool json = false;
};

ExitCode run(const PackOptions& o, const Front& front) {
    Progress progress;
    progress.at(0, 1, "looking for a compiler");
    const size_t kernels =
        write_pack(front.options(), o.out, o.cuda, o.jobs,
                   [&](size_t done, size_t of, const std::string& kernel) { progress.at(done, of, kernel); });
    progress.pause();
    const auto bytes = static_cast<int64_t>(std::filesystem::file_size(o.out));
    if (o.json)
        front.out << nlohmann::ordered_json{{"file", o.out}, {"kernels", kernels}, {"bytes", bytes}}.dump(2) << '\n';
    else front.out << fmt::format("{}: {} kernels, {}\n", o.out, kernels, bytes_text(bytes));
    return kOk;
}

}  // namespace

Run add_pack(CLI::App& app) {
    auto o = std::make_shared<PackOptions>();
    CLI::App* command = app.add_subcommand("pack", "Compile every kernel that a call can choose into one file");
    command->add_option("--out", o->out, "The file")->required();
    command
        ->add_option("--cuda", o->cuda,
                     "For drivers of this major version of CUDA and newer ones; without it the driver of this machine")
        ->check(CLI::Range(12, 13));
    command->add_option("--jobs", o->jobs, "Kernels to compile at once")
        ->check(CLI::Range(1, 256))
        ->capture_default_str();
    command->add_flag("--json", o->json, "Print JSON");
    return [o](const Front& front) { return run(*o, front); };
}

}  // namespace finegemm::cli
