// A kernel's plan in words. Layer plan.
#include "plan/describe.h"

#include <string_view>

namespace finegemm::plan {

namespace {

std::string_view name_of(Producers producers) {
    switch (producers) {
        case Producers::WarpRoles: return "warp roles";
        case Producers::RoundRobin: return "round-robin";
    }
    return "unknown";
}

std::string_view name_of(ScalePath path) {
    switch (path) {
        case ScalePath::None: return "none";
        case ScalePath::Async: return "async";
        case ScalePath::Vector: return "vector";
        case ScalePath::Split: return "split";
        case ScalePath::SplitVector: return "split vector";
        case ScalePath::Mx: return "mx";
    }
    return "unknown";
}

std::string_view name_of(Promotion promotion) {
    switch (promotion) {
        case Promotion::BlockScale: return "block scale";
        case Promotion::RowScale: return "row scale";
        case Promotion::TensorCore: return "tensor core";
        case Promotion::None: return "none";
        case Promotion::Mx: return "mx";
        case Promotion::Decoded: return "decoded";
    }
    return "unknown";
}

std::string_view name_of(Store store) {
    switch (store) {
        case Store::Strip: return "strip";
        case Store::Tma: return "tma";
        case Store::SourceTile: return "source tile";
        case Store::SplitK: return "split-k";
        case Store::Registers: return "registers";
    }
    return "unknown";
}

}  // namespace

nlohmann::ordered_json describe(const KernelPlan& p) {
    nlohmann::ordered_json segments = nlohmann::ordered_json::array();
    for (uint32_t i = 0; i < p.segments.count(); ++i) segments.push_back(p.segments.cols[i]);
    nlohmann::ordered_json out = {{"published_tiles", p.published_tiles},
                                  {"producers", name_of(p.producers)},
                                  {"scales", name_of(p.scale_path)},
                                  {"shifted_scales", p.shifted_scales},
                                  {"promotion", name_of(p.promotion)},
                                  {"blocks_in_flight", p.blocks_in_flight},
                                  {"store", name_of(p.store)},
                                  {"persistent", p.persistent},
                                  {"segments", std::move(segments)}};
    if (p.store == Store::Strip) out["strip_cols"] = p.strip_cols;
    if (p.scale_path == ScalePath::Vector || p.scale_path == ScalePath::SplitVector)
        out["vectors"] = {{"k_blocks", p.scale_vector_blocks}, {"warps", p.vector_scale_warps}};
    out["registers"] = {{"launch", p.registers.launch}, {"load", p.registers.load}, {"math", p.registers.math}};
    out["arrivals"] = {{"full", p.arrivals.full}, {"empty", p.arrivals.empty}, {"slice_sums", p.arrivals.slice_sums}};
    out["producers_served"] = p.producers_served;
    out["yield_interval"] = p.yield_interval;
    out["smem"] = {{"total", p.smem.total},   {"a_stage", p.smem.a_stage},     {"b_stage", p.smem.b_stage},
                   {"d_warp", p.smem.d_warp}, {"sfa_stage", p.smem.sfa_stage}, {"sfb_stage", p.smem.sfb_stage}};
    return out;
}

}  // namespace finegemm::plan
