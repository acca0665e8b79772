// Launches of a layer of experts on a GPU, and what they take. Layer engine.
#include "ops/moe/planner.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "ops/four_bit/planner.h"
#include "ops/four_bit/source.h"
#include "ops/routing/hopper.h"
#include "ops/routing/source.h"
#include "ops/swiglu/source.h"

namespace finegemm {

namespace {

/// Microseconds of a pass over next to nothing, and the part of memory's speed that passes over rows reach:
/// swiglu_quantize, combine, and permute_quantize, which stores scales where columns of them are, four bytes at a time.
/// Choices that route places in a microsecond. As bench/results/routing_h200.json has them.
constexpr double kPass = 4, kSwigluSpeed = 0.85, kCombineSpeed = 0.95, kPermuteSpeed = 0.65, kRouted = 3450;

/// How much longer than predicted a product takes with the activation. In tiles of 64 rows, which few rows take: more
/// where no other CTA on the SM loads meanwhile; no longer where there are others, all tiles are multiplied at once and
/// launches count choices by themselves, as there is one less to wait for. In larger ones, all of whose rows are
/// activated whether an expert has them or not: the longer the fewer rows it has. Fitted to layers with either form, so
/// that what is chosen loses least.
constexpr double kFusedFactor = 1.04, kFusedMore = 3;
constexpr double kLargeFactor = 0.88, kLargeMore = 12, kLargeUnused = 0.06;

/// How many microseconds longer at most where weights come for longer than is multiplied: the activation runs
/// meanwhile. Fitted likewise.
constexpr double kBesideWeights = 14;

/// Microseconds that an activation is expected to take less where it takes experts while others are multiplied. It is 2
/// to 6 less, but the planner thinks of an activation in the product as slower than it is; fitted likewise.
constexpr double kAwaited = 2;

/// Products of milliseconds take what power allows, and the activation's instructions come on top; apart it has the
/// memory while nothing else is bound by it. With heavier experts it is the product apart that takes longer: what it
/// stores, four times as much, takes their weights' place in L2. Fitted likewise: how much longer, from how many
/// microseconds, up to how many bytes of an expert's gates and ups.
constexpr double kFusedLong = 1.06, kLong = 2000, kLightExpert = 13.5e6;

/// Microseconds that a layer of few rows saves without `combine`, whose launch overlaps, and the part of its bytes that
/// memory would bring: rows that have just been stored are in L2. Fitted as the factors above.
constexpr double kSumsLaunch = 0.6, kSumsShare = 0.5;

/// Products that keep tensor cores busy for milliseconds draw as much power as a GPU may, and its clock falls: their
/// arithmetic takes up to so much longer, half of that with products of kHalfSlow microseconds. Fitted to the layers of
/// 4096 and 16,384 tokens in six versions of bench/results/moe_h200.json, each of another card or build, of which these
/// are 4% off in the mean.
constexpr double kMostSlower = 0.24, kHalfSlow = 2000;

double pass_us(double bytes, const plan::DeviceSpec& d, double speed) {
    return kPass + bytes / (speed * d.hbm_bytes_per_us);
}

/// The device while products of so many microseconds run.
plan::DeviceSpec slowed(plan::DeviceSpec d, double us) {
    d.clock_ratio /= 1 + kMostSlower * us / (us + kHalfSlow);
    return d;
}

/// Tiles of an expert in the mean, whose rows are as many as `expected` by chance: those of Poisson's law, nearly.
double tiles_by_chance(double expected, uint32_t tile) {
    const double deviation = std::sqrt(expected), end = expected + 6 * deviation;
    double tiles = 0;
    for (double begin = 0; begin < end; begin += tile)
        tiles += std::erfc((begin - expected) / (std::sqrt(2.0) * deviation)) / 2;
    return tiles;
}

double scaled(double codes) { return codes * (1 + 4.0 / kScaleBlock); }

struct Planned {
    plan::Problem problem;
    GemmConfig config;
};

/// What large tiles take where experts are chosen evenly; plan::cost has groups of any sizes.
plan::Cost even_cost(const plan::Problem& p, const plan::DeviceSpec& d, const GemmConfig& c) {
    plan::Cost cost = plan::cost(p, d, c);
    if (c.tile_m <= 64 || cost.compute <= cost.memory) return cost;
    const auto [groups, rows] = p.busy_groups();
    cost.total *= groups * ceil_div(p.n, c.tile_n) * tiles_by_chance(rows, c.tile_m) / cost.tiles;
    return cost;
}

struct Product : Planned {
    bool counts;                     // choices are so few that the kernel counts them by itself
    std::optional<Planned> without;  // the activation, where the kernel has it
    double us = 0, bytes = 0;

    double with_activation(const plan::Cost& cost, const plan::DeviceSpec& d) const {
        const double longer = by_tiles(cost, d);
        if (cost.memory <= cost.compute) return longer;
        return std::min(longer, plan::cost(without->problem, d, without->config).total + kBesideWeights);
    }
    double by_tiles(const plan::Cost& cost, const plan::DeviceSpec& d) const {
        if (config.tile_m <= 64) {
            const bool others_load = config.ctas_per_sm > 1 && cost.tiles > d.sms;
            if (!others_load) return kFusedFactor * cost.total + kFusedMore;
            const bool at_once = cost.tiles <= config.ctas_per_sm * d.sms;
            return (counts && at_once ? 1 : kFusedFactor) * cost.total;
        }
        const double tiles = problem.busy_groups().rows / config.tile_m;
        return (kLargeFactor + kLargeUnused / tiles) * cost.total + kLargeMore;
    }

    void run_on(const plan::DeviceSpec& d) {
        const plan::Cost cost = even_cost(problem, d, config);
        us = without ? with_activation(cost, d) : cost.total;
        bytes = cost.memory * d.hbm_bytes_per_us;
    }
};

bool counts_choices(const MoeShape& s) { return s.tokens * s.choices <= kCountedChoices; }

/// The kernel that is chosen at full clocks, and what it takes on `d`. `shape`: of a product of the layer `s`.
Product product_of(const MoeShape& s, const GemmShape& shape, const plan::DeviceSpec& d, const plan::PlanTable* user) {
    const auto planned = [&](const GemmShape& of) {
        const plan::Problem problem = plan::problem_of(of);
        return Planned{problem, plan::choose(problem, d, user).config};
    };
    Product p{planned(shape), counts_choices(s), std::nullopt};
    if (pairs_columns(p.config.finish)) p.without = planned(gate_up_shape(s, false));
    p.run_on(d);
    return p;
}

/// A product with weights of 4 bits.
MoeLaunch four_bit_launch(const MoeShape& s, const GemmShape& product, const plan::DeviceSpec& d) {
    const FourBitShape shape = four_bit_shape(s, product);
    const plan::Problem fp8 = plan::problem_of(fp8_shape(shape));
    const auto [groups, rows] = fp8.busy_groups();
    const double k = static_cast<double>(shape.k), n = static_cast<double>(shape.n);
    const double bytes =
        groups * (n * k * kFourBitBlockBytes / (kScaleBlock * kScaleBlock) + rows * (scaled(k) + 2 * n));
    const FourBitCost cost = four_bit_cost(fp8, d);
    const FourBitConfig config{codes_of(shape.format), cost.rows};
    return {"four_bit_gemm", jit::source_of(config).entry, text_of(shape), cost.us, bytes};
}

MoeLaunch launch_of(const Product& p, bool reports = false) {
    const GemmConfig config = p.counts  ? plan::for_counted_choices(p.config)
                              : reports ? plan::for_reported_rows(p.config)
                                        : p.config;
    return {"grouped_gemm", plan::name_of(config), plan::text_of(p.problem), p.us, p.bytes};
}

double swiglu_bytes(const MoeShape& s) {
    const double pairs = static_cast<double>(expected_rows_of(s)) * static_cast<double>(s.intermediate);
    return 4 * pairs + scaled(pairs);
}

double activation_us(const MoeShape& s, const plan::DeviceSpec& d) {
    return pass_us(swiglu_bytes(s), d, kSwigluSpeed) - (awaits_rows(s) ? kAwaited : 0);
}

double summed_bytes(const MoeShape& s) {
    return 2 * static_cast<double>(expected_rows_of(s) + s.tokens) * static_cast<double>(s.hidden);
}

double fused_us(const MoeShape& s, const plan::DeviceSpec& d, const plan::PlanTable* user) {
    const double us = product_of(s, gate_up_shape(s, true), d, user).us;
    const bool light = 2 * static_cast<double>(s.intermediate) * static_cast<double>(s.hidden) < kLightExpert;
    return light && us > kLong ? kFusedLong * us : us;
}

double apart_us(const MoeShape& s, const plan::DeviceSpec& d, const plan::PlanTable* user) {
    const GemmShape product = gate_up_shape(s, false);
    double us = product_of(s, product, d, user).us;
    if (s.four_bit) {
        const plan::Problem fp8 = plan::problem_of(fp8_shape(four_bit_shape(s, product)));
        const double four_bit_us = four_bit_cost(fp8, d).us;
        us = s.four_bit_alone ? four_bit_us : std::min(us, four_bit_us);
    }
    return us + activation_us(s, d);
}

}  // namespace

bool is_fused_faster(const MoeShape& s, const plan::DeviceSpec& d, const plan::PlanTable* user) {
    return fused_us(s, d, user) <= apart_us(s, d, user);
}

bool is_storing_sums_faster(const MoeShape& s, const plan::DeviceSpec& d, const plan::PlanTable* user) {
    const double saved = kSumsLaunch + kSumsShare * summed_bytes(s) / d.hbm_bytes_per_us;
    const auto us = [&](bool stores_sums) {
        const Product product = product_of(s, down_shape(s, stores_sums), d, user);
        return plan::cost(product.problem, d, product.config).total;
    };
    return us(true) <= us(false) + saved;
}

MoePlan plan_of(const MoeShape& s, const plan::DeviceSpec& d, const plan::PlanTable* user) {
    const std::optional<bool> rule = fused_by_rule(s);
    MoePlan plan;
    if (rule.value_or(true)) plan.fused_us = fused_us(s, d, user);
    if (!rule.value_or(false)) plan.apart_us = apart_us(s, d, user);
    plan.forms = forms_of(
        s, [&](const FourBitShape& product) { return is_fp8_faster(plan::problem_of(fp8_shape(product)), d, user); },
        [&] { return plan.fused_us <= plan.apart_us; }, [&] { return is_storing_sums_faster(s, d, user); });
    const auto tokens = static_cast<double>(s.tokens), hidden = static_cast<double>(s.hidden),
               rows = static_cast<double>(expected_rows_of(s)), choices = tokens * static_cast<double>(s.choices);
    const auto pass = [&](const char* call, const jit::KernelSource& kernel, double bytes, double us) {
        plan.launches.push_back({call, kernel.entry, "", us, bytes});
    };
    const bool few = s.tokens * s.choices <= kRoutedTogether;
    const double filled = 2 * tokens * hidden + scaled(rows * hidden);
    if (!few)
        pass("route", jit::source_of(route_config(s.tokens * s.choices)), 12 * choices, kPass + choices / kRouted);
    pass(few ? "route, permute_quantize" : "permute_quantize", jit::source_of(PermuteConfig{true, few}), filled,
         pass_us(filled, d, kPermuteSpeed));
    const bool counts = counts_choices(s);
    const auto [fused, gate_up_four_bit, down_four_bit, stores_sums] = plan.forms;
    Product gate_up = product_of(s, gate_up_shape(s, fused), d, user),
            down = product_of(s, down_shape(s, stores_sums), d, user);
    const plan::DeviceSpec slow = slowed(d, gate_up.us + down.us);
    gate_up.run_on(slow), down.run_on(slow);
    const bool awaits = !fused && awaits_rows(s);
    plan.launches.push_back(gate_up_four_bit ? four_bit_launch(s, gate_up_shape(s, false), d)
                                             : launch_of(gate_up, awaits));
    const bool early = counts || begins_second_early(s);
    if (!fused)
        pass("swiglu_quantize",
             jit::source_of(SwigluConfig{.few = early && !s.biased, .biased = s.biased, .awaits = awaits}),
             swiglu_bytes(s), activation_us(s, d));
    plan.launches.push_back(down_four_bit ? four_bit_launch(s, down_shape(s, false), d) : launch_of(down));
    if (!stores_sums)
        pass("combine", jit::source_of(CombineConfig{counts && !s.biased, s.biased}), summed_bytes(s),
             pass_us(summed_bytes(s), d, kCombineSpeed));
    return plan;
}

}  // namespace finegemm
