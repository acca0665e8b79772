// Calls that take the host longer than a launch: sums over stacks, and groups of K that it knows. Where they come again
// they are graphs. Layer engine.
#include <algorithm>
#include <span>

#include "engine/hopper_backend.h"
#include "ops/gemm/groups.h"

namespace finegemm {

/// Queues what `start` does on the call's stream, or launches the graph of it, which `kept` has of a call before.
void HopperBackend::start_again(const GemmOptions& options, std::shared_ptr<const cuda::Graph>& kept,
                                const auto& start) {
    if (options.pdl || cuda::is_capturing(*driver_, options.stream)) return start(options.stream);
    std::shared_ptr<const cuda::Graph> graph;
    {
        const std::shared_lock lock(mutex_);
        graph = kept;
    }
    if (!graph) {
        graph = std::make_shared<const cuda::Graph>(*driver_, start);
        const std::unique_lock lock(mutex_);
        kept = graph;
    }
    graph->launch(options.stream);
}

/// Sums of pieces of K, and the kernel that adds these up; that is loaded before memory is taken, as it takes long.
void HopperBackend::sum(Launch& launch, const Call& call, bool again) {
    const GemmOptions& options = call.options;
    const auto start = [&](cuda::StreamHandle stream) {
        auto params = launch.params.as<SummedParams>();
        const cuda::Kernel& adds = kernel_of(add_pieces_of(call, params).config, options.poll);
        const size_t bytes = static_cast<size_t>(params.d_stride) * params.pieces * sizeof(float);
        const cuda::StreamMemory sums(memory(), bytes, stream);
        params.d_data = sums.data();
        launch.kernel->kernel.launch(launch.grid, &params, stream, options.pdl);
        const AddPiecesLaunch last = add_pieces_of(call, params);
        adds.launch(last.grid, &last.params, stream);
    };
    again ? start_again(options, launch.graph, start) : start(options.stream);
}

/// What the last call has left, where its offsets were the same: tensor maps of blocks take longer than a launch.
std::shared_ptr<HostGroups> HopperBackend::host_groups_of(Launch& launch, const Call& call, bool& again) {
    const std::span<const int32_t> offsets(call.groups.data, static_cast<size_t>(call.groups.size));
    {
        const std::shared_lock lock(mutex_);
        again = launch.of_host && std::ranges::equal(launch.of_host->offsets, offsets);
        if (again) return launch.of_host;
    }
    auto made =
        std::make_shared<HostGroups>(HostGroups{.offsets = {offsets.begin(), offsets.end()},
                                                .params = launch.params.as<KGroupedParams>(),
                                                .lists = group_lists_of(*driver_, call, launch.kernel->config)});
    if (made->lists.empty()) put_groups(*driver_, call, launch.kernel->config, made->params);
    const std::unique_lock lock(mutex_);
    return launch.of_host = std::move(made);
}

/// One launch for all groups; those that parameters have no room for are listed in memory before. These parameters are
/// long, too, so that each launch takes the host longer than others do.
void HopperBackend::launch_of_host(Launch& launch, const Call& call) {
    bool again = false;
    const std::shared_ptr<HostGroups> groups = host_groups_of(launch, call, again);
    const auto start = [&](cuda::StreamHandle stream) {
        if (!groups->lists.empty()) return launch_listed(launch, call, *groups, stream);
        launch.kernel->kernel.launch(launch.grid, &groups->params, stream, call.options.pdl);
    };
    again ? start_again(call.options, groups->graph, start) : start(call.options.stream);
}

void HopperBackend::launch_listed(const Launch& launch, const Call& call, const HostGroups& groups,
                                  cuda::StreamHandle stream) {
    KGroupedParams params = groups.params;
    const GroupListConfig config;
    const cuda::Kernel& writes = kernel_of(config, call.options.poll);
    const auto count = static_cast<size_t>(call.group_count);
    const size_t map_bytes = call.layout == KLayout::Blocks ? 2 * count * sizeof(TensorMap) : 0;
    const cuda::StreamMemory list(memory(), map_bytes + (count + 1) * sizeof(int32_t), stream);
    auto* const maps = static_cast<TensorMap*>(list.data());
    auto* const offsets = reinterpret_cast<int32_t*>(static_cast<uint8_t*>(list.data()) + map_bytes);
    params.groups.offsets = offsets;
    if (map_bytes > 0) params.listed_blocks = maps;
    for (GroupListParams part : groups.lists) {
        part.offsets_to = offsets;
        if (map_bytes > 0) part.maps_to = maps;
        writes.launch(ceil_div(part.groups + 1, config.threads()), &part, stream);
    }
    launch.kernel->kernel.launch(launch.grid, &params, stream);
}

}  // namespace finegemm
