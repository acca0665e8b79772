// The planner's vocabulary: a device as a value, and the kernel chosen for a problem there.
// Layer plan: no CUDA here, so that decisions for any device are tested on any machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <finegemm/error.h>
#include <finegemm/gemm/kernel_plan.h>

#include "plan/problem.h"

namespace finegemm::plan {

/// Facts about a GPU for the cost model.
struct DeviceSpec {
    std::string_view name;
    uint32_t sms = 132;
    uint32_t smem_bytes = kMostShared;  // largest dynamic shared memory of a CTA
    uint32_t smem_per_sm = kMostShared + kReservedShared;
    double clock_ratio = 1;  // clock under tensor load, relative to the H200 that the costs were measured on
    double hbm_bytes_per_us = 4.2e6;
    double l2_adds_per_us = 1.23e6;  // bytes of f32 that L2 adds to what memory has, whatever the kernel
    bool operator==(const DeviceSpec&) const = default;
};

/// A known device by name ("h200", "h100", "h20", "gh200"); null when unknown.
const DeviceSpec* find_device(std::string_view name);

/// All kernels of a kind that the planner may choose, for scales of any layout.
std::span<const GemmConfig> candidates(Kind kind = {});

/// The variant of a kernel for row-major scales; the kernel itself where that is as fast.
GemmConfig for_row_scales(GemmConfig config);

/// The variant of a kernel that counts few choices of tokens; the kernel itself where there is none.
GemmConfig for_counted_choices(GemmConfig config);

/// The variant of a kernel that reports the rows that it has stored; the kernel itself where there is none.
GemmConfig for_reported_rows(GemmConfig config);

/// The kernel that has this variant, or that is it.
constexpr GemmConfig without_variant(GemmConfig config) {
    config.scales = {}, config.counts_choices = config.reports_rows = false;
    return config;
}

/// All kernels that a call can get: the contents of the pack.
std::vector<GemmConfig> kernels();

/// Times of one CTA of a kernel, in microseconds on an H200: fitted to measurements (bench/fit_costs.py).
struct Rates {
    double block;        // one k-block of a tile, with as many CTAs on the SM as the kernel allows
    double block_alone;  // the same for a CTA that has the SM to itself
    double tile;         // what a tile takes beyond its k-blocks: first loads, last promotion, store, reduction
    double spared = 0;   // part of the k-blocks' time that is spared where no warpgroup has rows of a tile, in groups
    double source = 0;   // what a tile takes longer where D is added to and the old D is loaded (loads_source)
};
/// Rates of a candidate; throws Error(Internal) for any other configuration.
const Rates& rates(const GemmConfig& config);

/// Short and stable, usable as a C identifier after a prefix: "m128n128s6w2_shareB2", "m128n128s6w2_rows",
/// "m128n128s6w2_1d1d_f32", "m128n128s6w2_1d1d_f32_kgrouped".
std::string name_of(const GemmConfig& config);
std::string_view name_of(ClusterUse use);
/// The candidate of that name; throws Error(InvalidArgument) that says where to find the names.
GemmConfig config_named(std::string_view name);

/// A predicted time and its terms, in microseconds.
struct Cost {
    double total = 0;
    double launch = 0;   // what an empty kernel takes
    double compute = 0;  // the longest CTA's tiles
    double memory = 0;   // each operand once through the device's memory
    uint32_t tiles = 0;  // of D
    uint32_t ctas = 0;   // that would run if the device were large enough
};
Cost cost(const Problem& problem, const DeviceSpec& device, const GemmConfig& config);

/// May the problem use fewer SMs than the device has?
inline bool has_sm_budget(const Problem& p, const DeviceSpec& d) { return p.num_sms > 0 && p.num_sms < d.sms; }

/// One form for a problem that may use all SMs and one that does not say.
inline Problem normalised(Problem problem, const DeviceSpec& device) {
    if (!has_sm_budget(problem, device)) problem.num_sms = 0;
    return problem;
}

/// CTAs that may run at once: with a budget, one for each SM of it, as the hardware spreads them; in whole clusters.
uint32_t ctas_at_once(const Problem& problem, const DeviceSpec& device, const GemmConfig& config);

/// Why a candidate cannot be used; empty when it can.
std::string_view rejected(const Problem& problem, const DeviceSpec& device, const GemmConfig& config);

struct PlanTable;

/// Sources of a choice, in the order in which they are asked.
enum class Source { UserTable, ShippedTable, Model };
/// "user table", "shipped table", "model"
std::string_view name_of(Source source);

struct Choice {
    GemmConfig config;
    Source source;
    bool operator==(const Choice&) const = default;
};

/// Chooses a table's entry for the problem, else the cheapest candidate that is not rejected. `user`: a table that was
/// loaded for this device, or null. Throws Error(Unsupported) when nothing fits.
Choice choose(const Problem& problem, const DeviceSpec& device, const PlanTable* user = nullptr);

/// The product that is left of one with MX scales whose operands are re-encoded with scales for 128 of K.
Problem reencoded(Problem mx);
/// Predicted microseconds of the launches that do that, which come before it.
double reencoding_us(const Problem& mx, const DeviceSpec& device);
/// Are these and the product that is left expected to take less? Their bits are others, so never where those of a row
/// may not depend on M. `user`: a table that was loaded for this device, or null.
bool is_reencoded_faster(const Problem& mx, const DeviceSpec& device, const PlanTable* user = nullptr);

/// The command that says which kernels can take a problem, and why others cannot.
std::string explain_command(const Problem& problem);

/// For a caller who names a kernel that cannot take a problem: Error(InvalidArgument).
Error cannot_take(const std::string& name, const Problem& problem, std::string_view why_not);

/// The choice, its source, and every other candidate with its cost or the reason for its rejection, as JSON text.
std::string explain(const Problem& problem, const DeviceSpec& device, const PlanTable* user = nullptr);

}  // namespace finegemm::plan
