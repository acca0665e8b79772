// The planner's vocabulary: a problem, a device as a value, and the kernel chosen for them.
// Layer plan: no CUDA here, so that decisions for any device are tested on any machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <finegemm/core/config.h>

namespace finegemm::plan {

struct Problem {
    uint32_t m = 0, n = 0, k = 0;
    constexpr bool operator==(const Problem&) const = default;
    constexpr uint32_t k_blocks() const { return ceil_div(k, kScaleBlock); }
};

/// What the cost model needs to know of a GPU. Rates are measured where a record says so.
struct DeviceSpec {
    std::string_view name;
    uint32_t sms = 132;
    uint32_t smem_bytes = 232448;        // largest dynamic shared memory of a CTA
    uint32_t smem_per_sm = 233472;       // 228 KiB; each CTA takes 1 KiB more than it asks for
    double clock_ghz = 1.755;            // under tensor load
    double hbm_bytes_per_us = 4.2e6;
    double l2_bytes_per_clock_sm = 40;   // into one SM
};

/// A known device by name ("h200", "h100", "h20", "gh200"); null when unknown.
const DeviceSpec* find_device(std::string_view name);

/// All kernels that the planner may choose: the contents of the pack.
std::span<const GemmConfig> candidates();

/// Short and stable, usable as a C identifier after a prefix: "m128n128s5w2_shareA2".
std::string name_of(const GemmConfig& config);
/// The candidate of that name; throws Error(InvalidArgument) that says where to find the names.
GemmConfig config_named(std::string_view name);

/// Times in microseconds of the terms that the model adds up or takes the larger of.
struct Cost {
    double total = 0;
    double compute = 0, memory = 0, l2 = 0, fixed = 0;
    uint32_t tiles = 0, waves = 0;
};
Cost cost(const Problem& problem, const DeviceSpec& device, const GemmConfig& config);

/// Why a candidate cannot be used; empty when it can.
std::string_view rejected(const Problem& problem, const DeviceSpec& device, const GemmConfig& config);

/// Where a choice came from.
enum class Source { Table, Model };

struct Choice {
    GemmConfig config;
    Source source = Source::Model;
};
/// Throws Error(Unsupported) when nothing fits.
Choice choose(const Problem& problem, const DeviceSpec& device);

/// The choice and every other candidate with its cost or the reason for its rejection, as JSON text.
std::string explain(const Problem& problem, const DeviceSpec& device);

}  // namespace finegemm::plan
