// Packs: built, read, damaged, outdated.
#include <cstring>

#include <finegemm/error.h>

#include "jit/digest.h"
#include "jit/kernel_store.h"
#include "jit/pack.h"
#include "support.h"

namespace finegemm::jit {
namespace {

/// "Compiles" by repeating the text.
class Repeater final : public Toolchain {
public:
    std::string identity() const override { return "repeater"; }
    std::string path() const override { return "here"; }

protected:
    Output translate(const KernelSource& source) const override {
        if (source.text == "wrong") throw Error(Errc::Compile, "cannot repeat that");
        std::string cubin;
        for (int i = 0; i < 100; ++i) cubin += source.text;
        return {cubin, "log of " + source.entry};
    }
};

std::vector<KernelSource> sources(size_t count) {
    std::vector<KernelSource> out;
    for (size_t i = 0; i < count; ++i) out.push_back({"entry_" + std::to_string(i), "text " + std::to_string(i)});
    return out;
}

TEST(Packs, ReturnEveryKernelTheyWereBuiltFromAndNoOther) {
    const auto in = sources(20);
    std::vector<std::string> logs;
    std::vector<size_t> progress;
    const std::string bytes = build_pack(
        in, Repeater(), 4, [&](size_t done, size_t of, const std::string&) { progress.push_back(done * 100 + of); },
        &logs);
    const Pack pack(bytes);
    EXPECT_EQ(pack.size(), 20u);
    EXPECT_EQ(pack.bytes(), bytes.size());
    for (size_t i = 0; i < in.size(); ++i) {
        EXPECT_EQ(pack.find(in[i]), Repeater().compile(in[i]).cubin) << i;
        EXPECT_EQ(logs[i], "log of " + in[i].entry);
        EXPECT_EQ(progress[i], (i + 1) * 100 + 20);
    }
    EXPECT_FALSE(pack.find({in[3].entry, in[4].text}));
    EXPECT_FALSE(pack.find({in[4].entry, in[3].text}));
    EXPECT_FALSE(pack.find({in[3].entry, in[3].text + " "})) << "a source that has changed since";
    EXPECT_FALSE(pack.find({in[3].entry, in[3].text, 8})) << "machine code with another yield interval";
}

TEST(Packs, AreTheSameBytesHoweverManyThreadsBuildThem) {
    EXPECT_EQ(build_pack(sources(20), Repeater(), 1, nullptr), build_pack(sources(20), Repeater(), 4, nullptr));
}

TEST(Packs, OfNothingAreEmpty) {
    EXPECT_EQ(Pack().size(), 0u);
    EXPECT_FALSE(Pack().find({"entry", "text"}));
    EXPECT_EQ(Pack(build_pack({}, Repeater(), 1, nullptr)).size(), 0u);
    EXPECT_EQ(Pack("").size(), 0u);
    EXPECT_EQ(Pack("not a pack, but long enough to be one").size(), 0u);
}

TEST(Packs, ThatAreDamagedAreEmpty) {
    const auto in = sources(2);
    const std::string whole = build_pack(in, Repeater(), 1, nullptr);
    for (size_t length = 0; length < whole.size(); ++length)
        EXPECT_EQ(Pack(std::string_view(whole).substr(0, length)).size(), 0u);
    for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
        std::string damaged = whole;
        damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
        const Pack pack(damaged);
        for (const KernelSource& s : in)
            if (const auto found = pack.find(s)) {
                EXPECT_EQ(found, Repeater().compile(s).cubin) << "bit " << bit;
            }
    }
}

TEST(Packs, ThatSayAKernelIsLargerThanAnyAreWithoutIt) {
    const KernelSource source{"entry", std::string(1000, 'x')};
    std::string pack = build_pack({&source, 1}, Repeater(), 1, nullptr);
    constexpr size_t kCheck = 16, kBody = 24, kFrame = 56;
    // zstd's header: a magic number, a byte that says how wide the content's size is, then that.
    ASSERT_EQ(static_cast<uint8_t>(pack[kFrame + 4]) >> 6, 2) << "four bytes";
    for (size_t i = 0; i < 4; ++i) pack[kFrame + 5 + i] = '\xff';
    const uint64_t check = checksum(std::string_view(pack).substr(kBody));
    std::memcpy(&pack[kCheck], &check, sizeof check);
    EXPECT_EQ(Pack(pack).size(), 1u);
    EXPECT_FALSE(Pack(pack).find(source));
}

TEST(Packs, AreNotBuiltWhenAKernelDoesNotCompile) {
    auto in = sources(5);
    in[2].text = "wrong";
    EXPECT_THROW(build_pack(in, Repeater(), 2, nullptr), Error);
}

}  // namespace
}  // namespace finegemm::jit
