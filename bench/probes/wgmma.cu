// Probe: the rate of wgmma m64nNk32 with e4m3 operands, A in shared memory or in registers, alone and while TMA writes
// to shared memory.
//
// Predictions, clocks of an SM for one instruction. The tensor cores take N / 2. Shared memory gives 128 bytes a clock:
// A from shared memory reads 2048 + 32 N bytes, 16 + N / 4 clocks, which is more than N / 2 below N = 64; A in
// registers reads N / 4. So: from shared memory 20, 24, 32, 48, 64, 96, 128 for N = 16, 32, 64, 96, 128, 192, 256; from
// registers N / 2 everywhere. If what TMA writes takes its share of the same 128 bytes: at N = 64 from shared memory
// (128 bytes a clock) every byte of TMA slows the tensor cores down; at N = 128 (96 bytes) 32 bytes a clock are free,
// at N = 256 (80) 48.
#include <finegemm/core/fragment.h>

#include <finegemm/device/ptx/tma.cuh>
#include <finegemm/device/ptx/wgmma.cuh>

#include "probe.cuh"
// wgmma_accumulate(float (&d)[N / 2], a, uint64_t b), a being a descriptor or 16 registers; written by run.py.
#include "wgmma_accumulate.inl"

namespace probe {

constexpr uint32_t kK = 128;                         // of one batch: four instructions
constexpr uint32_t kCopyBytes = 16384, kCopies = 4;  // of TMA, in flight
constexpr int kBatches = 4;                          // of a group

enum class Operand { Shared, Registers };

struct Clocks {
    long long math, copied_bytes, copying;
};

/// Where a byte of 128-byte rows lies after swizzling: the 16-byte chunks of row r are permuted by r % 8. PTX ISA,
/// "Tensor swizzling modes".
__host__ __device__ constexpr uint32_t swizzled(uint32_t offset) { return offset ^ ((offset >> 7 & 7) << 4); }

/// What registers hold of A [64 x 128], row-major with the swizzle, for the four steps of K. PTX ISA, wgmma, the
/// register fragment of A for .k32.
__device__ void load_fragment(uint32_t (&a)[16], const char* tile) {
    const uint32_t thread = threadIdx.x % 128, row = thread / 32 * 16 + thread % 32 / 4, col = thread % 4 * 4;
    for (uint32_t i = 0; i < 16; ++i) {
        const uint32_t r = row + i % 2 * 8, c = i / 4 * 32 + i % 4 / 2 * 16 + col;
        a[i] = *reinterpret_cast<const uint32_t*>(tile + swizzled(r * kK + c));
    }
}

template <Operand From, int N>
__device__ void multiply(float (&d)[N / 2], const uint32_t (&fragment)[16], uint64_t a, uint64_t b) {
    if constexpr (From == Operand::Shared) wgmma_accumulate(d, a, b);
    else wgmma_accumulate(d, fragment, b);
}

/// One product of 64 x N x 128, to see that descriptors and fragments are right.
template <Operand From, int N>
__global__ void __launch_bounds__(128) once(const char* a_tile, const char* b_tile, float* out) {
    char* shared = aligned_shared();
    for (uint32_t i = threadIdx.x; i < (64 + N) * kK; i += 128) {
        const uint32_t at = i < 64 * kK ? i : i - 64 * kK;
        shared[i - at + swizzled(at)] = i < 64 * kK ? a_tile[at] : b_tile[at];
    }
    ptx::fence_proxy_async_shared();
    __syncthreads();
    uint32_t fragment[16];
    float d[N / 2] = {};
    load_fragment(fragment, shared);
    const uint32_t base = ptx::smem_address(shared).bits;
    ptx::wgmma_fence();
    multiply<From, N>(d, fragment, wgmma_descriptor(base), wgmma_descriptor(base + 64 * kK));
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    for (uint32_t i = 0; i < N / 2; ++i) {
        ptx::pin(d[i]);
        const RowCol at = wgmma_accumulator(threadIdx.x, i);
        out[at.row * N + at.col] = d[i];
    }
}

/// Fills shared memory from an L2-resident buffer until `stop`, as fast as it goes.
__device__ void copy_until(volatile int* stop, char* to, uint64_t* barriers, const char* from, Clocks& clocks) {
    const ptx::SmemAddr target = ptx::smem_address(to), barrier = ptx::smem_address(barriers);
    const long long start = now();
    long long landed = 0;
    for (uint32_t i = 0;; ++i) {
        const uint32_t slot = i % kCopies;
        if (i >= kCopies) {
            wait(barrier + slot * 8, (i / kCopies - 1) & 1);
            landed += kCopyBytes;
        }
        if (*stop) {
            for (uint32_t left = 1; left < kCopies; ++left) {  // the others that are in flight
                const uint32_t j = i + left;
                if (j >= kCopies) wait(barrier + j % kCopies * 8, (j / kCopies - 1) & 1);
            }
            break;
        }
        ptx::mbarrier_arrive_expect_tx(barrier + slot * 8, kCopyBytes);
        bulk_load(target + slot * kCopyBytes, from + (i % 64) * kCopyBytes, kCopyBytes, barrier + slot * 8);
    }
    clocks.copied_bytes = landed;
    clocks.copying = now() - start;
}

/// `warpgroups` of math, and one warp that copies if `copying`. Each warpgroup has its A; B is common.
template <Operand From, int N>
__global__ void __launch_bounds__(288) rate(int batches, bool copying, const char* from, Clocks* clocks, float* sink) {
    __shared__ uint64_t barriers[kCopies];
    __shared__ int finished;
    char* shared = aligned_shared();
    const uint32_t warpgroups = blockDim.x / 128, warpgroup = threadIdx.x / 128;
    char* const landing = shared + (64 * warpgroups + N) * kK;
    for (uint32_t i = threadIdx.x; i < (64 * warpgroups + N) * kK; i += blockDim.x) shared[i] = 0;
    if (threadIdx.x == 0) {
        finished = 0;
        for (uint32_t i = 0; i < kCopies; ++i) ptx::mbarrier_init(ptx::smem_address(barriers + i), 1);
        ptx::fence_mbarrier_init();
    }
    ptx::fence_proxy_async_shared();
    __syncthreads();
    if (warpgroup == warpgroups) {
        if (copying && threadIdx.x % 32 == 0) copy_until(&finished, landing, barriers, from, clocks[blockIdx.x]);
        return;
    }
    uint32_t fragment[16];
    float d[N / 2] = {};
    load_fragment(fragment, shared + warpgroup * 64 * kK);
    const uint32_t base = ptx::smem_address(shared).bits;
    const uint64_t a = wgmma_descriptor(base + warpgroup * 64 * kK), b = wgmma_descriptor(base + warpgroups * 64 * kK);
    ptx::named_barrier_sync(1, warpgroups * 128);
    const long long start = now();
#pragma unroll 1
    for (int i = 0; i < batches; ++i) {
        ptx::wgmma_fence();
#pragma unroll
        for (int j = 0; j < kBatches; ++j) multiply<From, N>(d, fragment, a, b);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<1>();  // so that the tensor cores always have the next batch
    }
    ptx::wgmma_wait_group<0>();
    for (float& x : d) ptx::pin(x);
    ptx::named_barrier_sync(1, warpgroups * 128);
    const long long end = now();
    if (threadIdx.x == 0) {
        clocks[blockIdx.x].math = end - start;
        *const_cast<volatile int*>(&finished) = 1;
    }
    float sum = 0;
    for (const float x : d) sum += x;
    sink[threadIdx.x] = sum;
}

/// Small values whose products and sums the tensor core keeps exactly.
constexpr struct {
    unsigned char code;
    float value;
} kValues[] = {{0x00, 0}, {0x38, 1}, {0xb8, -1}, {0x40, 2}, {0xc0, -2}, {0x30, 0.5f}, {0xb0, -0.5f}};

template <Operand From, int N>
bool right() {
    std::vector<unsigned char> a(64 * kK), b(N * kK);
    std::vector<float> av(a.size()), bv(b.size()), out(64 * N);
    uint32_t state = 1;
    const auto fill = [&](auto& codes, auto& values) {
        for (size_t i = 0; i < codes.size(); ++i) {
            state = state * 1664525 + 1013904223;
            codes[i] = kValues[(state >> 16) % 7].code;
            values[i] = kValues[(state >> 16) % 7].value;
        }
    };
    fill(a, av), fill(b, bv);
    char *da, *db;
    float* dout;
    CHECK(cudaMalloc(&da, a.size())), CHECK(cudaMalloc(&db, b.size())), CHECK(cudaMalloc(&dout, out.size() * 4));
    CHECK(cudaMemcpy(da, a.data(), a.size(), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(db, b.data(), b.size(), cudaMemcpyHostToDevice));
    allow_shared(once<From, N>, (64 + N) * kK + 1024);
    once<From, N><<<1, 128, (64 + N) * kK + 1024>>>(da, db, dout);
    CHECK(cudaMemcpy(out.data(), dout, out.size() * 4, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(da)), CHECK(cudaFree(db)), CHECK(cudaFree(dout));
    for (uint32_t r = 0; r < 64; ++r)
        for (uint32_t c = 0; c < N; ++c) {
            float sum = 0;
            for (uint32_t k = 0; k < kK; ++k) sum += av[r * kK + k] * bv[c * kK + k];
            if (sum != out[r * N + c]) return false;
        }
    return true;
}

template <Operand From, int N>
void measure(std::vector<Row>& rows, const char* buffer, float* sink, int sms) {
    const bool correct = right<From, N>();
    for (const int warpgroups : {1, 2})
        for (const int grid : {1, sms})
            for (const bool copying : {false, true}) {
                constexpr int kIterations = 2000;
                const size_t bytes = (64 * warpgroups + N) * kK + kCopies * kCopyBytes + 1024;
                allow_shared(rate<From, N>, bytes);
                Clocks* clocks;
                CHECK(cudaMallocManaged(&clocks, sms * sizeof *clocks));
                for (int repeat = 0; repeat < 2; ++repeat) {
                    rate<From, N><<<grid, warpgroups * 128 + 32, bytes>>>(kIterations, copying, buffer, clocks, sink);
                    CHECK(cudaDeviceSynchronize());
                }
                std::vector<double> each, copied;
                for (int i = 0; i < grid; ++i) {
                    each.push_back(double(clocks[i].math) / (kIterations * kBatches * 4 * warpgroups));
                    if (copying) copied.push_back(double(clocks[i].copied_bytes) / clocks[i].copying);
                }
                rows.push_back(Row()
                                   .add("n", N)
                                   .add("a_in", From == Operand::Shared ? "shared memory" : "registers")
                                   .add("warpgroups", warpgroups)
                                   .add("ctas", grid)
                                   .add("right", correct)
                                   .add("clocks", median(each))
                                   .add("of_tensor_rate", N / 2 / median(each))
                                   .add("tma_bytes_per_clock", copying ? median(copied) : 0));
                CHECK(cudaFree(clocks));
            }
}

template <Operand From, int... Widths>
void measure_all(std::vector<Row>& rows, const char* buffer, float* sink, int sms) {
    (measure<From, Widths>(rows, buffer, sink, sms), ...);
}

}  // namespace probe

int main() {
    const cudaDeviceProp gpu = probe::require_hopper();
    char* buffer;
    CHECK(cudaMalloc(&buffer, 64 * probe::kCopyBytes));
    CHECK(cudaMemset(buffer, 0, 64 * probe::kCopyBytes));
    float* sink;
    CHECK(cudaMalloc(&sink, 256 * sizeof *sink));
    std::vector<probe::Row> rows;
    using enum probe::Operand;
    probe::measure_all<Shared, 16, 32, 64, 96, 128, 192, 256>(rows, buffer, sink, gpu.multiProcessorCount);
    // Not 256: ptxas 13.0 then waits for each instruction.
    probe::measure_all<Registers, 16, 32, 64, 96, 128, 192>(rows, buffer, sink, gpu.multiProcessorCount);
    probe::print("wgmma", rows);
}
