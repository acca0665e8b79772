// The text of the kernels that equations take, run on the host: heads, whose matrices lie closer together than their
// rows, and sums over stacks, piece by piece. D has the bits of sums that are exact. Layer tests.
#include <gtest/gtest.h>

#include <finegemm/device/add_pieces.cuh>
#include <finegemm/device/gemm.cuh>

#include "ops/gemm/groups.h"
#include "ops/gemm/hopper.h"
#include "plan/elements.h"
#include "support/matrix.h"
#include "support/mock_driver.h"
#include "support/random.h"
#include "support/random_cases.h"

namespace finegemm {
namespace {

constexpr Device kGpu{DeviceType::Cuda, 0};

/// A tensor of three dimensions of small whole numbers in bf16.
struct Numbers3 {
    int64_t x, y, z;
    test::Buffer<uint16_t> memory;

    Numbers3(int64_t x_, int64_t y_, int64_t z_, test::Random& random)
        : x(x_), y(y_), z(z_), memory(DType::BF16, x * y, z, random.any(0, 2) * 8) {
        for (int64_t r = 0; r < x * y; ++r)
            for (int64_t c = 0; c < z; ++c) memory.at(r, c) = bf16_of_float(static_cast<float>(random.any(-3, 3)));
    }
    float at(int64_t i, int64_t j, int64_t k) { return float_of_bf16(memory.at(i * y + j, k)); }
    /// Counted by the first dimension, or by the second one.
    ConstStack stack(int counted = 0) {
        Matrix m = memory.view();
        const int64_t pitch = m.row_stride;
        m.device = kGpu;
        m.rows = counted == 0 ? y : x;
        m.row_stride = counted == 0 ? pitch : y * pitch;
        return {m, counted == 0 ? x : y, counted == 0 ? y * pitch : pitch};
    }
};

template <typename T>
float value_of(T code) {
    if constexpr (sizeof(T) == 4) return code;
    else return float_of_bf16(code);
}
template <typename T>
float rounded(float x) {
    if constexpr (sizeof(T) == 4) return x;
    else return float_of_bf16(bf16_of_float(x));
}

constexpr GemmConfig config(Grouping grouping, uint32_t tile_m, uint32_t tile_n, uint32_t stages, Output output,
                            Major b = Major::K) {
    return {.tile_m = tile_m,
            .tile_n = tile_n,
            .stages = stages,
            .math_warpgroups = tile_m > 192 ? 2 : tile_m / 64,
            .grouping = grouping,
            .a = unscaled(Element::BF16),
            .b = unscaled(Element::BF16, b),
            .output = output};
}

class EinsumKernel : public ::testing::Test {
protected:
    mock::Driver mock{FINEGEMM_MOCK_DRIVER};
    std::shared_ptr<const cuda::Driver> driver = cuda::Driver::open(FINEGEMM_MOCK_DRIVER);

    template <GemmConfig C>
    LaunchParams params(const Call& call, uint32_t ctas) {
        const plan::Problem problem = problem_of(call);
        EXPECT_EQ(plan::rejected(problem, *plan::find_device("h200"), C), "") << plan::name_of(C);
        return params_of(*driver, call, problem, C, ctas);
    }
    template <GemmConfig C>
    void launch(const Call& call, const KernelParams<C>& params, uint32_t ctas, uint32_t seed) {
        const plan::Problem problem = problem_of(call);
        ptx::host_elements_are_f16 = false;
        host_kernel::launch(
            grid_size(C, most_tiles(problem, C, ctas), ctas), C.threads(), [&] { device::gemm<C>(params); }, seed);
    }

    /// "bhr,hdr->bhd", or with columns of B "bhd,hdr->bhr".
    template <GemmConfig C>
    void heads(uint32_t seed) {
        test::Random random(seed);
        const int64_t b = random.any(1, 150), h = random.any(1, 4), k = 8 * random.any(1, 30),
                      n = 8 * random.any(1, 30);
        constexpr bool kColumns = C.b.major == Major::MN;
        Numbers3 x(b, h, k, random), w(h, kColumns ? k : n, kColumns ? n : k, random);
        test::Buffer<uint16_t> d(DType::BF16, b * h, n, random.any(0, 1) * 8);
        Matrix of_one = d.view();
        const int64_t pitch = of_one.row_stride;
        of_one.rows = b, of_one.row_stride = h * pitch, of_one.device = kGpu;
        ConstStack weights = w.stack();
        if (kColumns) {
            std::swap(weights.matrix.rows, weights.matrix.cols);
            std::swap(weights.matrix.row_stride, weights.matrix.col_stride);
        }
        const GemmOptions options;
        const Call call(GroupedGemmArgs{.a = x.stack(1),
                                        .sfa = {},
                                        .b = weights,
                                        .sfb = {},
                                        .d = {of_one, h, pitch},
                                        .groups = {.form = GroupForm::Whole, .device = kGpu}},
                        options);
        const uint32_t ctas = 1 + seed % 3;
        launch<C>(call, params<C>(call, ctas).template as<KernelParams<C>>(), ctas, seed);
        EXPECT_TRUE(d.surroundings_intact());
        for (int64_t i = 0; i < b; ++i)
            for (int64_t head = 0; head < h; ++head)
                for (int64_t j = 0; j < n; ++j) {
                    float sum = 0;
                    for (int64_t r = 0; r < k; ++r)
                        sum += x.at(i, head, r) * (kColumns ? w.at(head, r, j) : w.at(head, j, r));
                    ASSERT_EQ(value_of(d.at(i * h + head, j)), rounded<uint16_t>(sum))
                        << seed << ": " << i << ", head " << head << ", " << j;
                }
    }

    template <typename T, GemmConfig C>
    void sums(uint32_t seed) {
        test::Random random(seed);
        constexpr Output kOutput = sizeof(T) == 4 ? Output::F32 : Output::BF16;
        const int64_t b = random.any(1, 5), m = random.any(C.tile_m / 2 + 1, 2 * C.tile_m), n = 8 * random.any(1, 30),
                      k = 8 * random.any(1, 25);
        Numbers3 x(b, m, k, random), y(b, n, k, random);
        test::Buffer<T> d(type_of(kOutput).dtype, m, n, random.any(0, 1) * 8);
        for (int64_t r = 0; r < m; ++r)
            for (int64_t c = 0; c < n; ++c) d.at(r, c) = {};
        Matrix view = d.view();
        view.device = kGpu;
        const GemmOptions options{.accumulate = kOutput == Output::F32 && random.one_in(2)};
        for (int64_t r = 0; options.accumulate && r < m; ++r)
            for (int64_t c = 0; c < n; ++c) d.at(r, c) = 5;
        const Call call(SummedGemmArgs{x.stack(), y.stack(), view}, options);
        const auto ctas = static_cast<uint32_t>(random.any(1, 20));
        auto pieces = params<C>(call, ctas).template as<SummedParams>();
        std::vector<float> room(static_cast<size_t>(pieces.d_stride * pieces.pieces), std::nanf(""));
        pieces.d_data = room.data();
        launch<C>(call, pieces, ctas, seed);
        const AddPiecesLaunch last = add_pieces_of(call, pieces);
        ASSERT_EQ(last.config.output, kOutput);
        host_kernel::launch(
            last.grid, last.config.threads(), [&] { device::add_pieces<AddPiecesConfig{kOutput}>(last.params); }, seed);
        EXPECT_TRUE(d.surroundings_intact());
        for (int64_t r = 0; r < m; ++r)
            for (int64_t c = 0; c < n; ++c) {
                float sum = options.accumulate ? 5 : 0;
                for (int64_t i = 0; i < b; ++i)
                    for (int64_t j = 0; j < k; ++j) sum += x.at(i, r, j) * y.at(i, c, j);
                ASSERT_EQ(value_of(d.at(r, c)), rounded<T>(sum))
                    << seed << ": " << pieces.pieces << " pieces, row " << r << ", column " << c;
            }
    }
};

TEST_F(EinsumKernel, HeadsMayLieCloserThanTheirRows) {
    for (uint32_t seed = 1; seed <= test::random_cases(3); ++seed) {
        heads<config(Grouping::Rows, 64, 64, 8, Output::BF16)>(seed);
        heads<config(Grouping::Rows, 128, 192, 4, Output::BF16)>(seed);
        heads<config(Grouping::Rows, 256, 128, 4, Output::BF16)>(seed);  // swapped
        heads<config(Grouping::Rows, 128, 256, 3, Output::BF16, Major::MN)>(seed);
        if (HasFatalFailure()) return;
    }
}

TEST_F(EinsumKernel, PiecesOfSumsAddUp) {
    for (uint32_t seed = 1; seed <= test::random_cases(4); ++seed) {
        sums<float, config(Grouping::Sum, 64, 64, 8, Output::F32)>(seed);
        sums<uint16_t, config(Grouping::Sum, 64, 64, 8, Output::F32)>(seed);
        sums<float, config(Grouping::Sum, 128, 192, 4, Output::F32)>(seed);
        if (HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace finegemm
