// finegemm doctor: what it finds, and what it says of what cannot work. Layer tests.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/support.h"

namespace finegemm::test {
namespace {

using nlohmann::json;

/// The finding of that name.
json finding(const std::string& what, const std::string& variables) {
    const json report = json::parse(finegemm("doctor --json", variables).out);
    for (const json& f : report.at("findings"))
        if (f.at("what") == what) return f;
    ADD_FAILURE() << "nothing is said of " << what;
    return {};
}

TEST(Doctor, WithoutAnythingTheLibraryStillWorks) {
    const TemporaryDirectory cache;
    const Ran ran = finegemm("doctor", "FINEGEMM_PACK=0 FINEGEMM_CACHE_DIR='" + cache.string() + "'");
    EXPECT_EQ(ran.code, 0) << ran.err;
    // What compilers this machine has is its own affair.
    std::string text = replaced(ran.out, cache.string(), "CACHE");
    for (const char* what : {"\nnvrtc ", "\nnvcc "}) {
        const size_t at = text.find(what),
                     end = text.find("\nnvcc ") == at ? text.find("\ncache ") : text.find("\nnvcc ");
        ASSERT_NE(at, std::string::npos) << text;
        text.erase(at, end - at);
    }
    expect_golden("doctor", text);
}

TEST(Doctor, JsonSaysWhatWasFoundOnAMachineWithAGpu) {
    const Ran ran = finegemm("doctor --json", "FINEGEMM_DRIVER='" FINEGEMM_MOCK_DRIVER "'");
    EXPECT_EQ(ran.code, 0) << ran.err;
    const json out = json::parse(ran.out);
    EXPECT_EQ(out.at("verdict"), "GEMMs run on the GPU");
    std::vector<std::string> order;
    for (const json& f : out.at("findings")) {
        order.push_back(f.at("what"));
        if (order.back() == "gpu") {
            EXPECT_EQ(f.at("detail"), "cuda:0: NVIDIA H200, compute capability 9.0, 132 SMs");
        }
        EXPECT_EQ(f.at("state") == "ok", !f.contains("remedy")) << f;
    }
    const std::vector<std::string> all{"cpu", "driver", "gpu", "nvrtc", "nvcc", "cache", "pack", "plan table"};
    EXPECT_EQ(order, all);
}

TEST(Doctor, ReportsWhatTheCacheHolds) {
    const TemporaryDirectory cache;
    write_text(cache / "00112233445566778899aabbccddeeff.kernel", "torn");
    const Ran ran = finegemm("doctor", "FINEGEMM_CACHE_DIR='" + cache.string() + "'");
    EXPECT_NE(ran.out.find(cache.string() + ": 1 kernels"), std::string::npos) << ran.out;
}

TEST(Doctor, ACacheThatCannotBeMadeIsBroken) {
    const TemporaryDirectory directory;
    write_text(directory / "file", "no directory");
    std::filesystem::create_symlink("nowhere", directory / "link");
    const auto of = [](const std::string& cache) { return finding("cache", "FINEGEMM_CACHE_DIR='" + cache + "'"); };
    for (const auto& [below, at] :
         {std::pair{"file", "file"}, {"file/", "file"}, {"file/a/b", "file"}, {"link", "link"}, {"link/a", "link"}}) {
        const json found = of(directory / below);
        EXPECT_EQ(found.at("state"), "broken") << found;
        const std::string fault = "; " + directory / at + " is no directory";
        EXPECT_TRUE(found.at("detail").get<std::string>().ends_with(fault)) << found;
        EXPECT_NE(found.at("remedy").get<std::string>().find("FINEGEMM_CACHE_DIR"), std::string::npos) << found;
    }
    for (const std::string& good : {directory.string(), directory / "new/a", std::string("not-there-yet/a")})
        EXPECT_EQ(of(good).at("state"), "ok") << of(good);
}

TEST(Doctor, SaysWhenACompilerIsNotTheOneThatAVariableNames) {
    const TemporaryDirectory directory;
    write_text(directory / "libnvrtc.so", "no library");
    for (const auto& [what, variable, wish] : {std::tuple{"nvrtc", "FINEGEMM_NVRTC", std::string("/nope")},
                                               {"nvrtc", "FINEGEMM_NVRTC", directory.string()},
                                               {"nvcc", "FINEGEMM_NVCC", "/nope"}}) {
        const std::string detail = finding(what, std::string(variable) + "='" + wish + "'").at("detail");
        EXPECT_NE(detail.find(wish), std::string::npos) << detail;
        if (!detail.starts_with("searched: ")) {  // there is another one on this machine
            EXPECT_NE(detail.find(std::string("; not that of ") + variable + ", as " + wish), std::string::npos)
                << detail;
        }
        EXPECT_EQ(finding(what, "").at("detail").get<std::string>().find("not that of"), std::string::npos);
    }
}

TEST(Doctor, NamesACompilerWhoseCodeTheDriverLoads) {
    const json found =
        finding("nvrtc", "VIRTUAL_ENV=/nope CUDA_HOME=/nope FINEGEMM_DRIVER='" FINEGEMM_MOCK_DRIVER "'");  // of CUDA 12
    if (found.at("state") == "ok") GTEST_SKIP() << "there is an NVRTC of CUDA 12 on this machine";
    EXPECT_NE(found.at("remedy").get<std::string>().find("`pip install nvidia-cuda-nvrtc-cu12`"), std::string::npos);
}

TEST(Doctor, SaysWhetherAPackInAFileIsGoodForTheDriver) {
    const std::string packs = FINEGEMM_GENERATED_DIR "/kernels_";
    for (const char* cuda : {"12", "13"})
        if (!std::filesystem::exists(packs + cuda + ".pack"))
            GTEST_SKIP() << "this build has made no pack for CUDA " << cuda;
    const TemporaryDirectory directory;
    const std::string file = directory / "kernels.pack",
                      variables = "FINEGEMM_DRIVER='" FINEGEMM_MOCK_DRIVER "' FINEGEMM_PACK='" + file + "'";
    const auto detail = [&](const char* state) {
        const json found = finding("pack file", variables);
        EXPECT_EQ(found.at("state"), state) << found;
        return found.at("detail").get<std::string>();
    };
    EXPECT_NE(detail("broken").find("cannot be read"), std::string::npos);
    std::filesystem::copy(packs + "12.pack", file);
    EXPECT_TRUE(detail("ok").ends_with("kernels by CUDA 12"));
    std::filesystem::permissions(file, std::filesystem::perms::group_write, std::filesystem::perm_options::add);
    EXPECT_NE(detail("broken").find("chmod go-w"), std::string::npos);
    std::filesystem::remove(file);
    std::filesystem::copy(packs + "13.pack", file);
    EXPECT_TRUE(detail("broken").ends_with("by CUDA 13, which a driver of CUDA 12 does not load"));
}

}  // namespace
}  // namespace finegemm::test
