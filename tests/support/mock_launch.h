// What a launch on the mock driver is told, and that it starts. Layer tests; only mock_driver.cpp includes it.
#pragma once

#include "mock_compute.h"
#include "mock_internals.h"

namespace finegemm::mock {

inline uint32_t cluster_of(const LaunchConfig& c) {
    for (unsigned i = 0; i < c.attribute_count; ++i)
        if (c.attributes[i].id == 4) return c.attributes[i].value.cluster[0];
    return 1;
}

inline bool is_programmatic(const LaunchConfig& c) {
    for (unsigned i = 0; i < c.attribute_count; ++i)
        if (c.attributes[i].id == 6) return c.attributes[i].value.allowed == 1;
    return false;
}

/// The parameters of a kernel that is no GEMM, or of a sum over stacks; false if it is another one.
inline bool copied_operation(const std::string& entry, const void* from, Launch& launch) {
    const auto has = [&](const char* part) { return entry.find(part) != std::string::npos; };
    if (has("_summed"))
        static_cast<finegemm::GemmParams&>(launch.gemm) = launch.summed =
            *static_cast<const finegemm::SummedParams*>(from);
    else if (has("add_pieces")) std::memcpy(&launch.add_pieces, from, sizeof launch.add_pieces);
    else if (has("group_list")) std::memcpy(&launch.group_list, from, sizeof launch.group_list);
    else if (has("FineGEMM_quantize_columns_"))
        std::memcpy(&launch.quantize_columns, from, sizeof launch.quantize_columns);
    else if (has("FineGEMM_quantize_")) std::memcpy(&launch.quantize, from, sizeof launch.quantize);
    else if (has("FineGEMM_reencode_")) std::memcpy(&launch.reencode, from, sizeof launch.reencode);
    else if (has("mqa_logits")) std::memcpy(&launch.mqa, from, sizeof launch.mqa);
    else if (has("mqa_schedule")) std::memcpy(&launch.mqa_schedule, from, sizeof launch.mqa_schedule);
    else if (has("FineGEMM_prenorm_")) std::memcpy(&launch.prenorm, from, sizeof launch.prenorm);
    else if (has("FineGEMM_swiglu_quantize_")) std::memcpy(&launch.swiglu, from, sizeof launch.swiglu);
    else if (has("FineGEMM_routing_route")) std::memcpy(&launch.route, from, sizeof launch.route);
    else if (has("FineGEMM_ep_slots")) std::memcpy(&launch.slots, from, sizeof launch.slots);
    else if (has("FineGEMM_ep_pull")) std::memcpy(&launch.pull, from, sizeof launch.pull);
    else if (has("FineGEMM_ep_push")) std::memcpy(&launch.push, from, sizeof launch.push);
    else if (has("FineGEMM_routing_permute")) std::memcpy(&launch.permute, from, sizeof launch.permute);
    else if (has("FineGEMM_routing_combine")) std::memcpy(&launch.combine, from, sizeof launch.combine);
    else if (has("FineGEMM_topk_")) std::memcpy(&launch.topk, from, sizeof launch.topk);
    else if (has("FineGEMM_four_bit_")) std::memcpy(&launch.four_bit, from, sizeof launch.four_bit);
    else if (has("FineGEMM_scale_layout_")) std::memcpy(&launch.scale_layout, from, sizeof launch.scale_layout);
    else return false;
    return true;
}

/// What a launch must keep to.
inline int check_launch(const LaunchConfig& c, const Function& function) {
    const uint32_t cluster = cluster_of(c);
    if (c.grid[0] == 0 || c.grid[0] > INT32_MAX || c.grid[1] != 1 || c.grid[2] != 1) return kInvalidValue;
    if (c.block[0] == 0 || c.block[0] > 1024 || c.block[1] != 1 || c.block[2] != 1) return kInvalidValue;
    if (cluster == 0 || cluster > 8 || c.grid[0] % cluster != 0) return kInvalidValue;
    return c.smem_bytes > static_cast<unsigned>(function.smem_bytes) ? kInvalidValue : kSuccess;
}

inline Launch launch_of(const LaunchConfig& config, const Function& function, const void* parameters) {
    Launch launch{.entry = function.entry,
                  .gpu = stack.back()->gpu,
                  .grid = config.grid[0],
                  .block = config.block[0],
                  .cluster = cluster_of(config),
                  .smem_bytes = config.smem_bytes,
                  .programmatic = is_programmatic(config),
                  .stream = config.stream,
                  .gemm = {},
                  .quantize = {},
                  .scale_layout = {},
                  .mqa = {},
                  .mqa_schedule = {},
                  .prenorm = {},
                  .swiglu = {},
                  .grouped = {},
                  .k_grouped = {},
                  .summed = {},
                  .add_pieces = {},
                  .group_list = {},
                  .affine = {},
                  .heads = {},
                  .indexed = {}};
    const bool is_gemm = !copied_operation(function.entry, parameters, launch);
    if (is_gemm && function.entry.find("_grouped") != std::string::npos)
        launch.gemm = launch.grouped = *static_cast<const finegemm::GroupedParams*>(parameters);
    if (is_gemm && function.entry.ends_with("_choices"))
        launch.choices = static_cast<const finegemm::ChoiceParams*>(parameters)->choices;
    if (is_gemm && function.entry.ends_with("_reports"))
        launch.stored = static_cast<const finegemm::ReportParams*>(parameters)->stored;
    if (is_gemm && function.entry.find("_grouped") == std::string::npos)
        std::memcpy(&launch.gemm, parameters, sizeof launch.gemm);
    if (function.entry.find("_affine") != std::string::npos) {
        if (function.entry.find("_grouped") != std::string::npos)
            launch.affine =
                static_cast<const finegemm::WithFinish<finegemm::GroupedParams, finegemm::Finish::Affine>*>(parameters)
                    ->finish;
        else
            launch.affine =
                static_cast<const finegemm::WithFinish<finegemm::SegmentedParams, finegemm::Finish::Affine>*>(
                    parameters)
                    ->finish;
    }
    if (function.entry.find("_head_gaps") != std::string::npos)
        launch.heads =
            static_cast<const finegemm::WithFinish<finegemm::SegmentedParams, finegemm::Finish::HeadGaps>*>(parameters)
                ->finish;
    if (function.entry.ends_with("_indexed"))
        launch.indexed =
            static_cast<const finegemm::WithFinish<finegemm::GroupedParams, finegemm::Finish::Indexed>*>(parameters)
                ->finish;
    if (is_gemm && function.entry.find("_kgrouped") != std::string::npos)
        std::memcpy(&launch.k_grouped, parameters, sizeof launch.k_grouped);
    return launch;
}

inline void start(const Launch& launch) {
    const auto us = state().kernel_us.find(launch.entry);
    state().clock_us += us == state().kernel_us.end() ? 1000 : us->second;
    compute_if_asked(launch);
    state().launches.push_back(launch);
}

}  // namespace finegemm::mock
