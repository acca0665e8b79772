// Calls besides those of gemm and its kind in finegemm run, explain and bench. Layer cli.
#include "cli/commands/calls.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <finegemm/error.h>

#include "cli/progress.h"
#include "cli/text.h"

namespace finegemm::cli {

namespace {

struct Measured {
    std::string line;
    double us = 0, operations = 0, bytes = 0;
    Trial::Check check{};

    nlohmann::ordered_json json() const {
        return {{"line", line},
                {"us", us},
                {"tflop_per_s", operations / us * 1e-6},
                {"gb_per_s", bytes / us * 1e-3},
                {"check",
                 {{"rows", check.rows},
                  {"of_bound", check.of_bound},
                  {"wrong_fill", check.wrong_fill},
                  {"wrong_bits", check.wrong_bits},
                  {"wrong_places", check.wrong_places}}},
                {"right", check.right()}};
    }
};

Measured measure(Context& context, const Target& target, const std::string& line, uint64_t seed, int repeats) {
    const auto trial = make_trial(context, target, line, seed);
    Measured m{.line = line, .us = trial->time(repeats), .operations = trial->operations(), .bytes = trial->bytes()};
    m.check = trial->check();
    if (target.gpu) target.gpu->release();
    return m;
}

/// What is wrong with the result; empty where nothing is.
std::string faults_text(const Trial::Check& c) {
    std::string text;
    const auto add = [&](int64_t count, const char* what) {
        if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, what);
    };
    add(c.wrong_fill, "elements should be -inf and are not");
    add(c.wrong_bits, "elements have other bits than the CPU's");
    add(c.wrong_places, "places are not those of a sort");
    if (!(c.of_bound <= 1))
        text += fmt::format("{}an error of {:.3g} times the bound", text.empty() ? "" : ", ", c.of_bound);
    return text;
}

/// "12 TFLOP/s, 34 GB/s"
std::string rates_text(const Measured& m) {
    const std::string traffic = rate_text(m.bytes / m.us, "B/s");
    return m.operations > 0 ? rate_text(m.operations / m.us, "FLOP/s") + ", " + traffic : traffic;
}

void print_text(const Front& front, const Target& target, const Measured& m, int repeats) {
    const std::string faults = faults_text(m.check);
    front.out << fmt::format("device   {}\n", target.gpu ? target.name + ", " + target.gpu->name() : target.name);
    if (!target.why.empty()) front.out << fmt::format("         {}\n", target.why);
    front.out << fmt::format("call     {}\n", m.line);
    front.out << fmt::format("time     {} (median of {}), {}\n", time_text(m.us), repeats, rates_text(m));
    front.out << fmt::format("check    {} rows against {}{}\n", m.check.rows, m.check.sorted ? "a sort" : "double sums",
                             m.check.by_bits ? " and, by bits, the CPU" : "");
    if (!faults.empty()) front.out << fmt::format("result   WRONG: {}\n", faults);
    else if (m.check.sorted) front.out << "result   right\n";
    else front.out << fmt::format("result   right: {:.1f}% of the error bound at worst\n", 100 * m.check.of_bound);
}

}  // namespace

ExitCode run_call(const std::string& line, const CallOptions& o, const Front& front) {
    Progress progress;
    Context context(front.options());
    Target target = choose_target(context, o.device);
    target.poll = progress.polling(front.poll);
    const Measured m = measure(context, target, line, o.seed, o.repeats);
    progress.pause();
    if (o.json) front.out << m.json().dump(2) << '\n';
    else print_text(front, target, m, o.repeats);
    return m.check.right() ? kOk : kWrongResult;
}

namespace {

/// What the launch of a kernel for scores, of one that selects, for a product before a norm or with weights of 4 bits
/// is made of.
std::string made_of_text(const nlohmann::json& config) {
    const auto number = [&](const char* name) { return config.at(name).get<int64_t>(); };
    if (config.contains("held_columns"))
        return fmt::format("clusters of {} CTAs of {} threads", number("cluster"), number("threads"));
    const std::string rings = fmt::format(", rings of {} stages", number("stages"));
    if (config.contains("tile_keys"))
        return fmt::format("tiles of {} keys x {} columns for each of {} math warpgroups", number("tile_keys"),
                           number("columns"), number("math_warpgroups")) +
               rings;
    if (!config.contains("cluster"))
        return fmt::format("tiles of {} rows x {} columns, {} of them by {} CTAs", number("rows"), number("cols"),
                           number("tiles"), number("ctas")) +
               rings;
    return fmt::format("tiles of {} rows x {} columns, clusters of {} CTAs, {} CTAs in all", number("rows"),
                       number("cols"), number("cluster"), number("ctas")) +
           rings;
}

/// A table of plans: the chosen one and the fastest others.
std::string plans_text(const nlohmann::json& plans) {
    constexpr size_t kMost = 8;
    std::string text =
        fmt::format("\n{:>10} {:>6} {:>8} {:>7} {:>6}\n", "predicted", "rows", "cluster", "slices", "CTAs");
    for (size_t i = 0; i < std::min(plans.size(), kMost); ++i) {
        const auto number = [&](const char* name) { return plans[i].at(name).get<int64_t>(); };
        text += fmt::format("{:>10} {:>6} {:>8} {:>7} {:>6}\n", time_text(plans[i].at("us").get<double>()),
                            number("rows"), number("cluster"), number("slices"), number("ctas"));
    }
    return text + (plans.size() > kMost ? fmt::format("and {} slower ones\n", plans.size() - kMost) : "");
}

/// A table of products that a call may be.
std::string forms_text(const nlohmann::json& forms) {
    std::string text = fmt::format("\n{:>10}  {:6} kernel\n", "predicted", "form");
    for (const auto& x : forms)
        text += fmt::format("{:>10}  {:6} {}\n", time_text(x.at("us").get<double>()), x.at("form").get<std::string>(),
                            x.at("kernel").get<std::string>());
    return text;
}

/// A table of launches, and why they are these.
std::string launches_text(const std::string& line, const nlohmann::json& out) {
    std::string text =
        fmt::format("{}: {} in {} launches\n", line, time_text(out.at("us").get<double>()), out.at("launches").size());
    for (const auto& why : out.at("why")) text += fmt::format("  {}\n", why.get<std::string>());
    text += fmt::format("\n{:>10}  {:23} kernel\n", "predicted", "call");
    for (const auto& x : out.at("launches"))
        text += fmt::format("{:>10}  {:23} {}\n", time_text(x.at("us").get<double>()), x.at("call").get<std::string>(),
                            x.at("kernel").get<std::string>());
    return text;
}

}  // namespace

ExitCode explain_call(const std::string& line, const std::string& device, bool json, const Front& front) {
    const std::string text = explain_trial(line, device);
    if (json) {
        front.out << text << '\n';
        return kOk;
    }
    const auto out = nlohmann::json::parse(text);
    if (out.contains("launches")) {
        front.out << launches_text(line, out);
        return kOk;
    }
    const auto& config = out.at("config");
    const std::string on = out.contains("device") ? " on " + out.at("device").get<std::string>() : "";
    front.out << fmt::format("{}{}: {}\n", line, on, out.at("kernel").get<std::string>());
    for (const auto& why : out.at("why")) front.out << fmt::format("  {}\n", why.get<std::string>());
    front.out << fmt::format("{}, {} KB of shared memory\n", made_of_text(config),
                             config.at("smem_bytes").get<int64_t>() / 1024);
    if (out.contains("plans")) front.out << plans_text(out.at("plans"));
    if (out.contains("forms")) front.out << forms_text(out.at("forms"));
    return kOk;
}

ExitCode bench_calls(const std::vector<std::string>& lines, const CallOptions& o, const Front& front) {
    if (const auto other = std::ranges::find_if_not(lines, is_trial); other != lines.end())
        throw Error(Errc::InvalidArgument,
                    fmt::format("shapes: '{}' is one of gemm, and others are not; give them apart", *other));
    for (const std::string& line : lines) check_trial(line);
    Progress progress;
    Context context(front.options());
    Target target = choose_target(context, o.device);
    target.poll = progress.polling(front.poll);
    const std::string machine = target.gpu ? target.gpu->name() : "cpu";
    const int repeats = o.repeats > 0 ? o.repeats : target.gpu ? 50 : 5;
    nlohmann::ordered_json record = {
        {"machine", machine}, {"repeats", repeats}, {"rows", nlohmann::ordered_json::array()}};
    if (!o.json)
        front.out << fmt::format("{}: median of {}\n{:>10} {:>14} {:>12}  call\n", machine, repeats, "time", "rate",
                                 "traffic");
    bool right = true;
    for (size_t i = 0; i < lines.size(); ++i) {
        progress.at(i, lines.size(), lines[i]);
        const Measured m = measure(context, target, lines[i], o.seed, repeats);
        progress.pause();
        right &= m.check.right();
        record["rows"].push_back(m.json());
        if (o.json) continue;
        const std::string faults = faults_text(m.check);
        front.out << fmt::format("{:>10} {:>14} {:>12}  {}{}\n", faults.empty() ? time_text(m.us) : "WRONG",
                                 m.operations > 0 ? rate_text(m.operations / m.us, "FLOP/s") : "",
                                 rate_text(m.bytes / m.us, "B/s"), m.line, faults.empty() ? "" : ": " + faults)
                  << std::flush;
    }
    if (o.json) front.out << record.dump(2) << '\n';
    return right ? kOk : kWrongResult;
}

}  // namespace finegemm::cli
