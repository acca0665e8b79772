// Memory of GPUs that ranks reach of each other, on a mock of the driver. Layer tests.
#include <gtest/gtest.h>

#include <cstring>

#include "comm/cuda_table.h"
#include "support/error_of.h"
#include "support/mock_driver.h"

namespace finegemm::comm {
namespace {

using test::contains;
using test::error_of;

/// Two ranks, as one thread makes them: each on a GPU of its own.
class CudaTables : public testing::Test {
protected:
    std::unique_ptr<CudaTable> table(int rank, size_t bytes = 4000) {
        const cuda::Device device(driver_, rank);
        const cuda::CurrentDevice current(device);
        return std::make_unique<CudaTable>(driver_, rank, rank, 2, bytes, nullptr);
    }
    /// What rank 0 has of both.
    void reach(CudaTable& zero, const std::vector<Address>& all) {
        const cuda::Device device(driver_, 0);
        const cuda::CurrentDevice current(device);
        zero.reach(all);
    }
    std::shared_ptr<const cuda::Driver> opened() {
        mock->gpus = {mock::Gpu{}, mock::Gpu{}};
        return cuda::Driver::open(FINEGEMM_MOCK_DRIVER);
    }
    mock::Driver mock{FINEGEMM_MOCK_DRIVER};
    std::shared_ptr<const cuda::Driver> driver_ = opened();
};

TEST_F(CudaTables, ReachOfTheSameProcessByPeerAccess) {
    {
        const auto zero = table(0), one = table(1);
        EXPECT_FALSE(zero->reaches_all());
        reach(*zero, {zero->address(), one->address()});
        EXPECT_TRUE(zero->reaches_all());
        EXPECT_EQ(zero->of(0), reinterpret_cast<void*>(zero->address().memory));
        EXPECT_EQ(zero->of(1), reinterpret_cast<void*>(one->address().memory));
        EXPECT_EQ(mock->count("cuCtxEnablePeerAccess"), 1);
        EXPECT_EQ(mock->opened, 0);
        const std::vector<char> zeros(4000);
        EXPECT_EQ(std::memcmp(zero->of(0), zeros.data(), zeros.size()), 0);
        zero->agree({1, 0});
        EXPECT_FALSE(zero->is_whole());
        zero->agree({1, 1});
        EXPECT_TRUE(zero->is_whole());
    }
    EXPECT_EQ(mock->allocations, 0);
    EXPECT_EQ(mock->gpus[0].retains + mock->gpus[1].retains, 0);
}

TEST_F(CudaTables, ReachOfAnotherProcessByTheNameOfItsMemory) {
    {
        const auto zero = table(0), one = table(1);
        Address other = one->address();
        std::strcpy(other.process, "another");
        other.memory = 0;  // what it is called there means nothing here
        reach(*zero, {zero->address(), other});
        EXPECT_EQ(zero->of(1), reinterpret_cast<void*>(one->address().memory));
        EXPECT_EQ(mock->opened, 1);
        EXPECT_EQ(mock->count("cuCtxEnablePeerAccess"), 0);
    }
    EXPECT_EQ(mock->opened, 0);
    EXPECT_EQ(mock->allocations, 0);
}

TEST_F(CudaTables, SayThatTheyDoNotReachWhatHasNoWay) {
    const auto one = table(1);
    const std::pair<const char*, void (*)(mock::Driver&, Address&)> cases[] = {
        {"another host", [](mock::Driver&, Address& a) { std::strcpy(a.host, "elsewhere"); }},
        {"no peer access", [](mock::Driver& m, Address&) { m->peer_access = false; }},
        {"peer access fails", [](mock::Driver& m, Address&) { m.fail("cuCtxEnablePeerAccess", 217); }},
        {"no name", [](mock::Driver&, Address& a) { std::strcpy(a.process, "another"), a.named = 0; }},
        {"no opening",
         [](mock::Driver& m, Address& a) { std::strcpy(a.process, "another"), m.fail("cuIpcOpenMemHandle", 201); }}};
    for (const auto& [name, spoil] : cases) {
        const auto zero = table(0);
        Address other = one->address();
        spoil(mock, other);
        reach(*zero, {zero->address(), other});
        EXPECT_FALSE(zero->reaches_all()) << name;
        mock->peer_access = true;
    }
    mock.fail("cuCtxEnablePeerAccess", 704);  // it is enabled already
    const auto zero = table(0);
    reach(*zero, {zero->address(), one->address()});
    EXPECT_TRUE(zero->reaches_all());
}

TEST_F(CudaTables, SayWhoHadNoMemoryOrAnother) {
    const auto one = table(1);
    mock.fail("cuMemAlloc", 2);
    const auto none = table(0);
    const Error own = error_of([&] { reach(*none, {none->address(), one->address()}); });
    EXPECT_EQ(own.code(), Errc::Driver);
    EXPECT_TRUE(contains(own, "cuMemAlloc failed")) << own.what();
    mock->failures.clear();
    const auto zero = table(0), less = table(1, 3000);
    const Error other = error_of([&] { reach(*zero, {zero->address(), none->address()}); });
    EXPECT_EQ(other.code(), Errc::Peer);
    EXPECT_STREQ(other.what(), "memory: rank 1 had none to give");
    EXPECT_STREQ(error_of([&] { reach(*zero, {zero->address(), less->address()}); }).what(),
                 "memory: rank 1 has 3000 bytes, rank 0 has 4000; all ranks pass the same shape");
}

}  // namespace
}  // namespace finegemm::comm
