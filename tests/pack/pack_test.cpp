// The pack inside the library: complete, small, quick to read, and good machine code.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <random>

#include "engine/pack_contents.h"
#include "jit/cubin.h"
#include "ops/gemm/source.h"
#include "ops/prenorm/source.h"
#include "plan/plan.h"
#include "support.h"

namespace finegemm::jit {
namespace {

using EmbeddedPacks = test::WithPack;
INSTANTIATE_TEST_SUITE_P(Cuda, EmbeddedPacks, testing::ValuesIn(test::packs()), testing::PrintToStringParamName());
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EmbeddedPacks);  // a build with FINEGEMM_PACK=none

TEST(Library, HasAPackForEachCudaThatItWasBuiltFor) {
    if (test::packs().empty()) GTEST_SKIP() << "this library was built with FINEGEMM_PACK=none";
    EXPECT_TRUE(std::ranges::is_sorted(test::packs(), std::ranges::greater())) << "newest first";
    for (const int cuda : test::packs()) EXPECT_GT(embedded_pack(cuda).size(), 0u);
    EXPECT_EQ(embedded_pack(test::packs().back() - 1).size(), 0u) << "no driver is given code that it cannot load";
    EXPECT_EQ(embedded_pack(test::packs().front() + 1).size(), pack_contents().size())
        << "newer drivers take older code";
}

TEST(PackContents, OfProductsAloneHaveTheWordThatProgramsLookForInWhatAProfilerSaw) {
    size_t products = 0;
    for (const KernelSource& source : pack_contents()) products += source.entry.find("gemm_") != std::string::npos;
    EXPECT_EQ(products, plan::kernels().size());
    const auto has = [](const std::string& entry, const char* part) { return entry.find(part) < 97; };
    for (const GemmConfig& c : plan::kernels()) {
        const std::string entry = gemm_entry(c, plan::name_of(c));
        EXPECT_EQ(has(entry, "bf16_gemm_"), c.a.element == Element::BF16);
        EXPECT_EQ(has(entry, "bmn_bnk_mn_gemm_impl"), c.summed());
    }
    for (const PrenormConfig& c : prenorm_configs()) EXPECT_TRUE(has(source_of(c).entry, "tf32_hc_prenorm_gemm"));
}

TEST_P(EmbeddedPacks, HaveEveryKernelThatACallCanChooseInElevenKilobytesAndTwoMilliseconds) {
    const auto contents = pack_contents();
    EXPECT_EQ(pack.size(), contents.size());
    EXPECT_LE(pack.bytes(), contents.size() * 11 * 1024);
    std::vector<double> times;
    for (const KernelSource& source : contents) {
        const auto begin = std::chrono::steady_clock::now();
        const auto cubin =
            embedded_pack(GetParam()).find(source);  // as at the first call: the whole pack is verified too
        times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
        ASSERT_TRUE(cubin) << source.entry;
        EXPECT_TRUE(cubin->starts_with("\177ELF")) << source.entry;
        EXPECT_NE(cubin->find(source.entry), std::string::npos) << source.entry;
        EXPECT_TRUE(source.entry.starts_with("FineGEMM")) << source.entry << ": sanitizers are told to look for that";
        std::string again = *cubin;
        EXPECT_EQ(set_yield_hints(again, source.yield_interval) > 0, source.yield_interval > 0) << source.entry;
        EXPECT_EQ(again, *cubin) << source.entry << " has its yield hints already";
    }
    std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
    RecordProperty("median_ms", std::to_string(times[times.size() / 2]));
    RecordProperty("kilobytes", std::to_string(pack.bytes() / 1024));
    EXPECT_LE(times[times.size() / 2], 2);
}

/// An instruction's 16 bytes (jit/yield_hints.h).
struct Instruction {
    uint64_t low, high;
    uint32_t opcode() const { return low & 0xfff; }
    uint32_t target() const { return low >> 16 & 0xff; }
    uint32_t first() const { return low >> 24 & 0xff; }  // of an FFMA's operands
    uint32_t third() const { return high & 0xff; }
};
static_assert(sizeof(Instruction) == 16);

std::vector<Instruction> machine_code_of(const std::string& cubin) {
    std::vector<Instruction> code;
    for (const auto& [offset, bytes] : code_sections(cubin))
        for (uint64_t at = 0; at < bytes; at += sizeof(Instruction))
            std::memcpy(&code.emplace_back(), cubin.data() + offset + at, sizeof(Instruction));
    return code;
}

/// Where ptxas takes the lanes of a warp for parted it keeps addresses in vector registers, and moves those of each
/// block product into uniform ones between its instructions: ten moves for four of them, 5% of the time.
TEST_P(EmbeddedPacks, HaveKernelsWhoseAddressesOfProductsAreReadyInUniformRegisters) {
    constexpr uint32_t kHgmma = 0x9f0, kIgmma = 0x9f1, kQgmma = 0x9f3, kR2ur = 0x2ca, kFew = 4;
    for (const GemmConfig& config : plan::kernels()) {
        const KernelSource source = gemm_source(config, plan::name_of(config));
        // One before a loop of two, or those of a k-block.
        const uint32_t per_block = config.multiplies_mx_scales() ? 3 : 4;
        const bool integers = config.a.element == Element::I8;
        const uint32_t product = integers ? kIgmma : config.a.scaling == Scaling::None ? kHgmma : kQgmma;
        uint32_t products = 0, moves = 0, blocks_with_many = 0;
        for (const Instruction& instruction : machine_code_of(*pack.find(source))) {
            const uint32_t opcode = instruction.opcode();
            if (opcode == product && products++ % per_block == 0) moves = 0;
            if (opcode == kR2ur) ++moves;
            if (opcode == product && products % per_block == 0 && moves > kFew) ++blocks_with_many;
        }
        EXPECT_GT(products, 0u) << source.entry;
        EXPECT_EQ(products % per_block, 0u) << source.entry;
        EXPECT_EQ(blocks_with_many, 0u) << source.entry;
    }
}

/// Where an element of a block product and its sum are in one bank of registers, both even or both odd, a promotion
/// waits for its operands: 6 to 15% of the time with 128x128 tiles (store_f32.cuh). Kernels whose rows are found by
/// numbers store all by strips, and have not been spread.
TEST_P(EmbeddedPacks, HaveKernelsWhoseF32SumsAreNotInTheBankOfWhatIsAdded) {
    constexpr uint32_t kFfma = 0x223;
    for (const GemmConfig& config : plan::kernels()) {
        if (config.output != Output::F32 || config.math_warpgroups > 2 || config.b.scaling == Scaling::None ||
            finds_rows(config.finish))
            continue;
        const KernelSource source = gemm_source(config, plan::name_of(config));
        uint32_t additions = 0, in_one_bank = 0;
        for (const Instruction& x : machine_code_of(*pack.find(source))) {
            if (x.opcode() != kFfma || x.target() != x.third()) continue;
            ++additions;
            if (x.first() % 2 == x.third() % 2) ++in_one_bank;
        }
        EXPECT_GE(additions, config.wgmmas_m() * config.tile_n / 2) << source.entry;
        EXPECT_EQ(in_one_bank, 0u) << source.entry;
    }
}

TEST_P(EmbeddedPacks, HaveWhateverThePlannerChoosesFor100000RandomProblems) {
    std::map<std::string, bool> has;
    const auto expect_in_pack = [&](const GemmConfig& c, const plan::Problem& p) {
        const std::string name = plan::name_of(c);
        if (!has.contains(name)) has[name] = pack.find(gemm_source(c, name)).has_value();
        ASSERT_TRUE(has[name]) << name << " for " << p.m << " x " << p.n << " x " << p.k;
    };
    std::mt19937 random(1);
    const auto extent = [&](uint32_t step, int bits) {  // evenly over orders of magnitude, a multiple of `step`
        return step * static_cast<uint32_t>(std::exp2(std::uniform_real_distribution<>(0, bits)(random)));
    };
    const char* const devices[] = {"h200", "h100", "gh200", "h800", "h20"};
    for (int i = 0; i < 100'000; ++i) {
        plan::Problem p{.m = extent(1, 16),
                        .n = extent(8, 13),
                        .k = extent(16, 12),
                        .batch_invariant = random() % 4 == 0,
                        .num_sms = random() % 4 == 0 ? static_cast<uint32_t>(1 + random() % 140) : 0};
        switch (random() % 4) {
            case 0: break;
            case 1:
                p.groups = {Grouping::Rows, static_cast<uint32_t>(1 + random() % 1024)};
                p.groups.expected_m = random() % 2 == 0 ? ceil_div(p.m, p.groups.count) : 0;
                p.groups.alignment = 64u << random() % 3 & (random() % 2 == 0 ? ~0u : 0u);
                if (random() % 3 == 0) p.b = kRowScaled;
                p.batch_invariant = false;  // as problem_of has it: groups of rows always are
                break;
            case 2:
                p.groups = {Grouping::K, static_cast<uint32_t>(1 + random() % 1024)};
                p.k = extent(128, 9);
                [[fallthrough]];
            default:
                p.b.scaling = Scaling::Rows;
                p.d.element = p.groups.of_k() > 0 || random() % 2 == 0 ? DType::F32 : DType::BF16;
                p.d.accumulate = p.d.element == DType::F32 && random() % 2 == 0;
        }
        if (random() % 4 == 0) {
            const ElementType& of = *find_type(random() % 2 == 0 ? DType::BF16 : DType::F16);
            p.a = p.b = unscaled(of.operand.value());
            p.d.element = p.d.accumulate || random() % 2 == 0 ? DType::F32 : of.results[0];
        }
        const GemmConfig c = plan::choose(p, *plan::find_device(devices[random() % std::size(devices)])).config;
        expect_in_pack(c, p);
        expect_in_pack(plan::for_row_scales(c), p);
    }
    EXPECT_GT(has.size(), 105u) << "the problems should reach most kernels";
}

}  // namespace
}  // namespace finegemm::jit
