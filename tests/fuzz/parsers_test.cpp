// Everything that reads bytes from outside, on damaged and made-up bytes: an error of the promised kind, or a result
// that holds. Layer tests. FINEGEMM_FUZZ_ROUNDS: rounds of each, for a long run; the same bytes on every machine.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>

#include "cli/bench/indexer/scores.h"
#include "cli/bench/indexer/selection.h"
#include "cli/bench/prenorm.h"
#include "cli/bench/shapes.h"
#include "cli/files/checkpoint.h"
#include "cli/files/file_region.h"
#include "cli/support.h"
#include "jit/cubin.h"
#include "jit/disk_cache.h"
#include "jit/kernel_store.h"
#include "jit/pack.h"
#include "jit/yield_hints.h"
#include "ops/gemm/source.h"
#include "plan/fields.h"
#include "plan/plan.h"
#include "plan/table.h"
#include "support/private_folder.h"

namespace finegemm::test {
namespace {

int rounds() {
    const char* asked = std::getenv("FINEGEMM_FUZZ_ROUNDS");
    return asked ? std::atoi(asked) : 3000;
}

/// Changes texts and binary files where parsers look: bytes, lengths, repeated and missing parts, pieces of others.
class Mutator {
public:
    Mutator(std::vector<std::string> seeds, uint64_t seed) : seeds_(std::move(seeds)), random_(seed) {}

    std::string next() {
        std::string x = seeds_[below(seeds_.size())];
        for (size_t edits = 1 + below(4); edits > 0; --edits) edit(x);
        return x;
    }
    /// A number from 0 to end - 1; 0 where there is none.
    size_t below(size_t end) { return end == 0 ? 0 : random_() % end; }

private:
    void edit(std::string& x) {
        static constexpr const char* kWords[] = {"0",
                                                 "-1",
                                                 "1e999",
                                                 "9223372036854775807",
                                                 "18446744073709551616",
                                                 "null",
                                                 "{}",
                                                 "[]",
                                                 "\"\"",
                                                 "\\u0000",
                                                 ",",
                                                 ":",
                                                 "=",
                                                 "x",
                                                 "gemm ",
                                                 "#",
                                                 "\n",
                                                 "\xff",
                                                 "true"};
        const size_t at = below(x.size()), count = 1 + below(8);
        switch (below(7)) {
            case 0:
                if (!x.empty()) x[at] = static_cast<char>(random_());
                break;
            case 1: x.erase(at, count); break;
            case 2: x.insert(at, x.substr(below(x.size()), count)); break;
            case 3: x.insert(at, kWords[below(std::size(kWords))]); break;
            case 4: x.resize(at); break;
            case 5: set_number(x, at); break;
            case 6: {
                const std::string& other = seeds_[below(seeds_.size())];
                x = x.substr(0, at) + other.substr(below(other.size()));
            }
        }
    }
    /// A word of eight bytes as lengths and offsets are.
    void set_number(std::string& x, size_t at) {
        const uint64_t numbers[] = {0, 1, ~uint64_t{0}, uint64_t{1} << 63, uint64_t{1} << 32, random_() % 4096};
        if (x.size() < 8) return;
        std::memcpy(&x[std::min(at / 8 * 8, x.size() - 8)], &numbers[below(std::size(numbers))], 8);
    }

    std::vector<std::string> seeds_;
    std::mt19937_64 random_;
};

/// Calls `parse` with each changed text: it returns, having looked at its result, or throws an Error of these codes.
/// `one_in`: fewer rounds, for what goes through files.
void fuzz(const std::vector<std::string>& seeds, const std::vector<Errc>& codes,
          const std::function<void(const std::string&, Mutator&)>& parse, int one_in = 1) {
    Mutator mutator(seeds, 20261125);
    int taken = 0;
    for (int round = 0; round < rounds() / one_in && !testing::Test::HasFailure(); ++round) {
        const std::string x = mutator.next();
        try {
            parse(x, mutator);
            ++taken;
        } catch (const Error& e) {
            EXPECT_NE(std::ranges::find(codes, e.code()), codes.end()) << e.what() << '\n' << x;
            EXPECT_STRNE(e.what(), "");
        } catch (const std::exception& e) {
            ADD_FAILURE() << e.what() << '\n' << x;
        }
    }
    EXPECT_GT(taken, 0) << "nothing but errors: the changes are too wild to find anything";
}

void expect_inside(const cli::FileRegion& region, uint64_t file_bytes) {
    ASSERT_TRUE(region.rows >= 0 && region.cols >= 0);
    ASSERT_LE(region.offset, file_bytes);
    const auto room = static_cast<int64_t>((file_bytes - region.offset) / static_cast<uint64_t>(size_of(region.dtype)));
    ASSERT_TRUE(region.rows == 0 || region.cols <= room / region.rows) << region.rows << " x " << region.cols;
}

}  // namespace

TEST(Fuzz, HeadersOfNpy) {
    fuzz({npy("<f4", "3, 5", std::string(60, 'x')), npy("|u1", "2, 8", std::string(16, 'x'))}, {Errc::Io},
         [](const std::string& x, Mutator&) { expect_inside(cli::region_in_npy("x", x, x.size()), x.size()); });
}

TEST(Fuzz, HeadersOfSafetensors) {
    const std::string seed =
        safetensors(R"({"__metadata__":{"format":"pt"},"w":{"dtype":"BF16","shape":[3,5],)"
                    R"("data_offsets":[0,30]},"s":{"dtype":"F32","shape":[],"data_offsets":[30,34]}})",
                    std::string(34, 'x'));
    fuzz({seed}, {Errc::Io}, [](const std::string& x, Mutator& mutator) {
        const auto entry = cli::entry_in_safetensors("x", x, x.size(), mutator.below(2) ? "w" : "s");
        ASSERT_LE(entry.offset, x.size());
        ASSERT_LE(entry.bytes, x.size() - entry.offset);
        expect_inside(cli::region_in_safetensors("x", x, x.size(), "w"), x.size());
    });
}

TEST(Fuzz, CheckpointsWithScales) {
    const PrivateFolder folder;
    const std::string file = folder.path() + "/m.safetensors";
    const std::string seed = safetensors(R"({"w":{"dtype":"F8_E4M3","shape":[2,8],"data_offsets":[0,16]},)"
                                         R"("w_scale":{"dtype":"F8_E8M0","shape":[2,1],"data_offsets":[16,18]}})",
                                         std::string(18, '\x38'));
    fuzz(
        {seed}, {Errc::Io, Errc::InvalidArgument, Errc::OutOfMemory},
        [&](const std::string& x, Mutator&) {
            write_text(file, x);
            const cli::Weights w = cli::read_weights({file, "w", true});
            ASSERT_EQ(static_cast<int64_t>(w.values.bytes.size()),
                      w.values.rows * w.values.cols * size_of(w.values.dtype));
            ASSERT_EQ(w.scales ? w.scales->cols : 0, w.scales ? (w.values.cols + 127) / 128 : 0);
        },
        10);
}

TEST(Fuzz, IndexesOfShards) {
    fuzz({R"({"metadata":{"n":1},"weight_map":{"w":"a.safetensors","v":"b.safetensors"}})"}, {Errc::Io},
         [](const std::string& x, Mutator&) {
             const std::string shard = cli::shard_of("x", x, "w");
             ASSERT_EQ(shard.find('/'), shard.npos);
         });
}

TEST(Fuzz, LinesOfProblems) {
    fuzz({"gemm 64x2112x7168 e4m3:row128 e4m3:block128 bf16 groups=4 expected_m=16 alignment=64",
          "gemm 1x8x16 bf16 bf16 f32 accumulate num_sms=100", "gemm 8x16x256 k_groups=2  # cuda:0, pack"},
         {Errc::InvalidArgument}, [](const std::string& x, Mutator&) {
             const GemmShape shape = plan::parse_shape(x);
             plan::check_shape(shape);
             const plan::Problem problem = plan::problem_of(shape);
             const std::string line = plan::text_of(problem);
             ASSERT_EQ(plan::text_of(plan::problem_of(plan::parse_shape(line))), line) << x;
             plan::choose(problem, *plan::find_device("h200"));
         });
}

TEST(Fuzz, LinesOfScores) {
    fuzz(
        {"mqa_logits 2048x8192 64x128 f32 filled exact", "paged_mqa_logits 256x2x8192 32x64 page16 bf16 untouched abs"},
        {Errc::InvalidArgument}, [](const std::string& x, Mutator&) {
            const MqaShape shape = cli::parse_scores(x);
            ASSERT_TRUE(cli::is_scores(x)) << x;
            ASSERT_NE(explain(shape).find(shape.paged ? "FineGEMM_paged_mqa_logits_h" : "FineGEMM_mqa_logits_h"),
                      std::string::npos)
                << x;
        });
}

TEST(Fuzz, LinesOfSelections) {
    fuzz({"topk 2048 of 4096x32768 sorted histogram", "mqa_topk 7 of 20x90 8x32 abs logits untouched",
          "paged_mqa_topk 0 of 256x2x8192 64x128 page16 exact histogram"},
         {Errc::InvalidArgument}, [](const std::string& x, Mutator&) {
             const TopkShape shape = cli::parse_selection(x);
             ASSERT_TRUE(cli::is_selection(x)) << x;
             ASSERT_NE(explain(shape, "h200").find("\"FineGEMM_topk_c"), std::string::npos) << x;
         });
}

TEST(Fuzz, LinesOfProductsBeforeANorm) {
    fuzz({"prenorm_gemm 4096x24x7168 slices=16", "prenorm_gemm 1x8x64"}, {Errc::InvalidArgument},
         [](const std::string& x, Mutator&) {
             const PrenormShape shape = cli::parse_prenorm(x);
             ASSERT_TRUE(cli::is_prenorm(x)) << x;
             ASSERT_NE(explain(shape, "h200").find("\"FineGEMM_prenorm_"), std::string::npos) << x;
         });
}

TEST(Fuzz, PlanTables) {
    const plan::Problem problem{64, 4096, 4096};
    plan::PlanTable table{.device = "h200", .sms = 132, .version = "0.1.0"};
    table.entries.push_back({problem, plan::name_of(plan::candidates()[0]), 8.5, "other", 9.25});
    fuzz({plan::text_of(table)}, {Errc::InvalidArgument, Errc::Io}, [](const std::string& x, Mutator&) {
        const plan::PlanTable read = plan::parse_table(x, "x");
        ASSERT_EQ(plan::parse_table(plan::text_of(read), "x"), read) << x;
        for (const plan::TableEntry& e : read.entries) plan::fault(e, *plan::find_device("h200"));
    });
}

TEST(Fuzz, FilesOfShapes) {
    const PrivateFolder folder;
    const cli::ShapeOptions options{.shapes = {}, .table = {}, .file = folder.path() + "/shapes"};
    fuzz(
        {"[[8, 16, 128], \"gemm 8x16x128 groups=2\"]", R"({"rows": [{"shape": [8, 16, 128], "kind": "dense"}]})",
         "# log\ngemm 8x16x128 e4m3:row128 e4m3:block128 bf16  # 2 calls\n8x16x128\n"},
        {Errc::InvalidArgument, Errc::Io},
        [&](const std::string& x, Mutator&) {
            write_text(options.file, x);
            for (const cli::Shape& shape : cli::shapes_of(options, {}, {})) ASSERT_GT(shape.m, 0);
        },
        10);
}

namespace {

/// Stores the right checksum of a pack that was changed, for what lies behind that check.
void mend_pack(std::string& pack) {
    constexpr size_t kCheck = 16, kBody = 24;
    if (pack.size() < kBody) return;
    const uint64_t check = jit::checksum(std::string_view(pack).substr(kBody));
    std::memcpy(&pack[kCheck], &check, sizeof check);
}

class Copier final : public jit::Toolchain {
public:
    std::string identity() const override { return "copier"; }
    std::string path() const override { return "here"; }

protected:
    Output translate(const jit::KernelSource& source) const override { return {source.text, ""}; }
};

}  // namespace

TEST(Fuzz, Packs) {
    const std::vector<jit::KernelSource> sources{{"one", std::string(300, 'a')}, {"two", "text"}};
    fuzz({jit::build_pack(sources, Copier(), 1, nullptr)}, {}, [&](const std::string& x, Mutator& mutator) {
        std::string pack = x;
        if (mutator.below(4) > 0) mend_pack(pack);
        for (const jit::KernelSource& source : sources)
            ASSERT_LE(jit::Pack(pack).find(source).value_or("").size(), size_t{1} << 26);
    });
}

TEST(Fuzz, FilesOfTheDiskCache) {
    const PrivateFolder folder;
    const jit::DiskCache cache(folder.path(), 1 << 20);
    const jit::Digest key{1, 2};
    ASSERT_TRUE(cache.write(key, "entry", "the bytes of a kernel"));
    const std::string file = folder.path() + "/" + key.hex() + ".kernel";
    fuzz(
        {read_text(file)}, {},
        [&](const std::string& x, Mutator& mutator) {
            std::string content = x;
            constexpr size_t kCheck = 24, kBody = 32;
            if (mutator.below(4) > 0 && content.size() >= kBody) {
                const uint64_t check = jit::checksum(std::string_view(content).substr(kBody));
                std::memcpy(&content[kCheck], &check, sizeof check);
            }
            write_text(file, content);
            std::filesystem::permissions(file,
                                         std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
            ASSERT_LE(cache.read(key).value_or("").size(), content.size());
            cache.list();
        },
        10);
}

TEST(Fuzz, MachineCode) {
    const GemmConfig config = plan::candidates()[0];
    const auto cubin = jit::embedded_pack(jit::kNewestCuda).find(jit::gemm_source(config, plan::name_of(config)));
    if (!cubin) GTEST_SKIP() << "this build has no pack";
    fuzz({*cubin}, {}, [](const std::string& x, Mutator& mutator) {
        std::string changed = x;
        // Headers and tables of sections are a small part of the file.
        for (int edits = 0; edits < 4 && changed.size() > 64; ++edits)
            changed[mutator.below(64)] = static_cast<char>(mutator.below(256));
        jit::cuda_of(changed);
        for (const auto& section : jit::code_sections(changed)) {
            ASSERT_LE(section.offset, changed.size());
            ASSERT_LE(section.bytes, changed.size() - section.offset);
        }
        jit::set_yield_hints(changed, 8);
        ASSERT_EQ(changed.size(), x.size());
    });
}

}  // namespace finegemm::test
