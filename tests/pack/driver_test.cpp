// Packs and drivers: which code a driver is given, and that it loads it.
#include <algorithm>
#include <fstream>

#include <finegemm/error.h>

#include "cuda/kernel.h"
#include "engine/pack_contents.h"
#include "jit/cubin.h"
#include "support.h"
#include "support/hopper.h"
#include "support/private_folder.h"

namespace finegemm {
namespace {

using test::error_of;

class Drivers : public test::HopperTest {
protected:
    void SetUp() override {
        if (jit::embedded_packs().size() < 2) GTEST_SKIP() << "this library was not built with packs for two CUDAs";
    }
    cuda::Kernel load(const std::string& cubin) const {
        return {device, cubin, source.entry, {.block = 384, .cluster = 1, .smem_bytes = 1024}};
    }
    /// The machine code of the kernel that a first call on the GPU gets, without a compiler or a cache.
    jit::Origin origin_of_first_call() const {
        Options options = backend_options();
        options.nvrtc_path = options.nvcc_path = "/nowhere";
        jit::Binary got;
        const jit::KernelStore store(options, device.driver().version / 1000);
        const auto hopper =
            make_hopper_backend(options, 0, [&](const jit::KernelSource& s) { return got = store.get(s); });
        hopper->gemm({test::operands(64, 4096, 4096), {}});
        return got.origin;
    }

    const jit::KernelSource source = pack_contents().front();
    cuda::Device device{cuda::Driver::open(FINEGEMM_MOCK_DRIVER), 0};
};

TEST_F(Drivers, OfCuda12LoadThePackOfCuda12AndRefuseThatOf13) {
    ASSERT_EQ(device.driver().version, 12040);
    EXPECT_NO_THROW(load(*jit::embedded_pack(12).find(source)));
    EXPECT_EQ(error_of([&] { load(*jit::embedded_pack(13).find(source)); }).code(), Errc::Driver);
    EXPECT_EQ(origin_of_first_call(), jit::Origin::Pack);
}

TEST_F(Drivers, OfCuda13LoadBoth) {
    mock->version = 13000;
    for (const int cuda : {12, 13}) EXPECT_NO_THROW(load(*jit::embedded_pack(cuda).find(source))) << cuda;
    EXPECT_EQ(origin_of_first_call(), jit::Origin::Pack);
}

TEST_F(Drivers, AreGivenTheNewestCodeThatTheyLoad) {
    for (const int cuda : {12, 13}) {
        const jit::KernelStore store(backend_options(), cuda);
        EXPECT_EQ(store.get(source).cubin, *jit::embedded_pack(cuda).find(source)) << cuda;
    }
    EXPECT_NE(jit::code_digest(*jit::embedded_pack(12).find(source)),
              jit::code_digest(*jit::embedded_pack(13).find(source)));
}

TEST_F(Drivers, AreGivenNoCodeOfAPackInAFileThatIsNewerThanTheyAre) {
    const test::PrivateFolder folder;
    Options options = backend_options();
    options.pack_path = folder.path() + "/kernels.pack";
    for (const jit::EmbeddedPack& file : jit::embedded_packs()) {
        std::ofstream(options.pack_path, std::ios::binary) << file.bytes;
        for (const int cuda : {12, 13}) {
            const std::string cubin = jit::KernelStore(options, cuda).get(source).cubin;
            EXPECT_EQ(jit::cuda_of(cubin), std::min(cuda, file.cuda)) << "file of " << file.cuda;
        }
    }
}

}  // namespace
}  // namespace finegemm
