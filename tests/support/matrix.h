// Matrices for tests: owned, with guard bytes around them. Layer tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include <finegemm/core/fp8.h>
#include <finegemm/gemm.h>

namespace finegemm::test {

/// Rows are `padding` elements longer than the matrix; padding and surroundings hold a pattern that must survive.
template <typename T>
class Buffer {
public:
    static constexpr int64_t kGuard = 64;
    static constexpr uint8_t kPattern = 0xa5;

    Buffer(DType dtype, int64_t rows, int64_t cols, int64_t padding = 0)
        : dtype_(dtype),
          rows_(rows),
          cols_(cols),
          stride_(cols + padding),
          bytes_(static_cast<size_t>((rows * stride_ + 2 * kGuard) * sizeof(T)) + 64, kPattern) {}

    T* data() {
        const auto address = reinterpret_cast<uintptr_t>(bytes_.data()) + kGuard * sizeof(T);
        return reinterpret_cast<T*>((address + 63) / 64 * 64);
    }
    T& at(int64_t r, int64_t c) { return data()[r * stride_ + c]; }
    Matrix view() { return {data(), dtype_, rows_, cols_, stride_, 1, {}}; }

    bool surroundings_intact() {
        std::vector<uint8_t> mask(bytes_.size(), 0);
        const size_t base = static_cast<size_t>(reinterpret_cast<uint8_t*>(data()) - bytes_.data());
        for (int64_t r = 0; r < rows_; ++r)
            std::memset(&mask[base + static_cast<size_t>(r * stride_) * sizeof(T)], 1,
                        static_cast<size_t>(cols_) * sizeof(T));
        for (size_t i = 0; i < bytes_.size(); ++i)
            if (!mask[i] && bytes_[i] != kPattern) return false;
        return true;
    }

private:
    DType dtype_;
    int64_t rows_, cols_, stride_;
    std::vector<uint8_t> bytes_;
};

/// Operands of one GEMM with random values, scales row-major or MN-major.
struct Problem {
    int64_t m, n, k;
    Buffer<uint8_t> a, b;
    Buffer<float> sfa, sfb;
    Buffer<uint16_t> d;
    bool mn_major, row_b_scales;

    Problem(int64_t m_, int64_t n_, int64_t k_, uint32_t seed, bool mn_major_ = false, int64_t padding = 0,
            bool row_b_scales_ = false)
        : m(m_),
          n(n_),
          k(k_),
          a(DType::E4M3, m, k, padding),
          b(DType::E4M3, n, k, padding),
          sfa(DType::F32, mn_major_ ? blocks(k) : m, mn_major_ ? m : blocks(k), padding / 16),
          sfb(DType::F32, mn_major_ ? blocks(k) : rows_of_sfb(n, row_b_scales_),
              mn_major_ ? rows_of_sfb(n, row_b_scales_) : blocks(k), padding / 16),
          d(DType::BF16, m, n, padding / 2),
          mn_major(mn_major_),
          row_b_scales(row_b_scales_) {
        std::mt19937 random(seed);
        std::normal_distribution<float> normal(0, 100);
        std::uniform_real_distribution<float> scale(0.001f, 0.01f);
        for (int64_t r = 0; r < m; ++r)
            for (int64_t c = 0; c < k; ++c) a.at(r, c) = e4m3_of_float(normal(random));
        for (int64_t r = 0; r < n; ++r)
            for (int64_t c = 0; c < k; ++c) b.at(r, c) = e4m3_of_float(normal(random));
        for (auto* s : {&sfa, &sfb}) {
            const Matrix v = s->view();
            for (int64_t r = 0; r < v.rows; ++r)
                for (int64_t c = 0; c < v.cols; ++c) s->at(r, c) = scale(random);
        }
    }
    static int64_t blocks(int64_t x) { return (x + 127) / 128; }
    static int64_t rows_of_sfb(int64_t n, bool row_b_scales) { return row_b_scales ? n : blocks(n); }

    static ConstMatrix scales(Buffer<float>& s, bool transposed) {
        ConstMatrix v = s.view();
        if (transposed) {
            std::swap(v.rows, v.cols);
            std::swap(v.row_stride, v.col_stride);
        }
        return v;
    }
    GemmArgs args() { return {a.view(), scales(sfa, mn_major), b.view(), scales(sfb, mn_major), d.view()}; }
    float sfa_at(int64_t r, int64_t kb) { return mn_major ? sfa.at(kb, r) : sfa.at(r, kb); }
    /// The scale of row n of B.
    float sfb_at(int64_t n_, int64_t kb) {
        const int64_t row = row_b_scales ? n_ : n_ / 128;
        return mn_major ? sfb.at(kb, row) : sfb.at(row, kb);
    }
};

}  // namespace finegemm::test
