// The choice: what was measured, else of all kernels that can the cheapest; and the account of it. Layer plan.
#include <algorithm>
#include <cmath>
#include <optional>

#include <finegemm/error.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plan/describe.h"
#include "plan/fields.h"
#include "plan/table.h"

namespace finegemm::plan {

namespace {

template <typename Entries>
std::optional<GemmConfig> found_in(const Entries& entries, const Problem& problem, const DeviceSpec& device) {
    for (const auto& e : entries)
        if (normalised(e.problem, device) == normalised(problem, device)) return config_named(e.kernel);
    return {};
}

std::optional<GemmConfig> cheapest(const Problem& problem, const DeviceSpec& device) {
    std::optional<GemmConfig> best;
    double least = 0;
    for (const GemmConfig& c : candidates(problem.kind())) {
        if (!rejected(problem, device, c).empty()) continue;
        const double total = cost(problem, device, c).total;
        if (!best || total < least) {
            best = c;
            least = total;
        }
    }
    return best;
}

/// The shipped choice. Integers have FP8's where they have the tile and M is so small that weights take the time.
std::optional<GemmConfig> shipped_for(const Problem& problem, const DeviceSpec& device) {
    const std::span<const ShippedEntry> shipped = shipped_table(device);
    constexpr uint32_t kFewRows = 128;
    if (problem.a.element != Element::I8) return found_in(shipped, problem, device);
    if (problem.m > kFewRows) return {};
    Problem fp8 = problem;
    fp8.a.element = fp8.b.element = Element::E4M3;
    std::optional<GemmConfig> config = found_in(shipped, fp8, device);
    if (!config) return {};
    config->a = problem.a, config->b = problem.b;
    const auto ours = candidates(problem.kind());
    return std::ranges::find(ours, *config) != ours.end() ? config : std::nullopt;
}

/// Nothing, when no kernel can take it.
std::optional<Choice> choice_of(const Problem& problem, const DeviceSpec& device, const PlanTable* user) {
    if (user)
        if (const auto config = found_in(user->entries, problem, device)) return Choice{*config, Source::UserTable};
    if (const auto config = shipped_for(problem, device)) return Choice{*config, Source::ShippedTable};
    if (const auto config = cheapest(problem, device)) return Choice{*config, Source::Model};
    return {};
}

}  // namespace

std::string_view name_of(Source source) {
    switch (source) {
        case Source::UserTable: return "user table";
        case Source::ShippedTable: return "shipped table";
        case Source::Model: return "model";
    }
    return "unknown";
}

Choice choose(const Problem& problem, const DeviceSpec& device, const PlanTable* user) {
    if (const auto choice = choice_of(problem, device, user)) return *choice;
    throw Error(Errc::Unsupported,
                fmt::format("gemm {}x{}x{}: no kernel can take it on device '{}'; `{}` says why, kernel by kernel",
                            problem.m, problem.n, problem.k, device.name, explain_command(problem)));
}

std::string explain_command(const Problem& p) { return fmt::format("finegemm explain '{}'", text_of(p)); }

Error cannot_take(const std::string& name, const Problem& p, std::string_view why_not) {
    return {Errc::InvalidArgument,
            fmt::format("config: '{}' cannot take a GEMM of {} x {} x {}: {}; `{}` lists the kernels that can", name,
                        p.m, p.n, p.k, why_not, explain_command(p))};
}

static double rounded(double us) { return std::round(us * 100) / 100; }

/// The kernel of the same numbers with a scale for each 128 of K, which `reencode` makes, or the call itself where that
/// is expected to be faster.
static nlohmann::ordered_json explain_reencoded(const Problem& mx, const DeviceSpec& device, const PlanTable* user) {
    const auto choice = choice_of(reencoded(mx), device, user);
    if (!choice) return nullptr;
    return {{"name", name_of(choice->config)},
            {"us", rounded(cost(reencoded(mx), device, choice->config).total)},
            {"before_us", rounded(reencoding_us(mx, device))},
            {"taken", is_reencoded_faster(mx, device, user)}};
}

std::string explain(const Problem& problem, const DeviceSpec& device, const PlanTable* user) {
    using nlohmann::ordered_json;
    struct Entry {
        const GemmConfig* config;
        std::string_view why_not;
        Cost cost;
    };
    std::vector<Entry> entries;
    for (const GemmConfig& c : candidates(problem.kind())) entries.push_back({&c, rejected(problem, device, c), {}});
    for (Entry& e : entries)
        if (e.why_not.empty()) e.cost = cost(problem, device, *e.config);
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& x, const Entry& y) {
        if (x.why_not.empty() != y.why_not.empty()) return x.why_not.empty();
        return x.cost.total < y.cost.total;
    });

    ordered_json asked = {{"m", problem.m}, {"n", problem.n}, {"k", problem.k}};
    const GemmShape shape = shape_of(problem);
    fields(
        [&]<typename T>(const Field& field, const T& value) {
            if (!is_set(value)) return;
            if constexpr (std::is_same_v<T, std::optional<DType>>) asked[field.name] = value_text(value);
            else if constexpr (std::is_same_v<T, std::optional<int64_t>>) asked[field.name] = *value;
            else asked[field.name] = value;
        },
        shape);
    ordered_json out = {
        {"line", text_of(problem)}, {"problem", std::move(asked)}, {"device", device.name}, {"chosen", nullptr}};
    if (problem.b.scaling == Scaling::Mx) out["reencoded"] = explain_reencoded(problem, device, user);
    const auto choice = choice_of(problem, device, user);
    ordered_json& list = out["candidates"] = ordered_json::array();
    for (const Entry& e : entries) {
        const GemmConfig& c = *e.config;
        ordered_json row = {{"name", name_of(c)}};
        if (e.why_not.empty()) {
            row.update({{"us", rounded(e.cost.total)},
                        {"compute_us", rounded(e.cost.compute)},
                        {"memory_us", rounded(e.cost.memory)},
                        {"launch_us", rounded(e.cost.launch)},
                        {"tiles", e.cost.tiles},
                        {"ctas", e.cost.ctas}});
        } else {
            row["rejected"] = e.why_not;
        }
        if (choice && c == choice->config) {
            out["chosen"] = row;
            out["chosen"]["source"] = name_of(choice->source);
            out["chosen"]["config"] = {{"tile_m", c.tile_m},          {"tile_n", c.tile_n},
                                       {"stages", c.stages},          {"math_warpgroups", c.math_warpgroups},
                                       {"cluster", c.cluster},        {"cluster_use", name_of(c.cluster_use)},
                                       {"ctas_per_sm", c.ctas_per_sm}};
            out["chosen"]["plan"] = describe(kernel_plan(c));
        }
        list.push_back(std::move(row));
    }
    return out.dump(2);
}

}  // namespace finegemm::plan
