// finegemm bench --ep: layers of experts over ranks, and what their messages cost. Layer cli.
#include "cli/commands/ranks.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/bench/experts/layer.h"
#include "cli/bench/experts/ranks.h"
#include "cli/progress.h"
#include "cli/text.h"
#include "workbench/whole_file.h"

namespace finegemm::cli {

namespace {

/// On GPUs layers of DeepSeek-V4-Flash and -V3 with 32 experts on each rank, on a CPU small ones.
std::vector<std::string> table(const Ranks& ranks) {
    constexpr int kExperts = 32, kIntermediate = 2048;
    struct Model {
        int hidden, choices;
    };
    if (!ranks.on_gpus()) {
        const int experts = 4 * ranks.count();
        return {fmt::format("moe 8x256x128 {}x2", experts), fmt::format("moe 64x512x256 {}x4", experts)};
    }
    std::vector<std::string> lines;
    for (const auto& [hidden, choices] : {Model{4096, 6}, Model{7168, 8}})
        for (const int tokens : {8, 64, 512, 1024, 4096, 8192})
            lines.push_back(
                fmt::format("moe {}x{}x{} {}x{}", tokens, hidden, kIntermediate, kExperts * ranks.count(), choices));
    return lines;
}

nlohmann::ordered_json json_of(const std::string& line, const char* ids, const RanksMeasured& m) {
    return {{"line", line},
            {"ids", ids},
            {"capacity", m.capacity},
            {"us",
             {{"layer", m.us.layer},
              {"local", m.us.local},
              {"exchange", m.us.exchange},
              {"exposed", m.us.exposed()},
              {"memory", m.us.memory}}},
            {"of_bound", m.of_bound},
            {"right", m.right()}};
}

std::string text_of(const std::string& line, const char* ids, const RanksMeasured& m) {
    const std::string exposed = m.us.exposed() > 0 ? time_text(m.us.exposed()) : "0";
    const double share = std::max(m.us.exposed(), 0.0) / m.us.exchange;
    return fmt::format("{:>10} {:>10} {:>10} {:>10} {:>6.0f}% {:>10}  {:<5} {}{}\n",
                       m.right() ? time_text(m.us.layer) : "WRONG", time_text(m.us.local), time_text(m.us.exchange),
                       exposed, 100 * share, m.us.memory > 0 ? time_text(m.us.memory) : "-", ids, line,
                       m.right() ? "" : fmt::format(": an error of {:.3g} times the bound", m.of_bound));
}

}  // namespace

ExitCode bench_ranks(const RanksOptions& o, const Front& front) {
    for (const std::string& line : o.lines) static_cast<void>(parse_layer(line));
    Progress progress;
    Context context(front.options());
    Ranks ranks(context, o.device, o.ranks, o.seed);
    const int repeats = o.repeats > 0 ? o.repeats : ranks.on_gpus() ? 50 : 5;
    const std::vector<std::string> lines = o.lines.empty() ? table(ranks) : o.lines;
    for (const std::string& line : lines) static_cast<void>(shape_of_rank(parse_layer(line), ranks.count()));
    const std::string method = fmt::format("median of {}, of the slowest rank", repeats);
    nlohmann::ordered_json record = {{"machine", ranks.machine()},
                                     {"ranks", ranks.count()},
                                     {"method", method},
                                     {"rows", nlohmann::ordered_json::array()}};
    if (!o.json)
        front.out << fmt::format("{}, {} ranks: {}\n{:>10} {:>10} {:>10} {:>10} {:>7} {:>10}  ids   tokens of each\n",
                                 ranks.machine(), ranks.count(), method, "layer", "local", "messages", "exposed",
                                 "of them", "by memory");
    bool right = true;
    for (size_t i = 0; i < 2 * lines.size(); ++i) {
        const std::string& line = lines[i / 2];
        const bool zipf = i % 2 == 1;
        const char* const ids = zipf ? "Zipf" : "even";
        progress.at(i, 2 * lines.size(), line);
        front.poll(0);
        const RanksMeasured m = ranks.measure(parse_layer(line), zipf, repeats);
        progress.pause();
        right &= m.right();
        record["rows"].push_back(json_of(line, ids, m));
        if (!o.output.empty()) write_whole(o.output, record.dump(1) + "\n");
        if (!o.json) front.out << text_of(line, ids, m) << std::flush;
    }
    if (o.json) front.out << record.dump(2) << '\n';
    return right ? kOk : kWrongResult;
}

}  // namespace finegemm::cli
