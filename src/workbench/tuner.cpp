// A table of measured choices in the making. Layer api.
#include "workbench/tuner.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "plan/fields.h"
#include "workbench/whole_file.h"

namespace finegemm {

namespace {

double rounded(double us) { return std::round(us * 1000) / 1000; }

}  // namespace

Tuner::Tuner(const plan::DeviceSpec& device, std::string file) : device_(device), file_(std::move(file)) {
    if (std::filesystem::exists(file_)) {
        table_ = plan::read_table(file_);
        plan::check_device(table_, device_, file_);
        std::erase_if(table_.entries, [&](const plan::TableEntry& e) { return !plan::fault(e, device_).empty(); });
    }
    table_.device = device_.name;
    table_.sms = device_.sms;
    table_.version = FINEGEMM_VERSION;
}

plan::Problem Tuner::problem_of(const GemmShape& shape) const {
    plan::check_shape(shape);
    return plan::normalised(plan::problem_of(shape), device_);
}

std::vector<std::string> Tuner::kernels(const GemmShape& shape, size_t most) const {
    const plan::Problem problem = problem_of(shape);
    const GemmConfig usual = plan::choose(problem, device_).config;
    std::vector<std::pair<double, std::string>> others;
    for (const GemmConfig& c : plan::candidates(problem.kind()))
        if (c != usual && plan::rejected(problem, device_, c).empty())
            others.emplace_back(plan::cost(problem, device_, c).total, plan::name_of(c));
    std::ranges::sort(others);
    std::vector<std::string> names{plan::name_of(usual)};
    for (size_t i = 0; i < others.size() && names.size() < most; ++i) names.push_back(std::move(others[i].second));
    return names;
}

Tuned Tuner::record(const GemmShape& shape, std::span<const TimedKernel> times) {
    const plan::Problem problem = problem_of(shape);
    Tuned tuned{.fastest = *std::ranges::min_element(times, {}, &TimedKernel::us), .usual = times.front()};
    tuned.recorded = tuned.gain() > kLeastGain;
    const auto of_problem = [&](const plan::TableEntry& e) { return plan::normalised(e.problem, device_) == problem; };
    std::erase_if(table_.entries, of_problem);
    if (tuned.recorded)
        table_.entries.push_back({.problem = problem,
                                  .kernel = tuned.fastest.name,
                                  .us = rounded(tuned.fastest.us),
                                  .usual = tuned.usual.name,
                                  .usual_us = rounded(tuned.usual.us)});
    return tuned;
}

void Tuner::write() const { write_whole(file_, plan::text_of(table_)); }

}  // namespace finegemm
