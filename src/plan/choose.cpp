// The choice: of all kernels those that can, of those the cheapest; and the account of it. Layer plan.
#include <algorithm>
#include <cmath>
#include <optional>

#include <finegemm/error.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plan/plan.h"

namespace finegemm::plan {

namespace {

/// Rows of the dense table where the model's choice is more than 2% off on an H200: problem, best kernel.
/// bench/results/sweep_h200.json has the times of both.
struct Measured {
    Problem problem;
    std::string_view kernel;
};
constexpr Measured kMeasuredH200[] = {
    {{1, 2112, 7168}, "m64n32s7w1_splitK3_x2"},
    {{1, 7168, 16384}, "m64n64s5w1_splitK2_x2"},
    {{1, 24576, 1536}, "m64n32s8w1_x2"},
    {{8, 24576, 1536}, "m64n32s8w1_x2"},
    {{16, 2112, 7168}, "m64n32s7w1_splitK3_x2"},
    {{16, 7168, 16384}, "m64n32s8w1_x2"},
    {{16, 24576, 1536}, "m64n32s8w1_x2"},
    {{32, 2112, 7168}, "m64n32s7w1_splitK3_x2"},
    {{32, 7168, 16384}, "m64n32s8w1_x2"},
    {{32, 24576, 1536}, "m64n32s8w1_x2"},
    {{64, 2112, 7168}, "m64n32s7w1_splitK3_x2"},
    {{64, 24576, 1536}, "m64n48s7w1_x2"},
    {{128, 576, 7168}, "m128n32s8w2_splitK4"},
    {{128, 24576, 1536}, "m128n64s8w2"},
    {{128, 32768, 512}, "m64n64s6w1_x2"},
    {{256, 32768, 512}, "m128n128s6w2"},
    {{512, 32768, 512}, "m128n128s6w2"},
    {{1024, 2112, 7168}, "m128n64s8w2"},
    {{2048, 4096, 7168}, "m128n128s6w2"},
    {{2048, 24576, 1536}, "m128n192s5w2"},
    {{4096, 24576, 1536}, "m128n192s5w2"},
    {{8192, 24576, 1536}, "m128n192s5w2"},
};

std::optional<GemmConfig> measured(Problem problem, const DeviceSpec& device) {
    if (device.name != "h200") return {};
    if (!has_sm_budget(problem, device)) problem.num_sms = 0;
    for (const Measured& m : kMeasuredH200)
        if (m.problem == problem) return config_named(m.kernel);
    return {};
}

}  // namespace

GemmConfig choose(const Problem& problem, const DeviceSpec& device) {
    if (const auto known = measured(problem, device)) return *known;
    const GemmConfig* best = nullptr;
    double least = 0;
    for (const GemmConfig& c : candidates()) {
        if (!rejected(problem, device, c).empty()) continue;
        const double total = cost(problem, device, c).total;
        if (best == nullptr || total < least) {
            best = &c;
            least = total;
        }
    }
    if (best == nullptr)
        throw Error(Errc::Unsupported,
                    fmt::format("gemm {0}x{1}x{2}: no kernel can take it on device '{3}'; "
                                "`finegemm explain {0} {1} {2}` says why, kernel by kernel",
                                problem.m, problem.n, problem.k, device.name));
    return *best;
}

std::string explain(const Problem& problem, const DeviceSpec& device) {
    using nlohmann::ordered_json;
    struct Entry {
        const GemmConfig* config;
        std::string_view why_not;
        Cost cost;
    };
    std::vector<Entry> entries;
    for (const GemmConfig& c : candidates()) entries.push_back({&c, rejected(problem, device, c), {}});
    for (Entry& e : entries)
        if (e.why_not.empty()) e.cost = cost(problem, device, *e.config);
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& x, const Entry& y) {
        if (x.why_not.empty() != y.why_not.empty()) return x.why_not.empty();
        return x.cost.total < y.cost.total;
    });

    const auto rounded = [](double us) { return std::round(us * 100) / 100; };
    ordered_json out = {{"problem", {{"m", problem.m}, {"n", problem.n}, {"k", problem.k}}},
                        {"device", device.name},
                        {"chosen", nullptr}};
    const auto known = measured(problem, device);
    ordered_json& list = out["candidates"] = ordered_json::array();
    for (const Entry& e : entries) {
        const GemmConfig& c = *e.config;
        ordered_json row = {{"name", name_of(c)}};
        if (e.why_not.empty()) {
            row.update({{"us", rounded(e.cost.total)}, {"compute_us", rounded(e.cost.compute)},
                        {"memory_us", rounded(e.cost.memory)}, {"launch_us", rounded(e.cost.launch)},
                        {"tiles", e.cost.tiles}, {"ctas", e.cost.ctas}});
        } else {
            row["rejected"] = e.why_not;
        }
        if (e.why_not.empty() && (known ? c == *known : out["chosen"].is_null())) {
            out["chosen"] = row;
            out["chosen"]["source"] = known ? "measured" : "model";
            out["chosen"]["config"] = {{"tile_m", c.tile_m}, {"tile_n", c.tile_n}, {"stages", c.stages},
                                       {"math_warpgroups", c.math_warpgroups}, {"cluster", c.cluster},
                                       {"cluster_use", name_of(c.cluster_use)}, {"ctas_per_sm", c.ctas_per_sm}};
        }
        list.push_back(std::move(row));
    }
    return out.dump(2);
}

}  // namespace finegemm::plan
