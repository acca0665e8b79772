// Probe: what it costs to promote partial sums in FP32 between two k-blocks, by the number of warpgroups that share the
// tensor cores. One k-block is four instructions of m64nNk32 into fresh accumulators, then `work` FP32 instructions
// for each of them: 0 leaves the promotion out, 1 is an FFMA with one scale (1D2D), 2 a multiplication more (1D1D).
//
// Predictions, clocks of a k-block and warpgroup for N = 128, where the tensor cores take 256: one warpgroup waits for
// its wgmma (about 60 clocks of latency), then takes 64 for an FFMA: 380, or 67% of the tensor rate, 320 without and
// 444 with two instructions. Two warpgroups cover each other: 256 to 265 in all three. For N = 64 (128 clocks): one 220
// to 290, two 128 to 145, as the latency is a larger share, four 128.
//
// `late`: clocks by which each warpgroup begins after the one before it. Two that begin together finish and promote
// together, while the tensor cores wait; late by a block they cover each other: 330 and 256 for N = 128.
#include <finegemm/device/ptx/tma.cuh>
#include <finegemm/device/ptx/wgmma.cuh>

#include "probe.cuh"

namespace finegemm::ptx {
#define FG_WGMMA_N 64
#include <finegemm/device/ptx/wgmma.inl>
#undef FG_WGMMA_N
#define FG_WGMMA_N 128
#include <finegemm/device/ptx/wgmma.inl>
#undef FG_WGMMA_N
}  // namespace finegemm::ptx

namespace probe {

constexpr uint32_t kRowBytes = 128;
constexpr int kBlocks = 4000;

template <int N, int Warpgroups, int Work>
__global__ void __launch_bounds__(Warpgroups * 128)
    blocks(float row_scale, float block_scale, int late, long long* clocks, float* sink) {
    char* shared = aligned_shared();
    for (uint32_t i = threadIdx.x; i < (64 * Warpgroups + N) * kRowBytes; i += blockDim.x) shared[i] = 0;
    ptx::fence_proxy_async_shared();
    __syncthreads();
    const uint32_t base = ptx::smem_address(shared).bits;
    const uint64_t a = wgmma_descriptor(base + threadIdx.x / 128 * 64 * kRowBytes);
    const uint64_t b = wgmma_descriptor(base + Warpgroups * 64 * kRowBytes);
    float sum[N / 2] = {}, block[N / 2];
    const long long start = now();
    while (now() - start < threadIdx.x / 128 * late) {}
#pragma unroll 1
    for (int i = 0; i < kBlocks; ++i) {
        ptx::wgmma_fence();
        ptx::wgmma_k128(block, a, b);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        for (float& x : block) ptx::pin(x);
        if constexpr (Work == 1)
            for (int r = 0; r < N / 2; ++r) sum[r] = ptx::fma(block[r], row_scale, sum[r]);
        if constexpr (Work == 2)
            for (int r = 0; r < N / 2; ++r) sum[r] = ptx::fma(block[r] * block_scale, row_scale, sum[r]);
    }
    __syncthreads();
    if (threadIdx.x == 0) clocks[blockIdx.x] = now() - start;
    float total = 0;
    for (int r = 0; r < N / 2; ++r) total += Work == 0 ? block[r] : sum[r];
    sink[threadIdx.x] = total;
}

template <int N, int Warpgroups, int Work>
void measure(std::vector<Row>& rows, int sms, long long* clocks, float* sink, int late = 0) {
    const size_t bytes = (64 * Warpgroups + N) * kRowBytes + 1024;
    allow_shared(blocks<N, Warpgroups, Work>, bytes);
    for (int repeat = 0; repeat < 2; ++repeat) {
        blocks<N, Warpgroups, Work><<<sms, Warpgroups * 128, bytes>>>(1, 1, late, clocks, sink);
        CHECK(cudaDeviceSynchronize());
    }
    std::vector<double> each;
    for (int i = 0; i < sms; ++i) each.push_back(double(clocks[i]) / (kBlocks * Warpgroups));
    rows.push_back(Row()
                       .add("n", N)
                       .add("warpgroups", Warpgroups)
                       .add("work", Work)
                       .add("late", late)
                       .add("clocks", median(each))
                       .add("of_tensor_rate", 2 * N / median(each)));
}

template <int N, int Warpgroups>
void measure_work(std::vector<Row>& rows, int sms, long long* clocks, float* sink) {
    measure<N, Warpgroups, 0>(rows, sms, clocks, sink);
    measure<N, Warpgroups, 1>(rows, sms, clocks, sink);
    measure<N, Warpgroups, 2>(rows, sms, clocks, sink);
}

}  // namespace probe

int main() {
    const int sms = probe::require_hopper().multiProcessorCount;
    long long* clocks;
    float* sink;
    CHECK(cudaMallocManaged(&clocks, sms * sizeof *clocks));
    CHECK(cudaMalloc(&sink, 512 * sizeof *sink));
    std::vector<probe::Row> rows;
    probe::measure_work<64, 1>(rows, sms, clocks, sink);
    probe::measure_work<64, 2>(rows, sms, clocks, sink);
    probe::measure_work<64, 3>(rows, sms, clocks, sink);
    probe::measure_work<64, 4>(rows, sms, clocks, sink);
    probe::measure_work<128, 1>(rows, sms, clocks, sink);
    probe::measure_work<128, 2>(rows, sms, clocks, sink);
    probe::measure_work<128, 3>(rows, sms, clocks, sink);
    for (int late = 32; late <= 128; late += 32) probe::measure<64, 2, 1>(rows, sms, clocks, sink, late);
    for (int late = 32; late <= 256; late += 32) probe::measure<128, 2, 1>(rows, sms, clocks, sink, late);
    for (int late = 64; late <= 256; late += 64) probe::measure<128, 3, 1>(rows, sms, clocks, sink, late);
    probe::print("promotion", rows);
}
