// finegemm doctor: what this machine has, and what to do about what it has not. Layer cli.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "workbench/doctor.h"

namespace finegemm::cli {

namespace {

std::string_view name_of(State s) { return s == State::Ok ? "ok" : s == State::Missing ? "missing" : "broken"; }

std::string verdict(const std::vector<Finding>& findings) {
    for (const Finding& f : findings)
        if (f.what == "gpu" && f.state == State::Ok) return "GEMMs run on the GPU";
    return "GEMMs run on the CPU";
}

ExitCode run(bool json, const Front& front) {
    const auto findings = diagnose(front.options());
    if (json) {
        nlohmann::ordered_json list = nlohmann::ordered_json::array();
        for (const Finding& f : findings) {
            list.push_back({{"what", f.what}, {"state", name_of(f.state)}, {"detail", f.detail}});
            if (!f.remedy.empty()) list.back()["remedy"] = f.remedy;
        }
        front.out << nlohmann::ordered_json{{"verdict", verdict(findings)}, {"findings", list}}.dump(2) << '\n';
        return kOk;
    }
    for (const Finding& f : findings) {
        front.out << fmt::format("{:<10} {:<8} {}\n", f.what, name_of(f.state), f.detail);
        if (!f.remedy.empty()) front.out << fmt::format("{:<19} -> {}\n", "", f.remedy);
    }
    front.out << verdict(findings) << '\n';
    return kOk;
}

}  // namespace

Run add_doctor(CLI::App& app) {
    auto json = std::make_shared<bool>(false);
    CLI::App* command = app.add_subcommand("doctor", "Say what this machine has, and what to do about what it has not");
    command->footer("Exit code 0: the library works here, on the CPU if nowhere else.");
    command->add_flag("--json", *json, "Print JSON");
    return [json](const Front& front) { return run(*json, front); };
}

}  // namespace finegemm::cli
