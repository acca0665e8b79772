// Probe: how fast TMA fills shared memory, from L2 and from memory, with and without multicast, by the bytes in flight.
// Every SM loads boxes of 128 rows of 128 bytes (16 KB), as the GEMM does; in a cluster each CTA loads its share of a
// box into all of them.
//
// Predictions. From L2: 36 to 47 bytes a clock and SM with 64 KB in flight or more, whatever else; a cluster of two
// gives each SM up to 64, the width of its port, one of four no more than that. 32 MB give less than 8 MB, as half of
// it lies in the far part of L2. From memory: 4.2 TB/s in all with 32 KB in flight an SM, half of it with 16 KB, and no
// more with more. evict_first gains 3 to 10% after L2 was filled with dirty lines.
#include <finegemm/device/ptx/tma.cuh>

#include "boxes.cuh"
#include "probe.cuh"

namespace probe {

constexpr uint32_t kMostStages = 12;

struct Schedule {
    uint32_t boxes, loads, stages, cluster;  // in the matrix; of a CTA; in flight; CTAs
    uint64_t policy;
};

__device__ void produce(const TensorMap& map, const Schedule& w, ptx::SmemAddr stages, ptx::SmemAddr full,
                        ptx::SmemAddr empty) {
    const uint32_t rank = ptx::cluster_rank(), share = kBox / w.cluster, clusters = gridDim.x / w.cluster;
    uint32_t box = blockIdx.x / w.cluster;
    for (uint32_t i = 0; i < w.loads; ++i, box += clusters) {
        if (box >= w.boxes) box -= w.boxes;
        const uint32_t stage = i % w.stages, x = box_x(box), y = box_y(box);
        const ptx::SmemAddr to = stages + stage * kBoxBytes + rank * share * kBox, barrier = full + stage * 8;
        if (i >= w.stages) wait(empty + stage * 8, (i / w.stages - 1) & 1);
        ptx::mbarrier_arrive_expect_tx(barrier, kBoxBytes);
        if (w.cluster == 1) ptx::tma_load(to, &map, barrier, x, y, w.policy);
        else
            ptx::tma_load_multicast(to, &map, barrier, x, y + rank * share,
                                    static_cast<uint16_t>((1u << w.cluster) - 1), w.policy);
    }
}

__device__ void consume(const Schedule& w, ptx::SmemAddr full, ptx::SmemAddr empty) {
    for (uint32_t i = 0; i < w.loads; ++i) {
        const uint32_t stage = i % w.stages;
        wait(full + stage * 8, i / w.stages & 1);
        for (uint32_t rank = 0; rank < w.cluster; ++rank)
            ptx::mbarrier_arrive_cluster(ptx::map_to_rank(empty + stage * 8, rank));
    }
}

__global__ void __launch_bounds__(64)
    load(const __grid_constant__ TensorMap map, const Schedule schedule, long long* clocks) {
    __shared__ uint64_t barriers[2 * kMostStages];
    const ptx::SmemAddr stages = ptx::smem_address(aligned_shared()), full = ptx::smem_address(barriers);
    const ptx::SmemAddr empty = full + kMostStages * 8;
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < schedule.stages; ++i) {
            ptx::mbarrier_init(full + i * 8, 1);
            ptx::mbarrier_init(empty + i * 8, schedule.cluster);
        }
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    ptx::cluster_arrive(), ptx::cluster_wait();
    const long long start = now();
    if (threadIdx.x == 0) produce(map, schedule, stages, full, empty);
    if (threadIdx.x == 32) {
        consume(schedule, full, empty);
        clocks[blockIdx.x] = now() - start;
    }
    __syncthreads();
    ptx::cluster_arrive(), ptx::cluster_wait();  // no CTA leaves while others write to it
}

/// A launch of as many clusters as run at once.
struct Launch {
    cudaLaunchAttribute attribute{};
    cudaLaunchConfig_t config{};

    explicit Launch(const Schedule& schedule) {
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim = {schedule.cluster, 1, 1};
        config.attrs = &attribute;
        config.numAttrs = 1;
        config.blockDim = 64;
        // More than half of an SM's shared memory: one CTA each.
        config.dynamicSmemBytes = std::max<size_t>(schedule.stages * kBoxBytes, 120 * 1024) + 1024;
        config.gridDim = schedule.cluster;
        allow_shared(load, config.dynamicSmemBytes);
        int clusters = 0;
        CHECK(cudaOccupancyMaxActiveClusters(&clusters, load, &config));
        config.gridDim = clusters * schedule.cluster;
    }
};

/// `dirty`: memory that is written before each run, so that L2 is full of it; null: L2 keeps the matrix.
void measure(std::vector<Row>& rows, char* data, size_t bytes, Schedule schedule, void* dirty, size_t dirty_bytes) {
    const TensorMap map = map_of(data, bytes, kBox / schedule.cluster);
    const Launch launch(schedule);
    const uint32_t ctas = launch.config.gridDim.x;
    schedule.boxes = static_cast<uint32_t>(bytes / kBoxBytes);
    schedule.loads = dirty ? schedule.boxes / (ctas / schedule.cluster) : 2000;
    long long* clocks;
    cudaEvent_t from, to;
    CHECK(cudaMallocManaged(&clocks, ctas * sizeof *clocks));
    CHECK(cudaEventCreate(&from)), CHECK(cudaEventCreate(&to));
    std::vector<double> each, seconds;
    for (int repeat = 0; repeat < 5; ++repeat) {
        float ms;
        if (dirty) CHECK(cudaMemsetAsync(dirty, repeat, dirty_bytes));
        CHECK(cudaEventRecord(from));
        CHECK(cudaLaunchKernelEx(&launch.config, load, map, schedule, clocks));
        CHECK(cudaEventRecord(to));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaEventElapsedTime(&ms, from, to));
        if (repeat == 0) continue;  // brings the matrix to L2, or the clocks up
        seconds.push_back(ms / 1e3);
        for (uint32_t i = 0; i < ctas; ++i) each.push_back(double(schedule.loads) * kBoxBytes / clocks[i]);
    }
    rows.push_back(Row()
                       .add("from", dirty ? "memory" : "L2")
                       .add("mb", double(bytes >> 20))
                       .add("cluster", schedule.cluster)
                       .add("ctas", ctas)
                       .add("kb_in_flight", schedule.stages * kBoxBytes / 1024)
                       .add("policy", schedule.policy == kEvictFirst ? "evict_first" : "evict_normal")
                       .add("bytes_per_clock_and_sm", median(each))
                       .add("tb_per_s_read",
                            double(schedule.loads) * kBoxBytes * ctas / schedule.cluster / median(seconds) / 1e12));
    CHECK(cudaFree(clocks)), CHECK(cudaEventDestroy(from)), CHECK(cudaEventDestroy(to));
}

}  // namespace probe

int main() {
    probe::require_hopper();
    constexpr size_t kMemory = size_t{2} << 30, kDirty = size_t{512} << 20;
    char *data, *dirty;
    CHECK(cudaMalloc(&data, kMemory)), CHECK(cudaMalloc(&dirty, kDirty));
    CHECK(cudaMemset(data, 0, kMemory));
    std::vector<probe::Row> rows;
    for (const size_t bytes : {size_t{8} << 20, size_t{32} << 20})
        for (const uint32_t cluster : {1, 2, 4})
            for (const uint32_t stages : {2, 4, 8, 12})
                probe::measure(rows, data, bytes, {0, 0, stages, cluster, probe::kEvictNormal}, nullptr, 0);
    for (const uint64_t policy : {probe::kEvictNormal, probe::kEvictFirst})
        for (const uint32_t stages : {1, 2, 3, 4, 6, 8, 12})
            probe::measure(rows, data, kMemory, {0, 0, stages, 1, policy}, dirty, kDirty);
    probe::print("ingress", rows);
}
