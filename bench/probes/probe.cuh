// What the probes share: errors, rows of JSON, and the few device functions that the library has no need of. Layer
// bench.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include <finegemm/core/wgmma_desc.h>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/ptx/mbarrier.cuh>

#define CHECK(call) probe::check((call), #call)

namespace probe {

using namespace finegemm;

constexpr int kSkipped = 77;

inline void check(cudaError_t e, const char* what) {
    if (e == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e));
    std::exit(1);
}

/// Ends the program when there is no GPU of compute capability 9.0.
inline cudaDeviceProp require_hopper() {
    cudaDeviceProp gpu{};
    if (cudaGetDeviceProperties(&gpu, 0) == cudaSuccess && gpu.major == 9 && gpu.minor == 0) return gpu;
    std::fprintf(stderr, "skipped: no Hopper GPU\n");
    std::exit(kSkipped);
}

/// One row of a probe's results.
class Row {
public:
    Row& add(const char* name, double value) { return put(name, number(value)); }
    Row& add(const char* name, const std::string& value) { return put(name, '"' + value + '"'); }
    const std::string& text() const { return text_; }

private:
    static std::string number(double value) {
        char buffer[32];
        std::snprintf(buffer, sizeof buffer, "%.6g", value);
        return buffer;
    }
    Row& put(const char* name, const std::string& value) {
        text_ += (text_.empty() ? "\"" : ", \"") + std::string(name) + "\": " + value;
        return *this;
    }
    std::string text_;
};

/// The probe's one line.
inline void print(const char* probe, const std::vector<Row>& rows) {
    std::printf("{\"probe\": \"%s\", \"rows\": [", probe);
    for (size_t i = 0; i < rows.size(); ++i) std::printf("%s{%s}", i ? ", " : "", rows[i].text().c_str());
    std::printf("]}\n");
}

inline double median(std::vector<double> x) {
    std::sort(x.begin(), x.end());
    return x[x.size() / 2];
}

template <typename Kernel>
void allow_shared(Kernel kernel, size_t bytes) {
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
}

__device__ inline long long now() {
    long long t;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(t)::"memory");
    return t;
}

__device__ inline void wait(ptx::SmemAddr barrier, uint32_t parity) {
    while (!ptx::mbarrier_try_wait(barrier, parity)) {}
}

/// Copies bytes that are contiguous, both addresses and the number a multiple of 16; they count on `barrier`.
__device__ inline void bulk_load(ptx::SmemAddr to, const void* from, uint32_t bytes, ptx::SmemAddr barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to.bits),
        "l"(from), "r"(bytes), "r"(barrier.bits)
        : "memory");
}

/// Dynamic shared memory from the first multiple of 1024, as the 128-byte swizzle wants it. Ask for 1024 bytes more.
__device__ inline char* aligned_shared() {
    extern __shared__ char raw[];
    return raw + (1024 - ptx::smem_address(raw).bits % 1024) % 1024;
}

}  // namespace probe
