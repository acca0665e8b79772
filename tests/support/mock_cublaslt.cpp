// A stand-in for cuBLASLt on the mock driver: takes what the real one takes, computes with plain loops. Layer tests.
// FINEGEMM_MOCK_CUBLASLT=old: it is version 12.4; =wrong: its block-scaled results are.
// Types are declared as cublasLt.h has them, not taken from the library: a wrong declaration there shows up here.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <finegemm/core/fp8.h>

#include "mock_driver.h"

namespace {

using finegemm::mock::State;

constexpr int kSuccess = 0, kInvalidValue = 7, kNotSupported = 15;

struct Layout {
    int type;
    uint64_t rows, cols;
    int64_t stride;
};
struct Descriptor {
    int transposed_a = 0, mode_a = 0, mode_b = 0;
    const float *scale_a = nullptr, *scale_b = nullptr;
    bool fast = false;
    bool blocks() const { return mode_a != 0; }
};
struct Algorithm {
    uint64_t data[8];
};
struct Result {
    Algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

bool setting(std::string_view value) {
    const char* set = std::getenv("FINEGEMM_MOCK_CUBLASLT");
    return set && set == value;
}

template <typename T>
int read(T& to, const void* from, size_t bytes) {
    if (bytes != sizeof to) return kInvalidValue;
    std::memcpy(&to, from, bytes);
    return kSuccess;
}

/// K lies first in both operands; scales are one for each tensor, or 128x128 for the first and 1x128 for the second.
bool supported(const Descriptor& d, const Layout& a, const Layout& b, const Layout& result) {
    constexpr int kE4m3 = 28, kBf16 = 14;
    const bool modes = (d.mode_a == 0 && d.mode_b == 0) || (d.mode_a == 5 && d.mode_b == 4 && !d.fast);
    return modes && d.transposed_a == 1 && a.type == kE4m3 && b.type == kE4m3 && result.type == kBf16 &&
           a.rows == b.rows && a.rows % 16 == 0 && a.cols == result.rows && b.cols == result.cols &&
           result.rows % 16 == 0;
}

/// The mock driver's clock, when that is the driver.
void advance_clock(double us) {
    const char* driver = std::getenv("FINEGEMM_DRIVER");
    void* library = driver ? dlopen(driver, RTLD_NOW | RTLD_NOLOAD) : nullptr;
    const auto state = library ? reinterpret_cast<State* (*)()>(dlsym(library, "mock_state")) : nullptr;
    if (state) state()->clock_us += us;
}

}  // namespace

#define MOCK extern "C" __attribute__((visibility("default")))

MOCK size_t cublasLtGetVersion() { return setting("old") ? 120400 : 130002; }
MOCK const char* cublasLtGetStatusName(int status) {
    return status == kInvalidValue ? "CUBLAS_STATUS_INVALID_VALUE" : "CUBLAS_STATUS_MOCK";
}
MOCK int cublasLtCreate(int** handle) { return *handle = new int, kSuccess; }
MOCK int cublasLtDestroy(int* handle) { return delete handle, kSuccess; }
MOCK int cublasLtMatmulDescCreate(Descriptor** made, int compute, int scale) {
    if (compute != 68 || scale != 0) return kInvalidValue;
    return *made = new Descriptor, kSuccess;
}
MOCK int cublasLtMatmulDescDestroy(Descriptor* d) { return delete d, kSuccess; }
MOCK int cublasLtMatmulDescSetAttribute(Descriptor* d, int attribute, const void* value, size_t bytes) {
    switch (attribute) {
        case 3: return read(d->transposed_a, value, bytes);
        case 17: return read(d->scale_a, value, bytes);
        case 18: return read(d->scale_b, value, bytes);
        case 25: return read(d->fast, value, bytes);
        case 31: return read(d->mode_a, value, bytes);
        case 32: return read(d->mode_b, value, bytes);
        default: return kInvalidValue;
    }
}
MOCK int cublasLtMatrixLayoutCreate(Layout** made, int type, uint64_t rows, uint64_t cols, int64_t stride) {
    return *made = new Layout{type, rows, cols, stride}, kSuccess;
}
MOCK int cublasLtMatrixLayoutDestroy(Layout* layout) { return delete layout, kSuccess; }
MOCK int cublasLtMatmulPreferenceCreate(size_t** made) { return *made = new size_t(0), kSuccess; }
MOCK int cublasLtMatmulPreferenceDestroy(size_t* preference) { return delete preference, kSuccess; }
MOCK int cublasLtMatmulPreferenceSetAttribute(size_t* preference, int attribute, const void* value, size_t bytes) {
    return attribute == 1 ? read(*preference, value, bytes) : kInvalidValue;
}
MOCK int cublasLtMatmulAlgoGetHeuristic(int*, Descriptor* d, Layout* a, Layout* b, Layout*, Layout* result,
                                        size_t* workspace, int wanted, Result* results, int* found) {
    *found = 0;
    if (wanted < 1) return kInvalidValue;
    if (!supported(*d, *a, *b, *result)) return kNotSupported;
    *found = 1;
    *results = {.algorithm = {{42}}, .workspace = *workspace, .state = kSuccess, .waves = 1, .reserved = {}};
    return kSuccess;
}
MOCK int cublasLtMatmul(int*, Descriptor* d, const float* alpha, const uint8_t* a, Layout* la, const uint8_t* b,
                        Layout* lb, const float* beta, const uint16_t*, Layout*, uint16_t* out, Layout* lo,
                        const Algorithm* algorithm, void* workspace, size_t, void* stream) {
    if (*alpha != 1 || *beta != 0 || algorithm->data[0] != 42 || !workspace || stream) return kInvalidValue;
    const uint64_t k_blocks = (la->rows + 127) / 128, blocks_stride = (k_blocks + 3) / 4 * 4;
    for (uint64_t col = 0; col < lo->cols; ++col)
        for (uint64_t row = 0; row < lo->rows; ++row) {
            float sum = 0;
            for (uint64_t k = 0; k < la->rows; ++k) {
                const uint64_t at_a = d->blocks() ? row / 128 * blocks_stride + k / 128 : 0;
                const uint64_t at_b = d->blocks() ? k / 128 * lb->cols + col : 0;
                sum += finegemm::float_of_e4m3(a[static_cast<int64_t>(row) * la->stride + static_cast<int64_t>(k)]) *
                       finegemm::float_of_e4m3(b[static_cast<int64_t>(col) * lb->stride + static_cast<int64_t>(k)]) *
                       d->scale_a[at_a] * d->scale_b[at_b];
            }
            if (d->blocks() && setting("wrong")) sum *= 2;
            out[static_cast<int64_t>(col) * lo->stride + static_cast<int64_t>(row)] = finegemm::bf16_of_float(sum);
        }
    advance_clock(d->blocks() ? 3000 : 2000);
    return kSuccess;
}
