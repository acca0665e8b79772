// Why a kernel cannot take a problem: rules as data, each with the sentence that `explain` prints. Layer plan.
#include <finegemm/gemm/arithmetic.h>
#include <finegemm/gemm/kernel_plan.h>
#include <finegemm/gemm/schedule.h>

#include "plan/plan.h"

namespace finegemm::plan {

namespace {

struct Rule {
    std::string_view why_not;
    bool (*holds)(const Problem&, const DeviceSpec&, const GemmConfig&);
};

constexpr uint32_t kMaxExtent = 1u << 31;  // coordinates of tensor maps are signed 32-bit numbers

constexpr Rule kRules[] = {
    // First, as the others count tiles and must not overflow.
    {"takes no extent above 2^31",
     [](const Problem& p, const DeviceSpec&, const GemmConfig&) { return max(p.m, max(p.n, p.k)) <= kMaxExtent; }},
    {"computes one product for groups, or the other way round",
     [](const Problem& p, const DeviceSpec&, const GemmConfig& c) { return p.groups.kind == c.grouping; }},
    {"takes scales of B for other blocks",
     [](const Problem& p, const DeviceSpec&, const GemmConfig& c) { return p.b.scaling == c.b.scaling; }},
    {"takes scales of A for other blocks",
     [](const Problem& p, const DeviceSpec&, const GemmConfig& c) { return p.a.scaling == c.a.scaling; }},
    {"multiplies elements of another type",
     [](const Problem& p, const DeviceSpec&, const GemmConfig& c) {
         return p.a.element == c.a.element && p.b.element == c.b.element;
     }},
    {"reads A or B in another layout",
     [](const Problem& p, const DeviceSpec&, const GemmConfig& c) {
         return p.a.major == c.a.major && p.b.major == c.b.major;
     }},
    {"writes D in another type",
     [](const Problem& p, const DeviceSpec&, const GemmConfig& c) { return p.kind().output == c.output; }},
    {"makes something else of the product",
     [](const Problem& p, const DeviceSpec&, const GemmConfig& c) { return p.kind().finish == c.finish; }},
    {"needs more shared memory than a CTA can have",
     [](const Problem&, const DeviceSpec& d, const GemmConfig& c) {
         return kernel_plan(c).smem.total <= d.smem_bytes;
     }},
    {"needs more shared memory than its CTAs on one SM can have",
     [](const Problem&, const DeviceSpec& d, const GemmConfig& c) {
         return c.ctas_per_sm * (kernel_plan(c).smem.total + kReservedShared) <= d.smem_per_sm;
     }},
    {"splits K finer than 128", [](const Problem& p, const DeviceSpec&,
                                   const GemmConfig& c) { return c.k_splits() * c.k_slices() <= p.k_blocks(); }},
    {"adds or scales in another way than kernels for other M, and results shall be batch-invariant",
     [](const Problem& p, const DeviceSpec&, const GemmConfig& c) {
         return !p.batch_invariant || arithmetic_of(c) == Arithmetic{};
     }},
    {"has larger clusters than SMs may be used",
     [](const Problem& p, const DeviceSpec& d, const GemmConfig& c) { return ctas_at_once(p, d, c) >= c.cluster; }},
    {"splits K, which takes a CTA for each part of each tile: more than SMs may be used",
     [](const Problem& p, const DeviceSpec& d, const GemmConfig& c) {
         return kernel_plan(c).persistent || !has_sm_budget(p, d) ||
                static_cast<uint64_t>(raster(c, p.m, p.n).size()) * c.cluster <= p.num_sms;
     }},
    {"shares operands between more tiles than there are",
     [](const Problem& p, const DeviceSpec&, const GemmConfig& c) {
         return c.b_sharers() <= ceil_div(p.m, c.tile_m) && c.a_sharers() <= ceil_div(p.n, c.tile_n);
     }},
    {"a tile of half as many rows holds all of M",
     [](const Problem& p, const DeviceSpec&, const GemmConfig& c) {
         const uint32_t least = c.swaps_mx ? kSwappedStep : 64;
         return c.tile_m == least || p.groups.of_rows() > 0 || p.m > c.tile_m / 2;  // m of groups is what there may be
     }},
    {"makes more tiles than a grid can index",
     [](const Problem& p, const DeviceSpec&, const GemmConfig& c) {
         const uint64_t tiles_m = ceil_div(p.m, c.tile_m) + c.cluster + p.groups.of_rows();
         const uint64_t tiles_n = ceil_div(p.n, c.tile_n) + c.cluster;
         const uint32_t times = p.groups.summed() > 0 ? kInvariantPieces : max(1, p.groups.of_k());
         return tiles_m * tiles_n * c.cluster * times < (1ull << 31);
     }},
};

}  // namespace

std::string_view rejected(const Problem& problem, const DeviceSpec& device, const GemmConfig& config) {
    for (const Rule& rule : kRules)
        if (!rule.holds(problem, device, config)) return rule.why_not;
    return {};
}

}  // namespace finegemm::plan
