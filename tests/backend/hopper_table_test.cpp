// A user's plan table, as the Hopper backend follows it. Layer tests.
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "plan/table.h"
#include "support/hopper.h"
#include "support/private_folder.h"

namespace finegemm::hopper_table_test {
namespace {

using test::contains;
using test::error_of;
using test::operands;

class HopperTable : public test::HopperTest {
protected:
    HopperTable() {
        plan::PlanTable table{.device = "h200", .sms = 132, .version = "0.1.0"};
        table.entries = {{.problem = {64, 4096, 4096}, .kernel = "m64n48s7w1_x2", .us = 1, .usual = "", .usual_us = 2}};
        std::ofstream(path) << plan::text_of(table);
    }

    std::unique_ptr<Backend> tuned(int device = 0) const {
        Options options = backend_options();
        options.plan_table = path;
        return make_hopper_backend(options, device, test::fake_kernel);
    }

    const test::PrivateFolder folder;
    const std::string path = folder.path() + "/table.json";
};

TEST_F(HopperTable, GoesBeforeThePlannersChoice) {
    const auto hopper = tuned();
    hopper->gemm({operands(64, 4096, 4096), {}});
    EXPECT_TRUE(last_launch().entry.starts_with("FineGEMM_e4m3_gemm_m64n48s7w1_x2")) << last_launch().entry;
    const auto entry_without = [&](const GemmArgs& args, const GemmOptions& options) {
        backend()->gemm({args, options});
        return last_launch().entry;
    };
    ASSERT_FALSE(entry_without(operands(64, 4096, 4096), {}).starts_with("FineGEMM_e4m3_gemm_m64n48s7w1_x2"));
    for (const auto& [m, options] : {std::pair{65, GemmOptions{}}, {64, {.batch_invariant = true}}}) {
        hopper->gemm({operands(m, 4096, 4096), options});
        const std::string entry = last_launch().entry;
        EXPECT_EQ(entry, entry_without(operands(m, 4096, 4096), options)) << "no entry for M = " << m;
    }
}

TEST_F(HopperTable, DoesNotKeepACallFromNamingItsKernel) {
    tuned()->gemm({operands(64, 4096, 4096), {.config = "m64n64s5w1_x2"}});
    EXPECT_TRUE(last_launch().entry.starts_with("FineGEMM_e4m3_gemm_m64n64s5w1_x2")) << last_launch().entry;
}

TEST_F(HopperTable, MayHaveTheProblemsOfCallsThatNamedNoKernel) {
    const auto hopper = tuned();
    for (const int64_t m : {64, 65, 64}) hopper->gemm({operands(m, 4096, 4096), {}});
    hopper->gemm({operands(66, 4096, 4096), {.config = "m64n64s5w1_x2"}});
    const std::vector<plan::Problem> problems = hopper->problems();
    ASSERT_EQ(problems.size(), 2u);
    EXPECT_EQ(problems[0].m + problems[1].m, 64u + 65u);
}

TEST_F(HopperTable, OfAnotherGpuIsAnErrorWhereItIsFirstUsed) {
    mock->gpus.resize(2);
    mock->gpus[1].name = "NVIDIA H100 80GB HBM3";
    EXPECT_NO_THROW(tuned(0));
    const Error e = error_of([&] { tuned(1); });
    EXPECT_EQ(e.code(), Errc::InvalidArgument);
    EXPECT_TRUE(contains(e, path + " was measured on device 'h200' with 132 SMs, this one is 'h100'")) << e.what();
}

TEST_F(HopperTable, ThatIsDamagedIsAnErrorWhereItIsFirstUsed) {
    std::ofstream(path) << "{";
    EXPECT_EQ(error_of([&] { tuned(); }).code(), Errc::Io);
}

}  // namespace
}  // namespace finegemm::hopper_table_test
