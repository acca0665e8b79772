// Operands of K-grouped GEMMs for tests, with nothing but NaN where k has no group. Layer tests.
#pragma once

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include <finegemm/gemm.h>

#include "support/matrix.h"

namespace finegemm::test {

/// Offsets with empty groups among them, and k without a group before the first and behind the last one.
inline std::vector<int32_t> random_k_offsets(int64_t groups, int32_t blocks, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<int32_t> offsets;
    for (int64_t i = 0; i <= groups; ++i)
        offsets.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(blocks + 1)) * 128);
    std::ranges::sort(offsets);
    return offsets;
}

/// `padding`: elements between rows; `gap`: rows between the matrices of D.
struct KGroupedProblem {
    int64_t m, n, k, gap;
    std::vector<int32_t> offsets;
    Buffer<uint8_t> a, b;
    Buffer<float> sfa, sfb, d;

    KGroupedProblem(int64_t m_, int64_t n_, int64_t k_, std::vector<int32_t> offsets_, uint32_t seed,
                    int64_t padding = 0, int64_t gap_ = 0)
        : m(m_),
          n(n_),
          k(k_),
          gap(gap_),
          offsets(std::move(offsets_)),
          a(DType::E4M3, m, k, padding),
          b(DType::E4M3, n, k, padding),
          sfa(DType::F32, m, k / 128, padding / 16),
          sfb(DType::F32, n, k / 128, padding / 16),
          d(DType::F32, groups() * (m + gap), n, padding / 4) {
        std::mt19937 random(seed);
        fill(a, sfa, m, random);
        fill(b, sfb, n, random);
    }
    int64_t groups() const { return static_cast<int64_t>(offsets.size()) - 1; }
    int64_t begin(int64_t g) const { return offsets[static_cast<size_t>(g)]; }
    int64_t length(int64_t g) const { return begin(g + 1) - begin(g); }
    float& d_at(int64_t g, int64_t r, int64_t c) { return d.at(g * (m + gap) + r, c); }
    void fill_d(float value) {
        for (int64_t r = 0; r < groups() * (m + gap); ++r) std::fill_n(&d.at(r, 0), n, value);
    }
    KGroupedGemmArgs args() {
        Matrix one = d.view();
        one.rows = m;
        return {.a = a.view(),
                .sfa = sfa.view(),
                .b = b.view(),
                .sfb = sfb.view(),
                .d = {one, groups(), (m + gap) * one.row_stride},
                .offsets = offsets.data(),
                .groups = groups(),
                .offsets_device = {}};
    }
    /// The GEMM of one group, for valid offsets.
    GemmArgs dense(int64_t g) {
        GemmArgs one{a.view(), sfa.view(), b.view(), sfb.view(), args().d.matrix};
        one.a.data = &a.at(0, begin(g));
        one.b.data = &b.at(0, begin(g));
        one.sfa.data = &sfa.at(0, begin(g) / 128);
        one.sfb.data = &sfb.at(0, begin(g) / 128);
        one.d.data = &d_at(g, 0, 0);
        one.a.cols = one.b.cols = length(g);
        one.sfa.cols = one.sfb.cols = length(g) / 128;
        return one;
    }

private:
    void fill(Buffer<uint8_t>& codes, Buffer<float>& scales, int64_t rows, std::mt19937& random) {
        std::normal_distribution<float> normal(0, 100);
        std::uniform_real_distribution<float> scale(0.001f, 0.01f);
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t kb = 0; kb < k / 128; ++kb) {
                const bool used = kb * 128 >= offsets.front() && kb * 128 < offsets.back();
                for (int64_t c = kb * 128; c < (kb + 1) * 128; ++c)
                    codes.at(r, c) = used ? e4m3_of_float(normal(random)) : 0x7f;
                scales.at(r, kb) = used ? scale(random) : std::numeric_limits<float>::quiet_NaN();
            }
    }
};

/// A's and B's elements of a problem as blocks: each group's k one behind the other.
struct KBlocks {
    std::vector<uint8_t> a, b;

    explicit KBlocks(KGroupedProblem& p) : a(of(p, p.a, p.m)), b(of(p, p.b, p.n)) {}
    KGroupedGemmArgs args(KGroupedProblem& p) const {
        KGroupedGemmArgs args = p.args();
        args.a.data = a.data(), args.b.data = b.data();
        args.a.row_stride = args.b.row_stride = p.k;
        args.layout = KLayout::Blocks;
        return args;
    }

private:
    static std::vector<uint8_t> of(KGroupedProblem& p, Buffer<uint8_t>& x, int64_t rows) {
        std::vector<uint8_t> blocks(static_cast<size_t>(rows * p.k), 0x7f);
        for (int64_t g = 0; g < p.groups(); ++g)
            for (int64_t r = 0; r < rows && p.length(g) > 0; ++r)
                std::copy_n(&x.at(r, p.begin(g)), p.length(g), &blocks[size_t(rows * p.begin(g) + r * p.length(g))]);
        return blocks;
    }
};

}  // namespace finegemm::test
