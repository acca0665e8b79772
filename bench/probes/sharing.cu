// Probe: which CTAs of a launch run beside which, and whether SMs that load the same rows at about the same time get
// them from L2 once. Every SM loads boxes of 128 rows of 128 bytes (16 KB), without multicast. SMs of a set load the
// same boxes in the same order, each `lag` boxes after the one before; different sets load different boxes.
//
// Predictions. Distinct boxes: 72 bytes a nanosecond and SM, which is what L2 gives (9.5 TB/s). What two SMs of a TPC
// load together comes once: up to 64 bytes a clock, the width of a port. The same for sets within a GPC; sets across
// GPCs gain nothing. With a lag of one box (200 ns) nothing is left of it. CTAs of a launch without clusters go to the
// GPCs in turn, and CTA i + 66 to the TPC of CTA i.
#include <algorithm>
#include <map>
#include <numeric>

#include <finegemm/device/ptx/tma.cuh>

#include "boxes.cuh"
#include "probe.cuh"

namespace probe {

constexpr uint32_t kSms = 132, kStages = 4, kLoads = 4000;
constexpr size_t kMatrix = size_t{16} << 20;

__device__ uint32_t sm_id() {
    uint32_t id;
    asm("mov.u32 %0, %%smid;" : "=r"(id));
    return id;
}

__global__ void where(uint32_t* sms) {
    if (threadIdx.x == 0) sms[blockIdx.x] = sm_id();
    const long long start = now();
    while (now() - start < 100000) {}  // so that no CTA gets the SM of one that has ended
}

/// What an SM loads: all boxes in turn, beginning `lag` boxes before `first`.
struct Share {
    uint32_t first, lag;
};

__global__ void __launch_bounds__(64)
    load(const __grid_constant__ TensorMap map, const Share* shares, uint32_t boxes, long long* clocks) {
    __shared__ uint64_t barriers[2 * kStages];
    const ptx::SmemAddr stages = ptx::smem_address(aligned_shared()), full = ptx::smem_address(barriers);
    const ptx::SmemAddr empty = full + kStages * 8;
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < 2 * kStages; ++i) ptx::mbarrier_init(full + i * 8, 1);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    const Share share = shares[sm_id()];
    const long long start = now();
    if (threadIdx.x == 0)
        for (uint32_t i = 0; i < kLoads; ++i) {
            const uint32_t stage = i % kStages;
            const uint32_t box = (share.first + boxes + i - share.lag) % boxes;
            if (i >= kStages) wait(empty + stage * 8, (i / kStages - 1) & 1);
            ptx::mbarrier_arrive_expect_tx(full + stage * 8, kBoxBytes);
            ptx::tma_load(stages + stage * kBoxBytes, &map, full + stage * 8, box_x(box), box_y(box), kEvictNormal);
        }
    if (threadIdx.x == 32) {
        for (uint32_t i = 0; i < kLoads; ++i) {
            wait(full + i % kStages * 8, i / kStages & 1);
            ptx::mbarrier_arrive_cluster(ptx::map_to_rank(empty + i % kStages * 8, 0));
        }
        clocks[blockIdx.x] = now() - start;
    }
}

cudaLaunchConfig_t config_of(uint32_t ctas, cudaLaunchAttribute& cluster, uint32_t size) {
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {size, 1, 1};
    cudaLaunchConfig_t config{};
    config.attrs = &cluster;
    config.numAttrs = size > 1;
    config.blockDim = 64;
    config.gridDim = ctas;
    config.dynamicSmemBytes = 120 * 1024 + 1024;  // more than half of an SM's shared memory: one CTA each
    return config;
}

/// The SM of each CTA of a launch in clusters of `size` (1: without), as many as run at once.
std::vector<uint32_t> places(uint32_t size, uint32_t* sms) {
    cudaLaunchAttribute cluster;
    cudaLaunchConfig_t config = config_of(size, cluster, size);
    allow_shared(where, config.dynamicSmemBytes);
    if (size > 8) CHECK(cudaFuncSetAttribute(where, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    int clusters = kSms;
    if (size > 1) CHECK(cudaOccupancyMaxActiveClusters(&clusters, where, &config));
    config.gridDim = clusters * size;
    CHECK(cudaLaunchKernelEx(&config, where, sms));
    CHECK(cudaDeviceSynchronize());
    return {sms, sms + clusters * size};
}

/// For each SM the least SM of its GPC: a cluster never leaves a GPC, so clusters that overlap are of one.
std::vector<uint32_t> gpcs(uint32_t* sms) {
    std::vector<uint32_t> least(kSms);
    std::iota(least.begin(), least.end(), 0);
    const auto root = [&](uint32_t sm) {
        while (least[sm] != sm) sm = least[sm];
        return sm;
    };
    for (int repeat = 0; repeat < 20; ++repeat)
        for (const uint32_t size : {2, 3, 4, 5, 8, 16}) {
            const std::vector<uint32_t> at = places(size, sms);
            for (size_t i = 0; i < at.size(); ++i) {
                const uint32_t a = root(at[i]), b = root(at[i / size * size]);
                least[std::max(a, b)] = std::min(a, b);
            }
        }
    for (uint32_t sm = 0; sm < kSms; ++sm) least[sm] = root(sm);
    return least;
}

std::string text_of(const std::vector<uint32_t>& numbers) {
    std::string text;
    for (const uint32_t n : numbers) text += (text.empty() ? "" : " ") + std::to_string(n);
    return text;
}

/// `set_of`: the set of each SM.
Row measure(const char* name, const std::vector<uint32_t>& set_of, uint32_t lag, char* data) {
    const TensorMap map = map_of(data, kMatrix, kBox);
    const uint32_t boxes = kMatrix / kBoxBytes;
    std::map<uint32_t, uint32_t> members, number;
    Share* shares;
    long long* clocks;
    cudaEvent_t from, to;
    CHECK(cudaMallocManaged(&shares, kSms * sizeof *shares)), CHECK(cudaMallocManaged(&clocks, kSms * sizeof *clocks));
    CHECK(cudaEventCreate(&from)), CHECK(cudaEventCreate(&to));
    for (const uint32_t set : set_of) number.try_emplace(set, static_cast<uint32_t>(number.size()));
    const uint32_t sets = static_cast<uint32_t>(number.size());
    for (uint32_t sm = 0; sm < kSms; ++sm)
        shares[sm] = {number[set_of[sm]] * (boxes / sets), lag * members[set_of[sm]]++};
    cudaLaunchAttribute cluster;
    const cudaLaunchConfig_t config = config_of(kSms, cluster, 1);
    allow_shared(load, config.dynamicSmemBytes);
    std::vector<double> per_clock, seconds;
    for (int repeat = 0; repeat < 6; ++repeat) {
        float ms;
        CHECK(cudaEventRecord(from));
        CHECK(cudaLaunchKernelEx(&config, load, map, static_cast<const Share*>(shares), boxes, clocks));
        CHECK(cudaEventRecord(to));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaEventElapsedTime(&ms, from, to));
        if (repeat == 0) continue;
        seconds.push_back(ms / 1e3);
        for (uint32_t i = 0; i < kSms; ++i) per_clock.push_back(double(kLoads) * kBoxBytes / clocks[i]);
    }
    CHECK(cudaFree(shares)), CHECK(cudaFree(clocks)), CHECK(cudaEventDestroy(from)), CHECK(cudaEventDestroy(to));
    return Row()
        .add("sets", name)
        .add("count", sets)
        .add("lag", lag)
        .add("bytes_per_clock_and_sm", median(per_clock))
        .add("tb_per_s_loaded", double(kLoads) * kBoxBytes * kSms / median(seconds) / 1e12);
}

}  // namespace probe

int main() {
    using namespace probe;
    if (require_hopper().multiProcessorCount != int(kSms)) {
        std::fprintf(stderr, "skipped: not %u SMs\n", kSms);
        return kSkipped;
    }
    char* data;
    uint32_t* sms;
    CHECK(cudaMalloc(&data, kMatrix)), CHECK(cudaMallocManaged(&sms, 4096));
    CHECK(cudaMemset(data, 0x5a, kMatrix));
    std::vector<Row> rows;
    for (const uint32_t size : {1, 2, 4})
        rows.push_back(Row().add("what", "SM of each CTA").add("cluster", size).add("sms", text_of(places(size, sms))));
    const std::vector<uint32_t> gpc = gpcs(sms);
    rows.push_back(Row().add("what", "first SM of the GPC of each SM").add("sms", text_of(gpc)));

    std::vector<uint32_t> sm(kSms), tpc, across, quads;
    std::iota(sm.begin(), sm.end(), 0);
    std::map<uint32_t, uint32_t> seen;
    for (const uint32_t i : sm) {
        const uint32_t nth = seen[gpc[i]]++;  // SM of its GPC
        tpc.push_back(i / 2);
        quads.push_back(gpc[i] * 1000 + nth / 4);
        across.push_back(nth);
    }
    const std::vector<uint32_t> one(kSms, 0);
    struct Sets {
        const char* name;
        const std::vector<uint32_t>& of;
    };
    for (const Sets& sets : {Sets{"each SM", sm},
                             {"TPC", tpc},
                             {"four SMs of a GPC", quads},
                             {"GPC", gpc},
                             {"one SM of each GPC", across},
                             {"all", one}})
        for (const uint32_t lag : {0, 1, 4})
            if (lag == 0 || sets.of != sm) rows.push_back(measure(sets.name, sets.of, lag, data));
    print("sharing", rows);
}
