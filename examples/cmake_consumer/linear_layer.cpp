// A linear layer in FP8 on the CPU: weights are quantised once, activations for each step; the result is checked.
#include <finegemm/finegemm.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

using namespace finegemm;

namespace {

constexpr int64_t kTokens = 64, kOut = 384, kIn = 1024, kBlock = 128;

// The library wants rows of A, B and D aligned to 16 bytes, which operator new gives.
template <typename T>
Matrix matrix(std::vector<T>& memory, DType dtype, int64_t rows, int64_t cols) {
    memory.resize(static_cast<size_t>(rows * cols));
    return {.data = memory.data(), .dtype = dtype, .rows = rows, .cols = cols, .row_stride = cols};
}

void randomise(std::vector<float>& values, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& v : values) v = normal(random);
}

float float_of_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

double relative_error(const std::vector<float>& x, const std::vector<float>& w, const std::vector<uint16_t>& y) {
    double errors = 0, values = 0;
    for (int64_t m = 0; m < kTokens; ++m)
        for (int64_t n = 0; n < kOut; ++n) {
            double exact = 0;
            for (int64_t k = 0; k < kIn; ++k)
                exact += double{x[static_cast<size_t>(m * kIn + k)]} * w[static_cast<size_t>(n * kIn + k)];
            const double error = float_of_bf16(y[static_cast<size_t>(m * kOut + n)]) - exact;
            errors += error * error;
            values += exact * exact;
        }
    return std::sqrt(errors / values);
}

int run() {
    std::vector<float> x_data, w_data, sfa_data, sfb_data;
    std::vector<uint8_t> a_data, b_data;
    std::vector<uint16_t> y_data;
    const Matrix x = matrix(x_data, DType::F32, kTokens, kIn), w = matrix(w_data, DType::F32, kOut, kIn);
    randomise(x_data, 1);
    randomise(w_data, 2);

    Context context;
    const Matrix b = matrix(b_data, DType::E4M3, kOut, kIn);
    const Matrix sfb = matrix(sfb_data, DType::F32, kOut / kBlock, kIn / kBlock);
    quantize_blocks(context, w, b, sfb);

    const Matrix a = matrix(a_data, DType::E4M3, kTokens, kIn);
    const Matrix sfa = matrix(sfa_data, DType::F32, kTokens, kIn / kBlock);
    quantize_rows(context, x, a, sfa);
    gemm(context, {.a = a, .sfa = sfa, .b = b, .sfb = sfb, .d = matrix(y_data, DType::BF16, kTokens, kOut)});

    const double off = relative_error(x_data, w_data, y_data);
    std::printf("%d x %d x %d: relative error %.4f against float\n", int{kTokens}, int{kOut}, int{kIn}, off);
    return off < 0.06 ? 0 : 1;  // two roundings to e4m3
}

}  // namespace

int main() {
    try {
        return run();
    } catch (const Error& e) {
        std::fprintf(stderr, "error %d: %s\n", static_cast<int>(e.code()), e.what());
        return 1;
    }
}
