// Probe: whether a warp that starts wgmma goes on at once, or stands there until the tensor cores take it.
//
// Predictions, for four m64n128k32, which take 256 clocks. One warpgroup starts sixteen of them without a wait for any:
// if wgmma is put into a queue, the last start ends some hundred clocks after the first; if a warp stands at an
// instruction that the tensor cores have no room for, starts are 256 apart. Another warpgroup starts its own 100 clocks
// after the first one has started some: from a queue it would be on its way after 30 clocks, else only when all of the
// first one's are done.
#include <finegemm/device/ptx/tma.cuh>
#include <finegemm/device/ptx/wgmma.cuh>

#include "probe.cuh"
// wgmma_accumulate(float (&d)[N / 2], a, uint64_t b), a being a descriptor or 16 registers; written by run.py.
#include "wgmma_accumulate.inl"

namespace probe {

constexpr int kN = 128, kStarts = 16, kDelay = 100;
constexpr uint32_t kRowBytes = 128;

struct Operands {
    uint64_t a, b;
    uint32_t fragment[16];
};

/// All operands are ones and powers of two, in no order that matters: only the clock counts.
__device__ Operands fill(uint32_t warpgroup) {
    char* shared = aligned_shared();
    for (uint32_t i = threadIdx.x; i < (128 + kN) * kRowBytes; i += blockDim.x) shared[i] = 0x38 + i % 3 * 8;
    ptx::fence_proxy_async_shared();
    __syncthreads();
    const uint32_t base = ptx::smem_address(shared).bits;
    Operands of{wgmma_descriptor(base + warpgroup * 64 * kRowBytes), wgmma_descriptor(base + 128 * kRowBytes), {}};
    for (uint32_t& word : of.fragment) word = 0x38404838;
    return of;
}

template <bool InRegisters>
__device__ void start(float (&d)[kN / 2], const Operands& of) {
    if constexpr (InRegisters) wgmma_accumulate(d, of.fragment, of.b);
    else wgmma_accumulate(d, of.a, of.b);
    ptx::wgmma_commit_group();
}

/// clocks[i]: of thread 0, from before the first start to after start i; the last: until all are done.
template <bool InRegisters>
__global__ void __launch_bounds__(128) alone(long long* clocks, float* sink) {
    __shared__ long long notes[kStarts][128];
    const Operands of = fill(0);
    float d[kN / 2] = {};
    ptx::wgmma_fence();
    const long long begin = now();
#pragma unroll 1
    for (int i = 0; i < kStarts; ++i) {
        start<InRegisters>(d, of);
        notes[i][threadIdx.x] = now() - begin;
    }
    ptx::wgmma_wait_group<0>();
    for (float& x : d) ptx::pin(x);
    const long long done = now() - begin;
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStarts; ++i) clocks[i] = notes[i][0];
        clocks[kStarts] = done;
    }
    float sum = 0;
    for (const float x : d) sum += x;
    sink[threadIdx.x] = sum;
}

/// The second warpgroup's start behind `ahead` of the first one's: clocks until it has started, and until it is done.
template <bool InRegisters>
__global__ void __launch_bounds__(256) behind(int ahead, long long* clocks, float* sink) {
    const uint32_t warpgroup = threadIdx.x / 128;
    const Operands of = fill(warpgroup);
    float d[kN / 2] = {};
    __syncthreads();
    const long long begin = now();
    if (warpgroup == 0) {
        ptx::wgmma_fence();
#pragma unroll 1
        for (int i = 0; i < ahead; ++i) start<InRegisters>(d, of);
    } else {
        while (now() < begin + kDelay) {}
        ptx::wgmma_fence();
        const long long before = now();
        start<InRegisters>(d, of);
        const long long started = now();
        ptx::wgmma_wait_group<0>();
        const long long done = now();
        if (threadIdx.x == 128) clocks[0] = started - before, clocks[1] = done - before;
    }
    ptx::wgmma_wait_group<0>();
    for (float& x : d) ptx::pin(x);
    float sum = 0;
    for (const float x : d) sum += x;
    sink[threadIdx.x] = sum;
}

template <bool InRegisters>
void measure(std::vector<Row>& rows, long long* clocks, float* sink) {
    const char* const where = InRegisters ? "registers" : "shared memory";
    constexpr size_t kBytes = (128 + kN) * kRowBytes + 1024;
    allow_shared(alone<InRegisters>, kBytes);
    allow_shared(behind<InRegisters>, kBytes);
    for (int repeat = 0; repeat < 2; ++repeat) {
        alone<InRegisters><<<1, 128, kBytes>>>(clocks, sink);
        CHECK(cudaDeviceSynchronize());
    }
    for (const int i : {0, 1, 2, 3, 7, 15})
        rows.push_back(Row().add("a_in", where).add("starts", i + 1).add("clocks", static_cast<double>(clocks[i])));
    rows.push_back(Row().add("a_in", where).add("starts", kStarts).add("done", static_cast<double>(clocks[kStarts])));
    for (const int ahead : {0, 1, 2, 4}) {
        for (int repeat = 0; repeat < 2; ++repeat) {
            behind<InRegisters><<<1, 256, kBytes>>>(ahead, clocks, sink);
            CHECK(cudaDeviceSynchronize());
        }
        rows.push_back(Row()
                           .add("a_in", where)
                           .add("ahead", ahead)
                           .add("clocks", static_cast<double>(clocks[0]))
                           .add("done", static_cast<double>(clocks[1])));
    }
}

}  // namespace probe

int main() {
    probe::require_hopper();
    long long* clocks;
    float* sink;
    CHECK(cudaMallocManaged(&clocks, 32 * sizeof *clocks));
    CHECK(cudaMalloc(&sink, 256 * sizeof *sink));
    std::vector<probe::Row> rows;
    probe::measure<false>(rows, clocks, sink);
    probe::measure<true>(rows, clocks, sink);
    probe::print("issue", rows);
}
