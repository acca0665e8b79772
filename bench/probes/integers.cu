// Probe: what promoting sums of integers costs beside products, against sums of FP8. Two warpgroups share the tensor
// cores, as in the kernels: each has four instructions of m64nNk32 into fresh accumulators, then an FFMA for each sum,
// of integers after a conversion. Nothing is loaded meanwhile.
//
// Predictions, clocks of a k-block and warpgroup for N = 128, of which tensor cores take 256: 260 for FP8. A conversion
// and an FFMA take 2.6 clocks of a warp where nothing else runs, and more beside wgmma, which needs the registers'
// ports: 64 of each about as long as a product, so that two warpgroups no longer cover each other: 280 to 290.
//
// `late`: clocks by which the second warpgroup begins after the first.
#include <finegemm/device/ptx/tma.cuh>
#include <finegemm/device/ptx/wgmma.cuh>

#include "probe.cuh"

#define FG_WGMMA_TYPE "bf16"
#define FG_WGMMA_TOO 192
#define FG_WGMMA_SIXTEENS 0
#define FG_WGMMA_N 128
namespace finegemm::of_fp8 {
#include <finegemm/device/ptx/wgmma.inl>
}  // namespace finegemm::of_fp8
#undef FG_WGMMA_SUM
#undef FG_WGMMA_OUT
#undef FG_WGMMA_BYTES
#undef FG_WGMMA_SIGNS
#define FG_WGMMA_SUM int32_t
#define FG_WGMMA_OUT "=r"
#define FG_WGMMA_BYTES "s32.s8.s8"
#define FG_WGMMA_SIGNS ""
namespace finegemm::of_integers {
#include <finegemm/device/ptx/wgmma.inl>
}  // namespace finegemm::of_integers

namespace probe {

constexpr uint32_t kRowBytes = 128;
constexpr int kBlocks = 4000;

template <int N, bool Integers>
__global__ void __launch_bounds__(256) blocks(float upper, float lower, int late, long long* clocks, float* sink) {
    char* shared = aligned_shared();
    for (uint32_t i = threadIdx.x; i < (128 + N) * kRowBytes; i += blockDim.x)
        shared[i] = static_cast<char>((i * 2654435761u >> 24) & 0xbf);  // finite in both types
    ptx::fence_proxy_async_shared();
    __syncthreads();
    const uint32_t base = ptx::smem_address(shared).bits;
    const uint64_t a = wgmma_descriptor(base + threadIdx.x / 128 * 64 * kRowBytes);
    const uint64_t b = wgmma_descriptor(base + 128 * kRowBytes);
    std::conditional_t<Integers, int32_t, float> block[N / 2];
    float sum[N / 2] = {};
    const long long start = now();
    while (now() - start < threadIdx.x / 128 * late) {}
#pragma unroll 1
    for (int i = 0; i < kBlocks; ++i) {
        ptx::wgmma_fence();
        if constexpr (Integers) of_integers::wgmma_k128(block, a, b);
        else of_fp8::wgmma_k128(block, a, b);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        for (auto& x : block) ptx::pin(x);
        for (int r = 0; r < N / 2; ++r) {
            float product;
            if constexpr (Integers) product = ptx::float_of_int(block[r]);
            else product = block[r];
            sum[r] = ptx::fma(product, r % 4 < 2 ? upper : lower, sum[r]);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) clocks[blockIdx.x] = now() - start;
    float total = 0;
    for (int r = 0; r < N / 2; ++r) total += sum[r];
    sink[threadIdx.x] = total;
}

template <int N, bool Integers>
void measure(std::vector<Row>& rows, int sms, long long* clocks, float* sink, int late) {
    const size_t bytes = (128 + N) * kRowBytes + 1024;
    allow_shared(blocks<N, Integers>, bytes);
    for (int repeat = 0; repeat < 2; ++repeat) {
        blocks<N, Integers><<<sms, 256, bytes>>>(1, 2, late, clocks, sink);
        CHECK(cudaDeviceSynchronize());
    }
    std::vector<double> each;
    for (int i = 0; i < sms; ++i) each.push_back(double(clocks[i]) / (kBlocks * 2));
    rows.push_back(Row()
                       .add("n", N)
                       .add("integers", Integers)
                       .add("late", late)
                       .add("clocks", median(each))
                       .add("of_tensor_rate", 2 * N / median(each)));
}

}  // namespace probe

int main() {
    const int sms = probe::require_hopper().multiProcessorCount;
    long long* clocks;
    float* sink;
    CHECK(cudaMallocManaged(&clocks, sms * sizeof *clocks));
    CHECK(cudaMalloc(&sink, 512 * sizeof *sink));
    std::vector<probe::Row> rows;
    for (int late = 0; late <= 384; late += 64) {
        probe::measure<128, false>(rows, sms, clocks, sink, late);
        probe::measure<128, true>(rows, sms, clocks, sink, late);
        probe::measure<192, false>(rows, sms, clocks, sink, late);
        probe::measure<192, true>(rows, sms, clocks, sink, late);
    }
    probe::print("integers", rows);
}
