// Memory of calls: what is kept for the next one, and for which. Layer tests.
#include "cuda/memory_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <thread>

#include "support/error_of.h"
#include "support/mock_driver.h"

namespace finegemm::cuda {
namespace {

constexpr size_t kMiB = 1 << 20;

class MemoryPoolTest : public ::testing::Test {
protected:
    mock::Driver mock{FINEGEMM_MOCK_DRIVER};
    std::shared_ptr<const Driver> driver = Driver::open(FINEGEMM_MOCK_DRIVER);
    Device device{driver, 0};
    CurrentDevice current{device};
    std::optional<MemoryPool> pool{std::in_place, device};
    char streams[MemoryPool::kMaxBlocks + 1] = {};

    /// What a call was given that has returned.
    void* call(size_t bytes, StreamHandle stream) { return StreamMemory(*pool, bytes, stream).data(); }
    /// Allocations and frees in the order of streams.
    std::pair<long, long> asked() const {
        return {mock->count("cuMemAllocFromPoolAsync"), mock->count("cuMemFreeAsync")};
    }
    void expect_nothing_left() {
        pool.reset();
        EXPECT_EQ(std::tuple(mock->allocations, mock->pools), std::tuple(0, 0));
    }
};
using Asked = std::pair<long, long>;

TEST_F(MemoryPoolTest, TheNextCallOnAStreamHasTheMemoryOfTheLastOne) {
    void* const first = call(1000, &streams[0]);
    for (const size_t bytes : {1000, 999, 1}) EXPECT_EQ(call(bytes, &streams[0]), first);
    EXPECT_EQ(asked(), Asked(1, 0));
    EXPECT_EQ(mock->allocations, 1);
    expect_nothing_left();
}

TEST_F(MemoryPoolTest, OtherStreamsHaveOtherMemory) {
    void* const first = call(1000, &streams[0]);
    EXPECT_NE(call(1000, &streams[1]), first);
    EXPECT_NE(call(1000, nullptr), first);
    EXPECT_EQ(asked(), Asked(3, 0));
    EXPECT_EQ(call(1000, &streams[0]), first);
    expect_nothing_left();
}

TEST_F(MemoryPoolTest, AStreamWithTheHandleOfAnEarlierOneIsAnother) {
    StreamHandle stream = nullptr;
    ASSERT_EQ(driver->api.StreamCreate(&stream, 0), 0);
    void* const first = call(1000, stream);
    driver->api.StreamDestroy(stream);
    EXPECT_NE(call(1000, stream), first);
    expect_nothing_left();
}

TEST_F(MemoryPoolTest, MemoryIsKeptForCallsOfAboutItsSize) {
    call(8 * kMiB, &streams[0]);
    call(3 * kMiB, &streams[0]);
    EXPECT_EQ(asked(), Asked(2, 0)) << "8 MiB are far too many";
    call(3 * kMiB + kMiB / 2, &streams[0]);
    EXPECT_EQ(asked(), Asked(2, 0)) << "8 MiB are not";
    call(9 * kMiB, &streams[0]);
    EXPECT_EQ(asked(), Asked(3, 0)) << "nothing is large enough";
    expect_nothing_left();
}

TEST_F(MemoryPoolTest, TheSmallestThatFitsIsTaken) {
    void *large = nullptr, *small = nullptr;
    {
        const StreamMemory first(*pool, 2000, &streams[0]), second(*pool, 1000, &streams[0]);
        large = first.data(), small = second.data();
        EXPECT_NE(large, small) << "a block has one owner";
    }
    EXPECT_EQ(call(900, &streams[0]), small);
    EXPECT_EQ(call(1001, &streams[0]), large);
    EXPECT_EQ(asked(), Asked(2, 0));
    expect_nothing_left();
}

TEST_F(MemoryPoolTest, LargeMemoryIsNotKept) {
    call(MemoryPool::kMaxBlockBytes, &streams[0]);
    EXPECT_EQ(asked(), Asked(1, 0));
    for (int i = 0; i < 2; ++i) call(MemoryPool::kMaxBlockBytes + 1, &streams[0]);
    EXPECT_EQ(asked(), Asked(3, 2));
    expect_nothing_left();
}

TEST_F(MemoryPoolTest, TheOldestOfAStreamGoesWhereItHasEnough) {
    std::deque<StreamMemory> memory;
    for (size_t i = 0; i <= MemoryPool::kMaxBlocksOfStream; ++i) memory.emplace_back(*pool, 1000, &streams[0]);
    void* const oldest = memory.back().data();
    void* const newest = memory.front().data();
    while (!memory.empty()) memory.pop_back();
    EXPECT_EQ(asked(), Asked(MemoryPool::kMaxBlocksOfStream + 1, 1));
    bool has_newest = false;
    for (size_t i = 0; i < MemoryPool::kMaxBlocksOfStream; ++i) {
        void* const data = memory.emplace_back(*pool, 1000, &streams[0]).data();
        EXPECT_NE(data, oldest);
        has_newest |= data == newest;
    }
    EXPECT_TRUE(has_newest);
    EXPECT_EQ(asked(), Asked(MemoryPool::kMaxBlocksOfStream + 1, 1));
    memory.clear();
    expect_nothing_left();
}

TEST_F(MemoryPoolTest, StreamsWithoutEndKeepSoManyBlocks) {
    for (char& stream : streams) call(1000, &stream);
    EXPECT_EQ(asked(), Asked(MemoryPool::kMaxBlocks + 1, 1));
    EXPECT_EQ(mock->allocations, static_cast<int>(MemoryPool::kMaxBlocks));
    call(1000, &streams[0]);
    EXPECT_EQ(asked(), Asked(MemoryPool::kMaxBlocks + 1, 1)) << "those that have some go on with it";
    call(2 * kMiB, &streams[0]);
    EXPECT_EQ(asked(), Asked(MemoryPool::kMaxBlocks + 2, 2)) << "in its place";
    call(2 * kMiB, &streams[0]);
    EXPECT_EQ(asked(), Asked(MemoryPool::kMaxBlocks + 2, 2));
    expect_nothing_left();
}

TEST_F(MemoryPoolTest, MemoryOfACapturedCallIsItsGraphs) {
    void* const first = call(1000, &streams[0]);
    driver->api.StreamBeginCapture(&streams[0], kRelaxedCapture);
    for (int i = 0; i < 2; ++i) EXPECT_NE(call(1000, &streams[0]), first);
    EXPECT_EQ(asked(), Asked(3, 2));
    GraphHandle graph = nullptr;
    driver->api.StreamEndCapture(&streams[0], &graph);
    driver->api.GraphDestroy(graph);
    EXPECT_EQ(call(1000, &streams[0]), first) << "what was kept before";
    EXPECT_EQ(asked(), Asked(3, 2));
    expect_nothing_left();
}

TEST_F(MemoryPoolTest, NothingIsKeptOfAStreamThatCannotBeAsked) {
    for (const char* query : {"cuStreamIsCapturing", "cuStreamGetId"}) {
        mock->calls.clear();
        mock.fail(query, 900);
        for (int i = 0; i < 2; ++i) call(1000, &streams[0]);
        EXPECT_EQ(asked(), Asked(2, 2)) << query;
        mock->failures.clear();
    }
    EXPECT_EQ(mock->allocations, 0);
}

TEST_F(MemoryPoolTest, AnAllocationThatFailsIsNamedAndKeepsNothing) {
    mock.fail("cuMemAllocFromPoolAsync", 2);
    EXPECT_TRUE(test::contains(test::error_of([&] { call(1000, &streams[0]); }), "cuMemAllocFromPoolAsync"));
    EXPECT_EQ(asked(), Asked(1, 0));
    pool.reset();
    EXPECT_EQ(mock->count("cuMemFree"), 0);
}

TEST_F(MemoryPoolTest, APoolsEndWaitsForThoseWhoUseWhatIsKept) {
    call(1000, &streams[0]);
    mock->calls.clear();
    pool.reset();
    const std::vector<std::string> all = mock->calls;
    const auto waits = std::ranges::find(all, "cuCtxSynchronize"), frees = std::ranges::find(all, "cuMemFree");
    ASSERT_TRUE(frees != all.end());
    EXPECT_LT(waits, frees);
    EXPECT_EQ(all.back(), "cuMemPoolDestroy");

    pool.emplace(device);
    mock->calls.clear();
    pool.reset();
    EXPECT_EQ(mock->calls, std::vector<std::string>{"cuMemPoolDestroy"}) << "nothing is waited for if nothing is kept";
}

TEST_F(MemoryPoolTest, APoolsEndFreesNothingThatMayBeInUse) {
    for (const char* fails : {"cuThreadExchangeStreamCaptureMode", "cuCtxSynchronize"}) {
        void* const data = call(1000, &streams[0]);
        mock.fail(fails, 700);
        pool.reset();
        EXPECT_EQ(std::tuple(mock->pools, mock->allocations), std::tuple(0, 1)) << fails;
        mock->failures.clear();
        driver->api.MemFree(reinterpret_cast<DevicePtr>(data));
        pool.emplace(device);
    }
}

TEST_F(MemoryPoolTest, ThreadsOfOneStreamNeverShareABlock) {
    mock->recording = false;
    const auto work = [&](char number) {
        const CurrentDevice of_thread(device);
        for (int i = 0; i < 2000; ++i) {
            const StreamMemory memory(*pool, 64, &streams[0]);
            auto* const data = static_cast<volatile char*>(memory.data());
            for (int at = 0; at < 64; ++at) data[at] = number;
            for (int at = 0; at < 64; ++at) ASSERT_EQ(data[at], number);
        }
    };
    std::thread one(work, 1), two(work, 2);
    one.join(), two.join();
    EXPECT_LE(mock->allocations, 2);
    mock->recording = true;
    expect_nothing_left();
}

}  // namespace
}  // namespace finegemm::cuda
