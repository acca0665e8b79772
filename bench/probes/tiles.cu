// Probe: how fast TMA brings the two tiles of each k-block of a GEMM where nothing is multiplied. Each CTA loads tile_m
// rows of A and tile_n rows of B for each 128 of K into a ring of stages; another warp lets a stage go as soon as it is
// full. CTAs have the tiles of D in bands of four, one below the other, and those of 64x80 load all of their rows of B.
//
// Predictions. 53 bytes a clock and SM, what SMs get that load the same boxes (sharing): 330 clocks for a k-block of
// 64x72, 480 for one of 128x72. From memory no less, but for the first stages.
#include <cuda.h>

#include <finegemm/device/ptx/tma.cuh>

#include "boxes.cuh"
#include "probe.cuh"

namespace probe {

constexpr size_t kOperand = size_t{64} << 20, kFlush = size_t{512} << 20;
constexpr uint32_t kMostStages = 16, kLeastShared = 130000;  // more than half of an SM's shared memory: one CTA each

struct Shape {
    uint32_t m, n, k, tile_m, tile_n, stages, band;
    bool from_memory;

    __host__ __device__ uint32_t stage_bytes() const { return (tile_m + tile_n) * kBox; }
    __host__ __device__ uint32_t k_blocks() const { return k / kBox; }
    __host__ __device__ uint32_t tiles_n() const { return n / tile_n; }
    uint32_t ctas() const { return m / tile_m * tiles_n(); }
};

/// Clocks from the start of a CTA until its first k-block was there, half of them, and all.
struct Times {
    long long first, half, all;
};

__device__ void produce(const TensorMap& a, const TensorMap& b, const Shape& s, ptx::SmemAddr stages,
                        ptx::SmemAddr full, ptx::SmemAddr empty) {
    const uint32_t band = s.band * s.tiles_n(), inside = blockIdx.x % band;
    const uint32_t row_a = (blockIdx.x / band * s.band + inside % s.band) * s.tile_m;
    const uint32_t row_b = inside / s.band * s.tile_n;
    // Cursors that are counted up: a loop that divides by the number of stages takes 300 clocks whatever it loads.
    uint32_t stage = 0, parity = 1;
#pragma unroll 1
    for (uint32_t k = 0; k < s.k; k += kBox) {
        wait(empty + stage * 8, parity);
        const ptx::SmemAddr to = stages + stage * s.stage_bytes(), barrier = full + stage * 8;
        ptx::mbarrier_arrive_expect_tx(barrier, s.stage_bytes());
        ptx::tma_load(to, &a, barrier, k, row_a, kEvictNormal);
        ptx::tma_load(to + s.tile_m * kBox, &b, barrier, k, row_b, kEvictNormal);
        if (++stage == s.stages) stage = 0, parity ^= 1;
    }
}

__device__ Times consume(const Shape& s, ptx::SmemAddr full, ptx::SmemAddr empty, long long start) {
    uint32_t stage = 0, parity = 0;
    const auto take = [&](uint32_t blocks) {
#pragma unroll 1
        for (; blocks > 0; --blocks) {
            wait(full + stage * 8, parity);
            ptx::mbarrier_arrive(empty + stage * 8);
            if (++stage == s.stages) stage = 0, parity ^= 1;
        }
        return now() - start;
    };
    Times t;
    t.first = take(1);
    t.half = take(s.k_blocks() / 2 - 1);
    t.all = take(s.k_blocks() - s.k_blocks() / 2);
    return t;
}

__global__ void __launch_bounds__(96)
    load(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, const __grid_constant__ Shape s,
         Times* times) {
    __shared__ uint64_t barriers[2 * kMostStages];
    const ptx::SmemAddr stages = ptx::smem_address(aligned_shared()), full = ptx::smem_address(barriers);
    const ptx::SmemAddr empty = full + s.stages * 8;
    const long long start = now();
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < 2 * s.stages; ++i) ptx::mbarrier_init(full + i * 8, 1);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x == 0) produce(a, b, s, stages, full, empty);
    if (threadIdx.x == 64) times[blockIdx.x] = consume(s, full, empty, start);
}

Row measure(const Shape& s, char* a, char* b, char* flush, Times* times) {
    const TensorMap map_a = map_of(a, size_t{s.m} * s.k, s.tile_m, s.k);
    const TensorMap map_b = map_of(b, size_t{s.n} * s.k, s.tile_n, s.k);
    const uint32_t shared = std::max(s.stages * s.stage_bytes() + 1024, kLeastShared);
    allow_shared(load, shared);
    std::vector<double> first, half, all;
    for (int repeat = 0; repeat < 16; ++repeat) {
        CHECK(cudaMemsetAsync(flush, repeat, s.from_memory ? kFlush : kFlush / 512));
        load<<<s.ctas(), 96, shared>>>(map_a, map_b, s, times);
        CHECK(cudaDeviceSynchronize());
        if (repeat < 3) continue;
        for (uint32_t i = 0; i < s.ctas(); ++i) {
            first.push_back(double(times[i].first));
            half.push_back(double(times[i].half));
            all.push_back(double(times[i].all));
        }
    }
    const double later = s.k_blocks() - s.k_blocks() / 2, clocks = median(all) - median(half);
    return Row()
        .add("tile", std::to_string(s.tile_m) + "x" + std::to_string(s.tile_n))
        .add("stages", s.stages)
        .add("m", s.m)
        .add("n", s.n)
        .add("k", s.k)
        .add("band", s.band)
        .add("from", s.from_memory ? "memory" : "L2")
        .add("first", median(first))
        .add("half", median(half))
        .add("all", median(all))
        .add("clocks_per_block", clocks / later)
        .add("bytes_per_clock_and_sm", s.stage_bytes() * later / clocks);
}

}  // namespace probe

int main() {
    using namespace probe;
    require_hopper();
    char *a, *b, *flush;
    Times* times;
    CHECK(cudaMalloc(&a, kOperand)), CHECK(cudaMalloc(&b, kOperand)), CHECK(cudaMalloc(&flush, kFlush));
    CHECK(cudaMallocManaged(&times, 4096 * sizeof *times));
    CHECK(cudaMemset(a, 0x35, kOperand)), CHECK(cudaMemset(b, 0x5a, kOperand));
    constexpr Shape kShapes[] = {
        {1024, 640, 7168, 64, 80, 10, 4, true},   {1024, 576, 7168, 64, 72, 12, 4, true},
        {2048, 576, 7168, 64, 144, 7, 4, true},   {2048, 576, 7168, 128, 72, 8, 4, true},
        {2048, 640, 7168, 128, 80, 7, 4, true},   {512, 2112, 7168, 128, 64, 8, 4, true},
        {1024, 640, 7168, 64, 80, 10, 4, false},  {1024, 576, 7168, 64, 72, 12, 4, false},
        {2048, 576, 7168, 64, 144, 7, 4, false},  {2048, 576, 7168, 128, 72, 8, 4, false},
        {2048, 640, 7168, 128, 80, 7, 4, false},  {512, 2112, 7168, 128, 64, 8, 4, false},
        {1024, 576, 7168, 64, 72, 6, 4, false},   {1024, 576, 7168, 64, 72, 4, 4, false},
        {256, 576, 7168, 64, 72, 12, 4, false},   {1024, 576, 7168, 64, 72, 12, 1, false},
        {1024, 576, 7168, 64, 72, 12, 2, false},  {1024, 576, 7168, 64, 72, 12, 8, false},
        {1024, 576, 7168, 64, 72, 12, 16, false}, {1024, 256, 7168, 64, 32, 12, 4, false},
        {1024, 2048, 7168, 128, 128, 6, 4, false}, {256, 7168, 16384, 128, 128, 6, 2, true},
        {1024, 3072, 7168, 128, 192, 5, 4, false}, {128, 192, 7168, 128, 192, 5, 1, false},
        {128, 128, 7168, 128, 128, 6, 1, false},
    };
    std::vector<Row> rows;
    for (const Shape& s : kShapes) rows.push_back(measure(s, a, b, flush, times));
    print("tiles", rows);
}
