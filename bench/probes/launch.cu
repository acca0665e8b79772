// Probe: what a launch costs the GPU in a chain of kernels that wait for one another, in a CUDA graph, so that the host
// has no part in it: by shared memory, clusters and programmatic dependent launch (PDL).
//
// Predictions, microseconds beyond what the kernels do: 1.6 to 2 for a plain launch of 120 CTAs, 0.1 more where it
// needs 200 KB of shared memory, 0.2 to 0.5 more with clusters. PDL without a trigger saves the launch's latency but
// not the drain: 1.0 to 1.3. With the trigger at its start and room for both kernels (100 KB) below 0.8; with 200 KB
// the next kernel's CTAs wait for room: about 1.
#include "probe.cuh"

namespace probe {

constexpr int kChain = 100, kRepeats = 20;
constexpr long long kWork = 10000;  // clocks

struct Parameters {
    char bytes[640];  // as many as the GEMM has
};

__global__ void __launch_bounds__(384)
    work(const __grid_constant__ Parameters parameters, long long clocks, bool trigger) {
    if (trigger) ptx::grid_launch_dependents();
    ptx::grid_dependency_wait();
    for (const long long start = now(); now() - start < clocks;) {}
}

struct Case {
    int smem_kb, cluster;
    bool pdl, trigger;
    long long clocks;
};

/// Microseconds of one kernel of a chain of `length`.
double time_chain(const Case& c, int length) {
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {static_cast<unsigned>(c.cluster), 1, 1};
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = 120;  // a multiple of each cluster, and no more than run at once
    config.blockDim = 384;
    config.dynamicSmemBytes = static_cast<size_t>(c.smem_kb) * 1024;
    config.attrs = c.cluster > 1 ? attributes : attributes + 1;
    config.numAttrs = (c.cluster > 1) + c.pdl;
    allow_shared(work, config.dynamicSmemBytes);
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamCreate(&config.stream));
    CHECK(cudaStreamBeginCapture(config.stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < length; ++i) CHECK(cudaLaunchKernelEx(&config, work, Parameters{}, c.clocks, c.trigger));
    CHECK(cudaStreamEndCapture(config.stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    cudaEvent_t from, to;
    CHECK(cudaEventCreate(&from)), CHECK(cudaEventCreate(&to));
    std::vector<double> each;
    for (int repeat = 0; repeat <= kRepeats; ++repeat) {
        float ms;
        CHECK(cudaEventRecord(from, config.stream));
        CHECK(cudaGraphLaunch(executable, config.stream));
        CHECK(cudaEventRecord(to, config.stream));
        CHECK(cudaStreamSynchronize(config.stream));
        CHECK(cudaEventElapsedTime(&ms, from, to));
        if (repeat > 0) each.push_back(ms * 1e3 / length);
    }
    CHECK(cudaGraphExecDestroy(executable)), CHECK(cudaGraphDestroy(graph));
    CHECK(cudaEventDestroy(from)), CHECK(cudaEventDestroy(to)), CHECK(cudaStreamDestroy(config.stream));
    return median(each);
}

}  // namespace probe

int main() {
    using namespace probe;
    require_hopper();
    // What the work takes: of one kernel that does as much as a chain.
    const double work_us = time_chain({0, 1, false, false, kWork * kChain}, 1) / kChain;
    std::vector<Row> rows;
    for (const int smem_kb : {0, 100, 200})
        for (const int cluster : {1, 2, 4})
            for (const int mode : {0, 1, 2})
                for (const long long clocks : {0ll, kWork}) {
                    const double us = time_chain({smem_kb, cluster, mode > 0, mode > 1, clocks}, kChain);
                    rows.push_back(Row()
                                       .add("smem_kb", smem_kb)
                                       .add("cluster", cluster)
                                       .add("launch", mode == 0   ? "plain"
                                                      : mode == 1 ? "pdl"
                                                                  : "pdl and trigger")
                                       .add("work_us", clocks ? work_us : 0)
                                       .add("us", us)
                                       .add("beyond_work_us", us - (clocks ? work_us : 0)));
                }
    print("launch", rows);
}
