// Probe: how fast TMA brings the two tiles of each k-block of a GEMM where nothing is multiplied. Each CTA loads tile_m
// rows of A and tile_n rows of B for each 128 of K into a ring of stages; another warp lets a stage go as soon as it is
// full. CTAs have the tiles of D in bands of four, one below the other, and those of 64x80 load all of their rows of B.
//
// One thread starts all loads, or each of two those of an operand, or two load the k-blocks round-robin; rows of B come
// in one load or in several.
//
// Predictions. 53 bytes a clock and SM, what SMs get that load the same boxes (sharing): 330 clocks for a k-block of
// 64x72, 480 for one of 128x72. From memory no less, but for the first stages. Two threads: half the clocks of one
// where that takes longer than the loads themselves.
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

/// Which threads start loads.
enum class Loaders { One, OneForEachOperand, TwoRoundRobin };
constexpr const char* kNames[] = {"one", "one for each operand", "two in turn"};

/// Clocks from the start of a CTA until its first k-block was there, half of them, and all.
struct Times {
    long long first, half, all;
};

/// `Pieces`: loads of B. `which`: of the loaders.
template <Loaders L, uint32_t Pieces>
__device__ void produce(const TensorMap& a, const TensorMap& b, const Shape& s, ptx::SmemAddr stages,
                        ptx::SmemAddr full, ptx::SmemAddr empty, uint32_t which) {
    const uint32_t band = s.band * s.tiles_n(), inside = blockIdx.x % band;
    const uint32_t row_a = (blockIdx.x / band * s.band + inside % s.band) * s.tile_m;
    const uint32_t row_b = inside / s.band * s.tile_n;
    const uint32_t piece = s.tile_n / Pieces, a_bytes = s.tile_m * kBox, b_bytes = s.tile_n * kBox;
    const bool has_a = L != Loaders::OneForEachOperand || which == 0;
    const bool has_b = L != Loaders::OneForEachOperand || which == 1;
    constexpr uint32_t kStep = L == Loaders::TwoRoundRobin ? 2 : 1;
    const uint32_t first = L == Loaders::TwoRoundRobin ? which : 0;
    // Cursors that are counted up: a loop that divides by the number of stages takes 300 clocks whatever it loads.
    uint32_t stage = first, parity = 1;
#pragma unroll 1
    for (uint32_t k = first * kBox; k < s.k; k += kStep * kBox) {
        wait(empty + stage * 8, parity);
        const ptx::SmemAddr to = stages + stage * s.stage_bytes(), barrier = full + stage * 8;
        ptx::mbarrier_arrive_expect_tx(barrier, (has_a ? a_bytes : 0) + (has_b ? b_bytes : 0));
        if (has_a) ptx::tma_load(to, &a, barrier, k, row_a, kEvictNormal);
        if (has_b) {
#pragma unroll
            for (uint32_t i = 0; i < Pieces; ++i)
                ptx::tma_load(to + a_bytes + i * piece * kBox, &b, barrier, k, row_b + i * piece, kEvictNormal);
        }
        stage += kStep;
        if (stage >= s.stages) stage -= s.stages, parity ^= 1;
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

template <Loaders L, uint32_t Pieces>
__global__ void __launch_bounds__(96) load(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
                                           const __grid_constant__ Shape s, Times* times) {
    __shared__ uint64_t barriers[2 * kMostStages];
    const ptx::SmemAddr stages = ptx::smem_address(aligned_shared()), full = ptx::smem_address(barriers);
    const ptx::SmemAddr empty = full + s.stages * 8;
    const long long start = now();
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < s.stages; ++i) {
            ptx::mbarrier_init(full + i * 8, L == Loaders::OneForEachOperand ? 2 : 1);
            ptx::mbarrier_init(empty + i * 8, 1);
        }
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    const uint32_t warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0 && (warp == 0 || (warp == 1 && L != Loaders::One)))
        produce<L, Pieces>(a, b, s, stages, full, empty, warp);
    if (threadIdx.x == 64) times[blockIdx.x] = consume(s, full, empty, start);
}

template <Loaders L, uint32_t Pieces>
Row measure(const Shape& s, char* a, char* b, char* flush, Times* times) {
    const TensorMap map_a = map_of(a, size_t{s.m} * s.k, s.tile_m, s.k);
    const TensorMap map_b = map_of(b, size_t{s.n} * s.k, s.tile_n / Pieces, s.k);
    const uint32_t shared = std::max(s.stages * s.stage_bytes() + 1024, kLeastShared);
    allow_shared(load<L, Pieces>, shared);
    std::vector<double> first, half, all;
    for (int repeat = 0; repeat < 16; ++repeat) {
        CHECK(cudaMemsetAsync(flush, repeat, s.from_memory ? kFlush : kFlush / 512));
        load<L, Pieces><<<s.ctas(), 96, shared>>>(map_a, map_b, s, times);
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
        .add("loaders", kNames[static_cast<int>(L)])
        .add("pieces", Pieces)
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
        {1024, 640, 7168, 64, 80, 10, 4, true},    {1024, 576, 7168, 64, 72, 12, 4, true},
        {2048, 576, 7168, 64, 144, 7, 4, true},    {2048, 576, 7168, 128, 72, 8, 4, true},
        {2048, 640, 7168, 128, 80, 7, 4, true},    {512, 2112, 7168, 128, 64, 8, 4, true},
        {1024, 640, 7168, 64, 80, 10, 4, false},   {1024, 576, 7168, 64, 72, 12, 4, false},
        {2048, 576, 7168, 64, 144, 7, 4, false},   {2048, 576, 7168, 128, 72, 8, 4, false},
        {2048, 640, 7168, 128, 80, 7, 4, false},   {512, 2112, 7168, 128, 64, 8, 4, false},
        {1024, 576, 7168, 64, 72, 6, 4, false},    {1024, 576, 7168, 64, 72, 4, 4, false},
        {256, 576, 7168, 64, 72, 12, 4, false},    {1024, 576, 7168, 64, 72, 12, 1, false},
        {1024, 576, 7168, 64, 72, 12, 2, false},   {1024, 576, 7168, 64, 72, 12, 8, false},
        {1024, 576, 7168, 64, 72, 12, 16, false},  {1024, 256, 7168, 64, 32, 12, 4, false},
        {1024, 2048, 7168, 128, 128, 6, 4, false}, {256, 7168, 16384, 128, 128, 6, 2, true},
        {1024, 3072, 7168, 128, 192, 5, 4, false}, {128, 192, 7168, 128, 192, 5, 1, false},
        {128, 128, 7168, 128, 128, 6, 1, false},
    };
    constexpr Shape kCompared[] = {
        {1024, 640, 7168, 64, 80, 10, 4, false},   {1024, 256, 7168, 64, 32, 12, 4, false},
        {2048, 640, 7168, 128, 80, 8, 4, false},   {512, 2112, 7168, 128, 64, 8, 4, false},
        {1024, 2048, 7168, 128, 128, 6, 4, false}, {1024, 640, 7168, 64, 80, 10, 4, true},
        {1024, 256, 7168, 64, 32, 12, 4, true},    {2048, 640, 7168, 128, 80, 8, 4, true},
        {512, 2112, 7168, 128, 64, 8, 4, true},    {1024, 2048, 7168, 128, 128, 6, 4, true},
        {2048, 640, 7168, 128, 80, 6, 4, true},    {2048, 640, 7168, 128, 80, 4, 4, true},
        {1024, 640, 7168, 64, 80, 6, 4, true},     {1024, 640, 7168, 64, 80, 4, 4, true},
    };
    std::vector<Row> rows;
    const auto add = [&]<Loaders L, uint32_t Pieces>(const Shape& s) {
        rows.push_back(measure<L, Pieces>(s, a, b, flush, times));
    };
    for (const Shape& s : kShapes) add.operator()<Loaders::One, 1>(s);
    for (const Shape& s : kCompared) {
        add.operator()<Loaders::One, 1>(s);
        add.operator()<Loaders::One, 2>(s);
        add.operator()<Loaders::One, 4>(s);
        add.operator()<Loaders::OneForEachOperand, 1>(s);
        add.operator()<Loaders::OneForEachOperand, 2>(s);
        add.operator()<Loaders::TwoRoundRobin, 1>(s);
        add.operator()<Loaders::TwoRoundRobin, 2>(s);
        add.operator()<Loaders::TwoRoundRobin, 4>(s);
    }
    print("tiles", rows);
}
