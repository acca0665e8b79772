// finegemm cache: the compiled kernels on disk. Layer cli.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/text.h"
#include "workbench/doctor.h"

namespace finegemm::cli {

namespace {

using nlohmann::ordered_json;

void print(const Front& front, const ordered_json& json) { front.out << json.dump(2) << '\n'; }

/// For people: a cache that is off has no directory.
std::string location_of(const Options& options) {
    return options.cache_dir.empty() ? "no cache directory" : options.cache_dir;
}

void list(const Front& front, const Options& options, bool json) {
    ordered_json out = ordered_json::array();
    const auto entries = list_cache(options);
    for (const CacheEntry& e : entries) {
        if (json)
            out.push_back({{"file", e.file}, {"kernel", e.kernel}, {"bytes", e.bytes}, {"age_seconds", e.age_seconds}});
        else
            front.out << fmt::format("{:<44} {:>9}, used {} ago\n", e.kernel, bytes_text(e.bytes),
                                     age_text(e.age_seconds));
    }
    if (json) print(front, out);
    else if (entries.empty()) front.out << fmt::format("{}: empty\n", location_of(options));
}

void size(const Front& front, const Options& options, bool json) {
    int64_t bytes = 0, count = 0;
    for (const CacheEntry& e : list_cache(options)) bytes += e.bytes, ++count;
    if (json)
        print(front, {{"directory", options.cache_dir},
                      {"kernels", count},
                      {"bytes", bytes},
                      {"limit_bytes", options.cache_limit_bytes}});
    else
        front.out << fmt::format("{}: {} kernels, {} of at most {}\n", location_of(options), count, bytes_text(bytes),
                                 bytes_text(options.cache_limit_bytes));
}

void clear(const Front& front, const Options& options, bool json) {
    const int64_t removed = clear_cache(options);
    if (json) print(front, {{"removed", removed}});
    else front.out << fmt::format("{}: {} files removed\n", location_of(options), removed);
}

}  // namespace

Run add_cache(CLI::App& app) {
    auto json = std::make_shared<bool>(false);
    auto action = std::make_shared<std::string>();
    CLI::App* command = app.add_subcommand("cache", "Show or clear the compiled kernels on disk");
    command->add_option("action", *action, "list (last used first), size or clear")
        ->required()
        ->check(CLI::IsMember({"list", "size", "clear"}));
    command->add_flag("--json", *json, "Print JSON");
    return [action, json](const Front& front) {
        const Options options = front.options();
        if (*action == "list") list(front, options, *json);
        else if (*action == "size") size(front, options, *json);
        else clear(front, options, *json);
        return kOk;
    };
}

}  // namespace finegemm::cli
