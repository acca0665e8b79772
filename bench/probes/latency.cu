// Probe: clocks that the parts of a pipeline take one after the other: barriers in a CTA and across a cluster, a load
// by TMA, and moving registers between warpgroups.
//
// Predictions, clocks: a named barrier of 128 threads 20, of 256 25; an arrival at an mbarrier until another warp of
// the CTA has seen it 60, of another CTA of the cluster 200; barrier.cluster 190; TMA of 128 bytes from L2 600, of 16
// KB 800, from memory 1000 and 1200; setmaxnreg down 10, up (once the others have gone down) 30.
#include "probe.cuh"

namespace probe {

constexpr int kRounds = 1000;

/// Named barriers: all threads of the CTA meet again and again.
__global__ void meet(long long* clocks) {
    __syncthreads();
    const long long start = now();
    for (int i = 0; i < kRounds; ++i) ptx::named_barrier_sync(1, blockDim.x);
    if (threadIdx.x == 0) *clocks = now() - start;
}

__global__ void meet_cluster(long long* clocks) {
    const long long start = now();
    for (int i = 0; i < kRounds; ++i) ptx::cluster_arrive(), ptx::cluster_wait();
    if (blockIdx.x == 0 && threadIdx.x == 0) *clocks = now() - start;
}

/// Two warps arrive at each other's mbarrier in turn: both of this CTA, or the first of each of two.
__global__ void ping_pong(long long* clocks) {
    __shared__ uint64_t barriers[2];
    const ptx::SmemAddr own = ptx::smem_address(barriers);
    const bool across = gridDim.x == 2;
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(own, 1), ptx::mbarrier_init(own + 8, 1);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    ptx::cluster_arrive(), ptx::cluster_wait();
    const uint32_t player = across ? ptx::cluster_rank() : threadIdx.x / 32;
    if (threadIdx.x % 32 == 0 && (!across || threadIdx.x == 0)) {
        const ptx::SmemAddr mine = own + player * 8, theirs = own + (1 - player) * 8;
        const ptx::SmemAddr target = across ? ptx::map_to_rank(theirs, 1 - player) : theirs;
        const long long start = now();
        for (int i = 0; i < kRounds; ++i) {
            if (player == 1) wait(mine, i & 1);
            if (across) ptx::mbarrier_arrive_cluster(target);
            else ptx::mbarrier_arrive(target);
            if (player == 0) wait(mine, i & 1);
        }
        if (player == 0) *clocks = now() - start;
    }
    __syncthreads();
    ptx::cluster_arrive(), ptx::cluster_wait();
}

/// Loads of `bytes` one after the other, `step` apart.
__global__ void load(long long* clocks, const char* from, uint32_t bytes, size_t step) {
    __shared__ alignas(128) char to[16384];
    __shared__ uint64_t barrier;
    const ptx::SmemAddr full = ptx::smem_address(&barrier);
    ptx::mbarrier_init(full, 1);
    ptx::fence_mbarrier_init();
    const long long start = now();
    for (int i = 0; i < kRounds; ++i) {
        ptx::mbarrier_arrive_expect_tx(full, bytes);
        bulk_load(ptx::smem_address(to), from + i * step, bytes, full);
        wait(full, i & 1);
    }
    *clocks = now() - start;
}

/// A producer warpgroup gives registers to two of math, as in the GEMM: clocks[0] giving, clocks[1] the longer taking.
__global__ void __launch_bounds__(384, 1) hand_over(unsigned long long* clocks) {
    __syncthreads();
    const long long start = now();
    if (threadIdx.x < 128) ptx::setmaxnreg_dec<40>();
    else ptx::setmaxnreg_inc<232>();
    const long long end = now();
    atomicMax(&clocks[threadIdx.x < 128 ? 0 : 1], static_cast<unsigned long long>(end - start));
}

constexpr size_t kApart = 1 << 20, kFlush = size_t{256} << 20;

struct Launch {
    int ctas, threads, cluster;
};

/// Clocks of a round; L2 holds nothing that the kernel reads when it starts.
template <typename... Arguments>
double clocks_of(void (*kernel)(long long*, Arguments...), Launch launch, Arguments... arguments) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(launch.cluster), 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = static_cast<unsigned>(launch.ctas);
    config.blockDim = static_cast<unsigned>(launch.threads);
    config.attrs = &attribute;
    config.numAttrs = 1;
    long long* clocks;
    void* flush;
    CHECK(cudaMallocManaged(&clocks, sizeof *clocks)), CHECK(cudaMalloc(&flush, kFlush));
    std::vector<double> each;
    for (int repeat = 0; repeat < 9; ++repeat) {
        CHECK(cudaMemset(flush, repeat, kFlush));
        CHECK(cudaLaunchKernelEx(&config, kernel, clocks, arguments...));
        CHECK(cudaDeviceSynchronize());
        if (repeat > 0) each.push_back(double(*clocks) / kRounds);
    }
    CHECK(cudaFree(clocks)), CHECK(cudaFree(flush));
    return median(each);
}

/// Clocks of giving and of taking registers.
std::pair<double, double> handing_over() {
    unsigned long long* clocks;
    CHECK(cudaMallocManaged(&clocks, 2 * sizeof *clocks));
    for (int repeat = 0; repeat < 2; ++repeat) {
        clocks[0] = clocks[1] = 0;
        hand_over<<<1, 384>>>(clocks);
        CHECK(cudaDeviceSynchronize());
    }
    const std::pair<double, double> both{double(clocks[0]), double(clocks[1])};
    CHECK(cudaFree(clocks));
    return both;
}

}  // namespace probe

int main() {
    using namespace probe;
    require_hopper();
    std::vector<Row> rows;
    const auto row = [&rows](const std::string& what, double clocks) {
        rows.push_back(Row().add("what", what).add("clocks", clocks));
    };
    for (const int threads : {128, 256, 384})
        row("named barrier of " + std::to_string(threads), clocks_of(meet, {1, threads, 1}));
    row("barrier.cluster of 2", clocks_of(meet_cluster, {2, 128, 2}));
    row("mbarrier, to another warp", clocks_of(ping_pong, {1, 64, 1}) / 2);
    row("mbarrier, to another CTA", clocks_of(ping_pong, {2, 32, 2}) / 2);
    char* data;
    CHECK(cudaMalloc(&data, kApart * kRounds));
    CHECK(cudaMemset(data, 0, kApart * kRounds));
    for (const uint32_t bytes : {128u, 1024u, 16384u})
        for (const size_t step : {size_t{0}, kApart})
            row("TMA of " + std::to_string(bytes) + (step ? " from memory" : " from L2"),
                clocks_of<const char*, uint32_t, size_t>(load, {1, 1, 1}, data, bytes, step));
    const auto [giving, taking] = handing_over();
    row("setmaxnreg, down to 40", giving);
    row("setmaxnreg, up to 232", taking);
    print("latency", rows);
}
