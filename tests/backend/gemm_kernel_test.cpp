// The text of GEMM kernels without scales, run on the host for every layout of A and B: launches are the backend's, and
// D has the bits of sums that are exact. Layer tests.
#include <gtest/gtest.h>

#include "plan/elements.h"
#include "plan/fields.h"
#include "support/gemm_kernel.h"
#include "support/matrix.h"
#include "support/mock_driver.h"
#include "support/random.h"
#include "support/random_cases.h"

namespace finegemm {
namespace {

constexpr Major kK = Major::K, kMn = Major::MN;

/// Small whole numbers, row-major or the transpose of that, in a stack of `count`.
struct Numbers {
    test::Buffer<uint16_t> memory;
    Major major;
    int64_t rows, count;

    Numbers(DType dtype, int64_t matrices, int64_t rows_, int64_t cols, Major layout, test::Random& random)
        : memory(dtype, matrices * (layout == kMn ? cols : rows_), layout == kMn ? rows_ : cols, random.any(0, 2) * 8),
          major(layout),
          rows(rows_),
          count(matrices) {
        const Matrix all = memory.view();
        for (int64_t r = 0; r < all.rows; ++r)
            for (int64_t c = 0; c < all.cols; ++c) {
                const auto x = static_cast<float>(random.any(-3, 3));
                memory.at(r, c) = dtype == DType::F16 ? f16_of_float(x) : bf16_of_float(x);
            }
    }
    ConstStack stack() {
        Matrix m = memory.view();
        m.rows /= count;
        const int64_t stride = m.rows * m.row_stride;
        if (major == kMn) std::swap(m.rows, m.cols), std::swap(m.row_stride, m.col_stride);
        m.device = {DeviceType::Cuda, 0};
        return {m, count, stride};
    }
    float at(int64_t matrix, int64_t row, int64_t k) {
        const ConstStack x = stack();
        const int64_t i = matrix * x.stride + row * x.matrix.row_stride + k * x.matrix.col_stride;
        const uint16_t code = static_cast<const uint16_t*>(x.matrix.data)[i];
        return x.matrix.dtype == DType::F16 ? float_of_f16(code) : float_of_bf16(code);
    }
};

template <typename T>
float value_of(T code, DType) {
    return code;
}
float value_of(uint16_t code, DType dtype) { return dtype == DType::F16 ? float_of_f16(code) : float_of_bf16(code); }
float rounded(float x, DType dtype) {
    return dtype == DType::F32   ? x
           : dtype == DType::F16 ? float_of_f16(f16_of_float(x))
                                 : float_of_bf16(bf16_of_float(x));
}

template <Grouping G, Element E, Output D, Major A, Major B>
constexpr GemmConfig config(uint32_t tile_m, uint32_t tile_n, uint32_t stages, uint32_t k_slices = 1,
                            uint32_t k_splits = 1, Finish finish = Finish::None) {
    return {.tile_m = tile_m,
            .tile_n = tile_n,
            .stages = stages,
            .math_warpgroups = (tile_m > 192 ? 2 : tile_m / 64) * k_slices,
            .cluster = k_splits,
            .cluster_use = k_splits > 1 ? ClusterUse::SplitK : ClusterUse::None,
            .grouping = G,
            .a = unscaled(E, A),
            .b = unscaled(E, B),
            .output = D,
            .finish = finish};
}
template <Element E, Output D, Major A, Major B>
constexpr GemmConfig affine_config(uint32_t tile_m, uint32_t tile_n, uint32_t stages) {
    return config<Grouping::None, E, D, A, B>(tile_m, tile_n, stages, 1, 1, Finish::Affine);
}
/// Such kernels write the product alone, too, where A is MN-major.
template <Element E, Output D, Major A, Major B>
constexpr GemmConfig rows_config(uint32_t tile_m, uint32_t tile_n, uint32_t stages) {
    return config<Grouping::Rows, E, D, A, B>(tile_m, tile_n, stages, 1, 1, Finish::Affine);
}
template <Element E, Output D, Major A, Major B>
constexpr GemmConfig gaps_config(uint32_t tile_m, uint32_t tile_n, uint32_t stages) {
    return config<Grouping::None, E, D, A, B>(tile_m, tile_n, stages, 1, 1, Finish::HeadGaps);
}

class GemmKernel : public ::testing::Test {
protected:
    mock::Driver mock{FINEGEMM_MOCK_DRIVER};
    std::shared_ptr<const cuda::Driver> driver = cuda::Driver::open(FINEGEMM_MOCK_DRIVER);

    void TearDown() override { ptx::host_elements_are_f16 = false; }

    template <GemmConfig C>
    void run(const Call& call, uint32_t ctas, uint32_t seed) {
        ptx::host_elements_are_f16 = C.a.element == Element::F16;
        test::run_kernel<C>(*driver, call, ctas, seed);
    }

    /// D of `rows` rows and `matrices` matrices, and what it should have: `wanted(matrix, row, col, old)`.
    template <typename T, typename Wanted>
    static void expect(test::Buffer<T>& d, DType dtype, int64_t rows, const std::vector<T>& old, const Wanted& wanted) {
        EXPECT_TRUE(d.surroundings_intact());
        const Matrix all = d.view();
        for (int64_t r = 0; r < all.rows; ++r)
            for (int64_t c = 0; c < all.cols; ++c) {
                const float before = value_of(old[static_cast<size_t>(r * all.cols + c)], dtype);
                ASSERT_EQ(value_of(d.at(r, c), dtype), wanted(r / rows, r % rows, c, before))
                    << "matrix " << r / rows << ", row " << r % rows << ", column " << c;
            }
    }
    template <typename T>
    static std::vector<T> fill(test::Buffer<T>& d) {
        const Matrix all = d.view();
        std::vector<T> old;
        for (int64_t r = 0; r < all.rows; ++r)
            for (int64_t c = 0; c < all.cols; ++c) {
                const auto x = static_cast<float>((r * 7 + c) % 13);
                if constexpr (sizeof(T) == 4) d.at(r, c) = x;
                else d.at(r, c) = all.dtype == DType::F16 ? f16_of_float(x) : bf16_of_float(x);
                old.push_back(d.at(r, c));
            }
        return old;
    }
    static float sum(Numbers& a, int64_t a_matrix, int64_t row, Numbers& b, int64_t group, int64_t col, int64_t begin,
                     int64_t end) {
        float sum = 0;
        for (int64_t k = begin; k < end; ++k) sum += a.at(a_matrix, row, k) * b.at(group, col, k);
        return sum;
    }

    /// One product of any extents, with a ragged last tile in each direction.
    template <GemmConfig C>
    void dense(uint32_t seed) {
        using T = std::conditional_t<C.output == Output::F32, float, uint16_t>;
        test::Random random(seed);
        const DType of = type_of(C.a.element).dtype, type = type_of(C.output).dtype;
        const int64_t m = random.any(C.tile_m / 2 + 1, 2 * C.tile_m + 20), n = 8 * random.any(1, 2 * C.tile_n / 8 + 3);
        const int64_t k = 8 * random.any((C.k_slices() * C.k_splits() - 1) * 8 + 1, 70),
                      m_step = C.a.major == kMn ? (m + 7) / 8 * 8 : m;
        Numbers a(of, 1, m_step, k, C.a.major, random), b(of, 1, n, k, C.b.major, random);
        test::Buffer<T> d(type, m, n, random.any(0, 1) * 8);
        const std::vector<T> old = fill(d);
        test::Buffer<float> bias(DType::F32, 1, n);
        fill(bias);
        GemmArgs args{.a = a.stack().matrix, .sfa = {}, .b = b.stack().matrix, .sfb = {}, .d = d.view()};
        args.a.rows = m;
        args.d.device = args.a.device;
        GemmOptions options;
        if constexpr (C.finish == Finish::Affine) {  // C is D
            options.epilogue = {.alpha = 2, .beta = -1, .c = {args.d}, .bias = bias.view()};
            options.epilogue.bias.device = args.d.device;
        } else {
            options.accumulate = C.output == Output::F32 && random.one_in(2);
        }
        run<C>({args, options}, 1 + seed % 3, seed);
        if (HasFatalFailure()) return;
        expect(d, type, m, old, [&](int64_t, int64_t row, int64_t col, float before) {
            const float product = sum(a, 0, row, b, 0, col, 0, k);
            if (C.finish == Finish::Affine) return rounded(2 * product - before + bias.at(0, col), type);
            return rounded(product + (options.accumulate ? before : 0), type);
        });
    }

    /// The columns of one product in heads, and gaps that stay as they are.
    template <GemmConfig C>
    void in_heads(uint32_t seed) {
        test::Random random(seed);
        const DType of = type_of(C.a.element).dtype, type = type_of(C.output).dtype;
        const Epilogue heads{.head_left = 8 * random.any(0, 5), .head_gap = 8 * random.any(1, 3), .head_right = 24};
        const int64_t n = plan::head_cols(heads) * random.any(1, 4), m = 8 * random.any(1, 2 * C.tile_m / 8),
                      k = 8 * random.any(1, 70), width = plan::width_of_d(heads, n);
        Numbers a(of, 1, m, k, C.a.major, random), b(of, 1, n, k, C.b.major, random);
        test::Buffer<uint16_t> d(type, m, width, random.any(0, 1) * 8);
        const std::vector<uint16_t> old = fill(d);
        GemmArgs args{.a = a.stack().matrix, .sfa = {}, .b = b.stack().matrix, .sfb = {}, .d = d.view()};
        args.d.device = args.a.device;
        const GemmOptions options{.epilogue = heads};
        run<C>({args, options}, 1 + seed % 3, seed);
        if (HasFatalFailure()) return;
        std::vector<int64_t> column_at(static_cast<size_t>(width), -1);  // of the product; of a gap none
        for (int64_t col = 0; col < n; ++col) column_at[plan::columns_of(heads).of(static_cast<uint32_t>(col))] = col;
        expect(d, type, m, old, [&](int64_t, int64_t row, int64_t at, float before) {
            const int64_t col = column_at[static_cast<size_t>(at)];
            return col < 0 ? before : rounded(sum(a, 0, row, b, 0, col, 0, k), type);
        });
    }

    /// Groups of rows of any sizes, of which some are empty, in one matrix or in one each.
    template <GemmConfig C>
    void rows(uint32_t seed) {
        using T = std::conditional_t<C.output == Output::F32, float, uint16_t>;
        test::Random random(seed);
        const DType of = type_of(C.a.element).dtype, type = type_of(C.output).dtype;
        const int64_t groups = random.any(1, 4), n = 8 * random.any(1, 2 * C.tile_n / 8), k = 8 * random.any(1, 40);
        const bool masked = C.a.major == kMn || random.one_in(2);
        const int64_t some = masked ? random.any(1, C.tile_m + 20) : random.any(groups, 250),
                      stacks = masked ? groups : 1, m = C.a.major == kMn ? (some + 7) / 8 * 8 : some;
        std::vector<int32_t> numbers;
        if (!masked) numbers.push_back(0);
        for (int64_t g = 0; g < groups; ++g)
            numbers.push_back(
                static_cast<int32_t>(masked ? random.any(0, m) : numbers.back() + random.any(0, (m - numbers.back()))));
        Numbers a(of, stacks, m, k, C.a.major, random), b(of, groups, n, k, C.b.major, random);
        test::Buffer<T> d(type, stacks * m, n, random.any(0, 1) * 8);
        const std::vector<T> old = fill(d);
        Matrix of_one = d.view();
        of_one.rows = m;
        of_one.device = {DeviceType::Cuda, 0};
        const GroupedGemmArgs args{.a = a.stack(),
                                   .sfa = {},
                                   .b = b.stack(),
                                   .sfb = {},
                                   .d = {of_one, stacks, m * of_one.row_stride},
                                   .groups = {.form = masked ? GroupForm::Masked : GroupForm::Offsets,
                                              .data = numbers.data(),
                                              .size = static_cast<int64_t>(numbers.size()),
                                              .device = of_one.device}};
        const GemmOptions options;
        run<C>({args, options}, 1 + seed % 3, seed);
        if (HasFatalFailure()) return;
        expect(d, type, m, old, [&](int64_t matrix, int64_t row, int64_t col, float before) {
            int64_t group = matrix;
            if (!masked)
                for (group = 0; group < groups && row >= numbers[static_cast<size_t>(group) + 1];) ++group;
            if (masked ? row >= numbers[static_cast<size_t>(group)] : group == groups) return before;
            return rounded(sum(a, matrix, row, b, group, col, 0, k), type);
        });
    }

    /// Groups of K, of which some are empty.
    template <GemmConfig C>
    void of_k(uint32_t seed) {
        using T = std::conditional_t<C.output == Output::F32, float, uint16_t>;
        test::Random random(seed);
        const DType of = type_of(C.a.element).dtype, type = type_of(C.output).dtype;
        const int64_t groups = random.any(1, 3), n = 8 * random.any(1, 20), m = 8 * random.any(C.tile_m / 16 + 1, 25);
        std::vector<int32_t> offsets = {0};
        for (int64_t g = 0; g < groups; ++g)
            offsets.push_back(offsets.back() + 128 * static_cast<int32_t>(random.any(g == 0 ? 1 : 0, 3)));
        const int64_t k = offsets.back();
        Numbers a(of, 1, m, k, C.a.major, random), b(of, 1, n, k, C.b.major, random);
        test::Buffer<T> d(type, groups * m, n);
        const std::vector<T> old = fill(d);
        Matrix of_one = d.view();
        of_one.rows = m;
        of_one.device = {DeviceType::Cuda, 0};
        const GemmOptions options{.accumulate = C.output == Output::F32 && random.one_in(2)};
        const KGroupedGemmArgs args{.a = a.stack().matrix,
                                    .sfa = {},
                                    .b = b.stack().matrix,
                                    .sfb = {},
                                    .d = {of_one, groups, m * n},
                                    .offsets = offsets.data(),
                                    .groups = groups,
                                    .offsets_device = of_one.device};
        run<C>({args, options}, 1 + seed % 3, seed);
        if (HasFatalFailure()) return;
        expect(d, type, m, old, [&](int64_t group, int64_t row, int64_t col, float before) {
            const auto g = static_cast<size_t>(group);
            return rounded(sum(a, 0, row, b, 0, col, offsets[g], offsets[g + 1]) + (options.accumulate ? before : 0),
                           type);
        });
    }
};

constexpr Grouping kOne = Grouping::None, kRows = Grouping::Rows, kOfK = Grouping::K;
constexpr Element kBF16 = Element::BF16, kF16 = Element::F16;

TEST_F(GemmKernel, MultipliesOperandsOfEveryLayout) {
    for (uint32_t seed = 1; seed <= test::random_cases(2); ++seed) {
        dense<config<kOne, kBF16, Output::BF16, kK, kK>(64, 64, 8)>(seed);
        dense<config<kOne, kBF16, Output::BF16, kK, kMn>(64, 128, 8)>(seed);
        dense<config<kOne, kBF16, Output::BF16, kMn, kMn>(128, 192, 4)>(seed);
        dense<config<kOne, kBF16, Output::BF16, kMn, kK>(64, 64, 8)>(seed);
        dense<config<kOne, kF16, Output::F16, kMn, kMn>(64, 64, 8)>(seed);
        if (HasFatalFailure()) return;
    }
}

TEST_F(GemmKernel, AddsToFloatsInEveryLayout) {
    for (uint32_t seed = 1; seed <= test::random_cases(2); ++seed) {
        dense<config<kOne, kBF16, Output::F32, kK, kMn>(64, 64, 8)>(seed);
        dense<config<kOne, kF16, Output::F32, kMn, kMn>(128, 192, 4)>(seed);
        dense<config<kOne, kBF16, Output::F32, kMn, kK>(64, 64, 8)>(seed);
        if (HasFatalFailure()) return;
    }
}

TEST_F(GemmKernel, SumsOfPartsOfKAreThoseOfAll) {
    for (uint32_t seed = 1; seed <= test::random_cases(2); ++seed) {
        dense<config<kOne, kBF16, Output::BF16, kK, kK>(64, 32, 16, 2)>(seed);
        dense<config<kOne, kBF16, Output::F32, kK, kK>(64, 32, 14, 2)>(seed);
        dense<config<kOne, kBF16, Output::BF16, kK, kK>(64, 32, 7, 1, 3)>(seed);
        dense<config<kOne, kF16, Output::F16, kK, kMn>(128, 64, 7, 1, 4)>(seed);
        dense<config<kOne, kBF16, Output::F32, kK, kK>(64, 32, 6, 2, 4)>(seed);
        if (HasFatalFailure()) return;
    }
}

TEST_F(GemmKernel, FinishesProductsOfEveryLayout) {
    for (uint32_t seed = 1; seed <= test::random_cases(2); ++seed) {
        dense<affine_config<kBF16, Output::BF16, kK, kMn>(64, 64, 8)>(seed);
        dense<affine_config<kBF16, Output::BF16, kMn, kMn>(128, 192, 4)>(seed);
        dense<affine_config<kBF16, Output::F32, kMn, kK>(128, 128, 4)>(seed);
        dense<affine_config<kF16, Output::F16, kK, kK>(64, 128, 8)>(seed);
        dense<affine_config<kF16, Output::F32, kMn, kMn>(64, 128, 7)>(seed);
        if (HasFatalFailure()) return;
    }
}

TEST_F(GemmKernel, LeavesGapsInHeadsOfProductsOfEveryLayout) {
    for (uint32_t seed = 1; seed <= test::random_cases(2); ++seed) {
        in_heads<gaps_config<kBF16, Output::BF16, kK, kMn>(64, 128, 8)>(seed);
        in_heads<gaps_config<kBF16, Output::BF16, kMn, kK>(64, 128, 8)>(seed);
        in_heads<gaps_config<kF16, Output::F16, kMn, kMn>(64, 128, 8)>(seed);
        if (HasFatalFailure()) return;
    }
}

TEST_F(GemmKernel, GroupsOfRowsReadColumnsOfBAndOfA) {
    for (uint32_t seed = 1; seed <= test::random_cases(3); ++seed) {
        rows<config<kRows, kBF16, Output::BF16, kK, kMn>(64, 64, 8)>(seed);
        rows<config<kRows, kBF16, Output::F32, kK, kMn>(128, 128, 5)>(seed);
        rows<config<kRows, kF16, Output::F16, kK, kMn>(128, 192, 4)>(seed);
        rows<config<kRows, kBF16, Output::BF16, kK, kK>(256, 128, 4)>(seed);  // swapped
        rows<config<kRows, kF16, Output::F16, kK, kMn>(256, 128, 4)>(seed);
        rows<rows_config<kBF16, Output::BF16, kMn, kMn>(128, 128, 5)>(seed);
        rows<rows_config<kF16, Output::F32, kMn, kK>(128, 128, 4)>(seed);
        if (HasFatalFailure()) return;
    }
}

TEST_F(GemmKernel, GroupsOfKReadTheirRowsOfTransposedOperands) {
    for (uint32_t seed = 1; seed <= test::random_cases(3); ++seed) {
        of_k<config<kOfK, kBF16, Output::BF16, kMn, kMn>(64, 64, 8)>(seed);
        of_k<config<kOfK, kBF16, Output::F32, kMn, kMn>(128, 128, 5)>(seed);
        of_k<config<kOfK, kF16, Output::F32, kMn, kMn>(64, 64, 8)>(seed);
        if (HasFatalFailure()) return;
    }
}

class PanelsOfHeads : public GemmKernel {
protected:
    /// D in heads, each with a gap that is left alone. `part`: what its parts are multiples of.
    template <GemmConfig C>
    void head_gaps(uint32_t seed, int64_t part) {
        test::Random random(seed);
        const int64_t left = part * random.any(0, 2), right = part * random.any(1, 2), gap = 8 * random.any(1, 12);
        const int64_t heads = random.any(1, 4), head = left + right, n = heads * head, k = 8 * random.any(1, 30);
        const int64_t m = random.any(C.tile_m / 2 + 1, 2 * C.tile_m + 20);
        Numbers a(DType::BF16, 1, m, k, kK, random), b(DType::BF16, 1, n, k, kK, random);
        test::Buffer<uint16_t> d(DType::BF16, m, heads * (head + gap), random.any(0, 1) * 8);
        const std::vector<uint16_t> old = fill(d);
        GemmArgs args{.a = a.stack().matrix, .sfa = {}, .b = b.stack().matrix, .sfb = {}, .d = d.view()};
        args.d.device = args.a.device;
        GemmOptions options;
        options.epilogue.head_left = left, options.epilogue.head_gap = gap, options.epilogue.head_right = right;
        run<C>({args, options}, 1 + seed % 3, seed);
        if (HasFatalFailure()) return;
        expect(d, DType::BF16, m, old, [&](int64_t, int64_t row, int64_t col, float before) {
            const int64_t first = col / (head + gap) * head, inside = col % (head + gap);
            if (inside >= left && inside < left + gap) return before;
            return rounded(sum(a, 0, row, b, 0, first + inside - (inside < left ? 0 : gap), 0, k), DType::BF16);
        });
    }
};

TEST_F(PanelsOfHeads, LieOnOneSideOfAGapOrAreCopied) {
    for (uint32_t seed = 1; seed <= test::random_cases(2); ++seed) {
        constexpr GemmConfig kSmall = config<kOne, kBF16, Output::BF16, kK, kK>(64, 64, 8, 1, 1, Finish::HeadGaps);
        constexpr GemmConfig kLarge = config<kOne, kBF16, Output::BF16, kK, kK>(128, 192, 4, 1, 1, Finish::HeadGaps);
        head_gaps<kSmall>(seed, 8);
        head_gaps<kSmall>(seed, 64);
        head_gaps<kLarge>(seed, 64);
        if (HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace finegemm
