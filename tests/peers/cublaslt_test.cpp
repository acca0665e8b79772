// Opening cuBLASLt and NVML, and what is said when they are not there or refuse. Layer tests.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "peers/cublaslt.h"
#include "peers/nvml.h"
#include "support/error_of.h"
#include "support/matrix.h"
#include "workbench/accuracy.h"

namespace finegemm::test {
namespace {

using cublaslt::Library;
using cublaslt::Mode;

/// What opening it says; empty when it opens.
std::string complaint(const Options& options, const std::string& wish) {
    try {
        const Library library(options, wish);
        return {};
    } catch (const Error& e) {
        return e.what();
    }
}

std::string refusal(const Library& library, const GemmArgs& args) {
    char workspace = 0;
    return error_of([&] { library.product(Mode::Block, args, &workspace); }).what();
}

TEST(CublasLt, NamesEveryPlaceThatItLookedIn) {
    const std::string home = "/nonexistent/home";
    Options options;
    options.cuda_home = home;
    const std::string message = complaint(options, FINEGEMM_MOCK_DRIVER);
    if (message.empty()) GTEST_SKIP() << "this machine has a GPU and cuBLASLt, so none is missed";
    EXPECT_NE(message.find("no cuBLASLt found"), std::string::npos) << message;
    EXPECT_NE(message.find(std::string(FINEGEMM_MOCK_DRIVER) + ": is not cuBLASLt"), std::string::npos) << message;
    EXPECT_NE(message.find(home + "/lib64: has no libcublasLt.so"), std::string::npos) << message;
    EXPECT_NE(message.find("--cublaslt"), std::string::npos) << message;
}

TEST(CublasLt, TheInstalledOneHasEveryEntryPoint) {
    // Without a GPU it gives no handle, but that is asked for only when every entry point was found.
    const std::string message = complaint({}, "");
    if (!message.empty() && message.find("cublasLtCreate failed") == message.npos)
        GTEST_SKIP() << "no cuBLASLt on this machine";
    EXPECT_EQ(message.find("is not cuBLASLt"), message.npos) << message;
}

/// A product on the host's memory, which is the mock's. Scales as cuBLASLt wants them.
struct Blocks : Problem {
    Blocks(int64_t m_, int64_t n_, int64_t k_) : Problem(m_, n_, k_, 3) {
        const int64_t k_blocks = (k + 127) / 128, stride = (k_blocks + 3) / 4 * 4;
        rows.resize(static_cast<size_t>(m * k_blocks));
        blocks.resize(static_cast<size_t>((n + 127) / 128 * stride));
        laid_out = args();
        for (int64_t kb = 0; kb < k_blocks; ++kb) {
            for (int64_t r = 0; r < m; ++r) rows[static_cast<size_t>(kb * m + r)] = sfa.at(r, kb);
            for (int64_t r = 0; r < (n + 127) / 128; ++r) blocks[static_cast<size_t>(r * stride + kb)] = sfb.at(r, kb);
        }
        laid_out.sfa.data = rows.data(), laid_out.sfa.row_stride = 1, laid_out.sfa.col_stride = m;
        laid_out.sfb.data = blocks.data(), laid_out.sfb.row_stride = stride, laid_out.sfb.col_stride = 1;
    }
    std::vector<float> rows, blocks;
    GemmArgs laid_out;
};

TEST(CublasLt, ComputesTheProductOfRowMajorMatricesWithBlockScales) {
    const Library library(Options{}, FINEGEMM_MOCK_CUBLASLT);
    EXPECT_EQ(library.path(), std::filesystem::path(FINEGEMM_MOCK_CUBLASLT).string());
    EXPECT_EQ(library.version(), "13.0.2");
    Blocks p(8, 160, 400);
    char workspace = 0;
    library.product(Mode::Block, p.laid_out, &workspace)();
    EXPECT_LE(accuracy_of({p.laid_out, {}}, 8).of_bound, 1);
}

TEST(CublasLt, SaysWhyItDoesNotTakeAProduct) {
    const Library library(Options{}, FINEGEMM_MOCK_CUBLASLT);
    Blocks odd(5, 160, 256), eight(8, 136, 256), rows(8, 160, 256);
    EXPECT_EQ(refusal(library, odd.laid_out), "cuBLASLt: block scales need M in multiples of 4, M is 5");
    EXPECT_EQ(refusal(library, eight.laid_out), "cuBLASLt: has no algorithm for this shape");
    EXPECT_EQ(refusal(library, rows.args()),
              "cuBLASLt: scales must have strides (1, 8) for A and (4, 1) for B, theirs are (2, 1) and (2, 1)");
}

TEST(CublasLt, BlockScalesNeedAVersionThatHasThem) {
    setenv("FINEGEMM_MOCK_CUBLASLT", "old", 1);
    const Library library(Options{}, FINEGEMM_MOCK_CUBLASLT);
    Blocks p(8, 160, 256);
    EXPECT_EQ(refusal(library, p.laid_out), "cuBLASLt: block scales need version 12.9 or later, this is 12.4.0");
    unsetenv("FINEGEMM_MOCK_CUBLASLT");
}

TEST(Nvml, NamesTheReasonsOfAMask) {
    EXPECT_TRUE(nvml::reasons_of(nvml::kIdle).empty());
    EXPECT_EQ(nvml::reasons_of(nvml::kPowerCap | nvml::kHwThermal | nvml::kIdle),
              (std::vector<std::string>{"SW power cap", "HW thermal slowdown"}));
}

}  // namespace
}  // namespace finegemm::test
