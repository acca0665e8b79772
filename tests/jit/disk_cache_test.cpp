// The disk cache alone: what is stored, what damage and a full or forbidden disk do.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>

#include <finegemm/error.h>

#include "support.h"
#include "support/slowdown.h"

namespace finegemm::jit {
namespace {

using namespace test;
using namespace std::chrono_literals;

constexpr int64_t kPlenty = 1 << 20;
const Digest kKey{1, 2};

struct Caches : testing::Test {
    TemporaryDirectory home;
    std::string directory = home.path() + "/a/b";
    DiskCache cache{directory, kPlenty};

    std::string file(const Digest& key) const { return directory + "/" + key.hex() + ".kernel"; }
    void set_age(const Digest& key, std::chrono::seconds age) {
        fs::last_write_time(file(key), fs::file_time_type::clock::now() - age);
    }
    size_t files() const {
        size_t n = 0;
        for (const auto& item : fs::directory_iterator(directory)) n += item.path().filename() != "lock";
        return n;
    }
};

TEST_F(Caches, MakeAKernelOnceAndReadItLater) {
    int made = 0;
    const auto make = [&] { return ++made, std::string("bytes\0with a zero", 17); };
    EXPECT_FALSE(cache.read(kKey));
    EXPECT_EQ(cache.get(kKey, "entry", make).size(), 17u);
    EXPECT_EQ(cache.get(kKey, "entry", make), make());
    EXPECT_EQ(made, 2) << "one by the cache, one by this test";
    EXPECT_FALSE(cache.read({1, 3}));
    EXPECT_FALSE(cache.read({2, 2}));
}

TEST_F(Caches, ListWhatTheyHaveNewestFirstAndClearIt) {
    cache.write(kKey, "finegemm_old", std::string(100, 'x'));
    cache.write({3, 4}, "finegemm_new", std::string(50, 'y'));
    set_age(kKey, 60s);
    const auto entries = cache.list();
    ASSERT_EQ(entries.size(), 2u);
    EXPECT_EQ(entries[0].entry, "finegemm_new");
    EXPECT_EQ(entries[1].entry, "finegemm_old");
    EXPECT_NEAR(static_cast<double>(entries[1].age_seconds), 60, 5);
    EXPECT_EQ(entries[1].bytes, static_cast<int64_t>(fs::file_size(file(kKey))));
    EXPECT_EQ(cache.clear(), 2);
    EXPECT_TRUE(cache.list().empty());
    EXPECT_FALSE(cache.read(kKey));
}

TEST_F(Caches, ListAndClearNothingWhereThereIsNoDirectory) {
    EXPECT_TRUE(cache.list().empty());
    EXPECT_EQ(cache.clear(), 0);
    EXPECT_FALSE(fs::exists(directory)) << "only writing makes it";
}

TEST_F(Caches, LeaveFilesOfOthersAlone) {
    cache.write(kKey, "entry", "bytes");
    write_text(directory + "/notes.txt", "mine");
    cache.clear();
    EXPECT_EQ(read_text(directory + "/notes.txt"), "mine");
}

TEST_F(Caches, PassOverADirectoryThatOthersCanWrite) {
    cache.write(kKey, "entry", "bytes");
    fs::permissions(directory, fs::perms::others_write, fs::perm_options::add);
    EXPECT_NE(cache.distrust().find("can be written by others"), std::string::npos);
    EXPECT_FALSE(cache.read(kKey));
    EXPECT_FALSE(cache.write({3, 4}, "entry", "bytes"));
    EXPECT_EQ(cache.get(kKey, "entry", [] { return "made"; }), "made");
    EXPECT_EQ(files(), 1u) << "nothing is written there";
    EXPECT_EQ(DiskCache(directory, kPlenty, directory).read(kKey), "bytes") << "unless it is named as trusted";
}

TEST_F(Caches, PassOverAFileThatOthersCanWriteOrThatIsALink) {
    cache.write(kKey, "entry", "bytes");
    fs::permissions(file(kKey), fs::perms::group_write, fs::perm_options::add);
    EXPECT_FALSE(cache.read(kKey));
    fs::permissions(file(kKey), fs::perms::group_write, fs::perm_options::remove);
    EXPECT_EQ(cache.read(kKey), "bytes");
    fs::rename(file(kKey), directory + "/elsewhere");
    fs::create_symlink(directory + "/elsewhere", file(kKey));
    EXPECT_FALSE(cache.read(kKey));
    EXPECT_EQ(cache.get(kKey, "entry", [] { return "made"; }), "made");
    EXPECT_EQ(cache.read(kKey), "made") << "its own file is in the place of the link";
    EXPECT_EQ(read_text(directory + "/elsewhere").find("made"), std::string::npos) << "what it led to is untouched";
}

TEST_F(Caches, AreForTheirOwnerAlone) {
    cache.write(kKey, "entry", "bytes");
    cache.get({3, 4}, "entry", [] { return "made"; });
    EXPECT_EQ(fs::status(directory).permissions(), fs::perms::owner_all);
    for (const auto& item : fs::directory_iterator(directory))
        EXPECT_EQ(item.status().permissions(), fs::perms::owner_read | fs::perms::owner_write) << item.path();
}

TEST_F(Caches, WithoutDirectoryOrLimitOnlyMake) {
    for (const DiskCache& off : {DiskCache("", kPlenty), DiskCache(directory, 0)}) {
        EXPECT_FALSE(off.enabled());
        EXPECT_EQ(off.get(kKey, "entry", [] { return "made"; }), "made");
        EXPECT_FALSE(off.write(kKey, "entry", "bytes"));
        EXPECT_FALSE(off.read(kKey));
    }
    EXPECT_FALSE(fs::exists(directory));
}

TEST_F(Caches, TakeATornFileForAbsentRemoveItAndMakeItAgain) {
    cache.write(kKey, "entry", "the bytes");
    const std::string whole = read_text(file(kKey));
    for (size_t length = 0; length < whole.size(); ++length) {
        write_text(file(kKey), whole.substr(0, length));
        EXPECT_FALSE(cache.read(kKey)) << length;
        EXPECT_FALSE(fs::exists(file(kKey))) << length;
    }
    write_text(file(kKey), whole + "more");
    EXPECT_EQ(cache.get(kKey, "entry", [] { return "made again"; }), "made again");
    EXPECT_EQ(cache.read(kKey), "made again");
}

TEST_F(Caches, NoticeAnyFlippedBit) {
    cache.write(kKey, "entry", "the bytes");
    const std::string whole = read_text(file(kKey));
    for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
        std::string damaged = whole;
        damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
        write_text(file(kKey), damaged);
        EXPECT_FALSE(cache.read(kKey)) << bit;
    }
}

TEST_F(Caches, RemoveWhatWasNotUsedForLongestWhenTheLimitIsPassed) {
    const DiskCache small(directory, 3500);
    for (uint64_t i = 0; i < 3; ++i) {
        small.write({0, i}, "entry", std::string(1000, 'x'));
        set_age({0, i}, std::chrono::seconds(100 - i));
    }
    EXPECT_TRUE(small.read({0, 0})) << "reading is using";
    small.write({0, 3}, "entry", std::string(1000, 'x'));
    EXPECT_TRUE(fs::exists(file({0, 0})));
    EXPECT_FALSE(fs::exists(file({0, 1})));
    EXPECT_TRUE(fs::exists(file({0, 2})));
    EXPECT_TRUE(fs::exists(file({0, 3})));
}

TEST_F(Caches, ReturnAKernelThatIsLargerThanTheLimitAndKeepNothing) {
    const DiskCache small(directory, 100);
    EXPECT_EQ(small.get(kKey, "entry", [] { return std::string(1000, 'x'); }).size(), 1000u);
    EXPECT_EQ(files(), 0u);
}

TEST_F(Caches, RemoveWhatADeadWriterLeftAfterAnHour) {
    cache.write(kKey, "entry", "bytes");
    write_text(directory + "/.tmp-old", "half");
    write_text(directory + "/.tmp-new", "half");
    fs::last_write_time(directory + "/.tmp-old", fs::file_time_type::clock::now() - 2h);
    cache.write({3, 4}, "entry", "bytes");
    EXPECT_FALSE(fs::exists(directory + "/.tmp-old"));
    EXPECT_TRUE(fs::exists(directory + "/.tmp-new"));
}

TEST_F(Caches, OfAReadOnlyDirectoryGiveWhatIsThereAndMakeTheRest) {
    cache.write(kKey, "entry", "bytes");
    fs::permissions(file(kKey), fs::perms(0444));
    for (const std::string& d : {home.path(), home.path() + "/a", directory}) fs::permissions(d, fs::perms(0555));
    const int status = finish(start([&] {
        if (geteuid() == 0 && setuid(65534) != 0) return 1;  // permissions do not bind root
        if (cache.read(kKey) != "bytes") return 2;
        if (cache.write({3, 4}, "entry", "more")) return 3;
        return cache.get({3, 4}, "entry", [] { return "made"; }) == "made" ? 0 : 4;
    }));
    for (const std::string& d : {home.path(), home.path() + "/a", directory}) fs::permissions(d, fs::perms::owner_all);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(cache.list().size(), 1u);
}

TEST_F(Caches, BelowAFileOrInProcOnlyMake) {
    write_text(home.path() + "/file", "");
    for (const std::string& place :
         {home.path() + "/file/cache", std::string("/proc/finegemm"), std::string("/dev/full")}) {
        const DiskCache nowhere(place, kPlenty);
        EXPECT_EQ(nowhere.get(kKey, "entry", [] { return "made"; }), "made") << place;
        EXPECT_TRUE(nowhere.list().empty()) << place;
    }
}

TEST_F(Caches, OnAFullDiskOnlyMakeAndLeaveNothingBehind) {
    const int status = finish(start([&] {
        signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{.rlim_cur = 100, .rlim_max = 100};  // no file of this process grows beyond 100 bytes
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
        return cache.get(kKey, "entry", [] { return std::string(1000, 'x'); }) == std::string(1000, 'x') ? 0 : 2;
    }));
    EXPECT_EQ(status, 0);
    EXPECT_EQ(files(), 0u);
}

TEST_F(Caches, PassOnAFailureToMakeAndTryAgainNextTime) {
    EXPECT_THROW(cache.get(kKey, "entry", []() -> std::string { throw Error(Errc::Compile, "no"); }), Error);
    EXPECT_EQ(cache.get(kKey, "entry", [] { return "made"; }), "made");
}

TEST_F(Caches, HitInAFifthOfAMillisecond) {
    cache.write(kKey, "FineGEMM_e4m3_gemm_m128n128s6w2", std::string(24 << 10, 'x'));
    std::vector<double> times;
    for (int i = 0; i < 101; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        ASSERT_TRUE(cache.read(kKey));
        times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    }
    std::nth_element(times.begin(), times.begin() + 50, times.end());
    RecordProperty("median_ms", std::to_string(times[50]));
    EXPECT_LE(times[50], 0.2 * finegemm::test::kSlowdown);
}

}  // namespace
}  // namespace finegemm::jit
