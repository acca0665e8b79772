// The disk cache among processes: who makes a kernel, who waits, what a death or a vandal does.
#include <csignal>
#include <random>

#include "support.h"

namespace finegemm::jit {
namespace {

using namespace test;
using namespace std::chrono_literals;

constexpr int kProcesses = 32;
constexpr int64_t kPlenty = 1 << 20;
const Digest kKey{1, 2};

std::string kernel(uint64_t i) { return std::string(20000 + i, static_cast<char>('a' + i)); }

struct Processes : testing::Test {
    TemporaryDirectory home;
    DiskCache cache{home.path() + "/cache", kPlenty};
    std::string makes = home.path() + "/makes";
};

TEST_F(Processes, ThatAskAtOnceGetOneKernelMadeByOne) {
    std::vector<pid_t> children;
    for (int i = 0; i < kProcesses; ++i)
        children.push_back(start([&] {
            const auto make = [&] {
                tally(makes);
                usleep(100'000);
                return kernel(0);
            };
            return cache.get(kKey, "entry", make) == kernel(0) ? 0 : 1;
        }));
    for (const pid_t c : children) EXPECT_EQ(finish(c), 0);
    EXPECT_EQ(count(makes), 1u);
}

TEST_F(Processes, ThatAreKilledWhileTheyMakeAKernelHandTheWorkOn) {
    constexpr size_t kDeaths = 6;
    std::vector<pid_t> children;
    for (int i = 0; i < kProcesses; ++i)
        children.push_back(start([&] {
            const auto make = [&] {
                tally(makes);
                usleep(10'000);
                if (count(makes) <= kDeaths) kill(getpid(), SIGKILL);  // it holds the lock and has told nobody
                return kernel(0);
            };
            return cache.get(kKey, "entry", make) == kernel(0) ? 0 : 1;
        }));
    size_t killed = 0;
    for (const pid_t c : children) {
        const int status = finish(c);
        EXPECT_TRUE(status == 0 || status == -SIGKILL) << status;
        killed += status == -SIGKILL;
    }
    EXPECT_EQ(killed, kDeaths);
    EXPECT_EQ(count(makes), kDeaths + 1);
    EXPECT_EQ(cache.read(kKey), kernel(0));
}

TEST_F(Processes, DoNotWaitForAStoppedOneForEver) {
    const DiskCache hasty(home.path() + "/cache", kPlenty, "", 50ms);
    const pid_t stopped = start([&] {
        cache.get(kKey, "entry", [&]() -> std::string {
            tally(makes);
            raise(SIGSTOP);
            return kernel(0);
        });
        return 0;
    });
    int status = 0;
    ASSERT_EQ(waitpid(stopped, &status, WUNTRACED), stopped);
    ASSERT_TRUE(WIFSTOPPED(status));
    EXPECT_EQ(hasty.get(kKey, "entry", [] { return kernel(0); }), kernel(0));
    EXPECT_EQ(count(makes), 1u);
    kill(stopped, SIGKILL);
    finish(stopped);
}

TEST_F(Processes, MakeDifferentKernelsAtTheSameTime) {
    // Each waits inside its `make` until the other is there too: with one lock for both neither would ever get on.
    const auto meet = [&](uint64_t i) {
        return start([&, i] {
            const auto make = [&] {
                tally(makes);
                while (count(makes) < 2) usleep(1000);
                return kernel(i);
            };
            return cache.get({i, i << 8}, "entry", make) == kernel(i) ? 0 : 1;
        });
    };
    const pid_t one = meet(1), other = meet(2);
    EXPECT_EQ(finish(one), 0);
    EXPECT_EQ(finish(other), 0);
}

TEST_F(Processes, GetRightKernelsWhileFilesAreDamagedRemovedAndKilled) {
    constexpr uint64_t kKernels = 4;
    std::vector<pid_t> children;
    for (int p = 0; p < kProcesses; ++p)
        children.push_back(start([&] {
            for (uint64_t i = 0; i < 100; ++i) {
                const uint64_t k = i % kKernels;
                if (cache.get({k, k}, "entry", [&] { return kernel(k); }) != kernel(k)) return 1;
                usleep(500);
            }
            return 0;
        }));
    std::mt19937 random(7);
    for (int i = 0; i < 8; ++i) kill(children[random() % kProcesses], SIGKILL);
    for (int i = 0; i < 400; ++i) {
        const uint64_t k = random() % kKernels;
        const std::string file = cache.directory() + "/" + Digest{k, k}.hex() + ".kernel";
        if (std::fstream damaged(file, std::ios::in | std::ios::out | std::ios::binary); damaged && i % 3 == 0) {
            damaged.seekp(random() % 20000) << "damage";
        } else if (i % 3 == 1) {
            std::error_code error;
            fs::resize_file(file, random() % 20000, error);
        } else if (i % 30 == 2) {
            cache.clear();
        }
        usleep(200);
    }
    for (const pid_t c : children) {
        const int status = finish(c);
        EXPECT_TRUE(status == 0 || status == -SIGKILL) << status;
    }
    for (uint64_t k = 0; k < kKernels; ++k) EXPECT_EQ(cache.get({k, k}, "entry", [&] { return kernel(k); }), kernel(k));
}

}  // namespace
}  // namespace finegemm::jit
