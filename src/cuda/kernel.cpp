// Kernels on the device. Layer cuda.
#include "cuda/kernel.h"

#include <fmt/format.h>

#include <finegemm/error.h>

namespace finegemm::cuda {

namespace {

/// A launch's configuration, with room for the attributes that it points to.
struct Launch {
    LaunchAttribute attributes[2];
    LaunchConfig config;

    Launch(const LaunchShape& shape, uint32_t grid, StreamHandle stream, bool overlap) {
        config.grid[0] = grid;
        config.block[0] = shape.block;
        config.smem_bytes = shape.smem_bytes;
        config.stream = stream;
        config.attributes = attributes;
        if (shape.cluster > 1) {
            LaunchAttribute& cluster = attributes[config.attribute_count++];
            cluster.id = kClusterDimension;
            cluster.value.cluster[0] = shape.cluster;
            cluster.value.cluster[1] = cluster.value.cluster[2] = 1;
        }
        if (overlap) {
            LaunchAttribute& programmatic = attributes[config.attribute_count++];
            programmatic.id = kProgrammaticSerialization;
            programmatic.value.allowed = 1;
        }
    }
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;
};

}  // namespace

Kernel::Kernel(const Device& device, const std::string& cubin, const std::string& entry, const LaunchShape& shape)
    : device_(device), entry_(entry), shape_(shape) {
    const Driver& driver = device.driver();
    const Api& api = driver.api;
    const CurrentDevice current(device);
    const RelaxedCapture relaxed(driver);
    driver.check(api.LibraryLoadData(&library_, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
                 "cuLibraryLoadData(" + entry + ")");
    try {
        KernelHandle kernel = nullptr;
        driver.check(api.LibraryGetKernel(&kernel, library_, entry.c_str()), "cuLibraryGetKernel(" + entry + ")");
        driver.check(api.KernelGetFunction(&function_, kernel), "cuKernelGetFunction(" + entry + ")");
        driver.check(api.FuncSetAttribute(function_, kMaxDynamicSharedMemory, static_cast<int>(shape.most_smem_bytes)),
                     "cuFuncSetAttribute(" + entry + ")");
        resident_ = occupancy();
    } catch (...) {
        api.LibraryUnload(library_);
        throw;
    }
}

Kernel::~Kernel() {
    const Driver& driver = device_.driver();
    if (driver.process.is_this()) driver.api.LibraryUnload(library_);
}

uint32_t Kernel::occupancy() const {
    const Driver& driver = device_.driver();
    const DeviceFacts& facts = device_.facts();
    int resident = 0;
    if (shape_.cluster > 1) {
        const Launch launch(shape_, shape_.cluster, nullptr, false);
        driver.check(driver.api.OccupancyMaxActiveClusters(&resident, function_, &launch.config),
                     "cuOccupancyMaxActiveClusters(" + entry_ + ")");
    } else {
        driver.check(driver.api.OccupancyMaxActiveBlocksPerMultiprocessor(
                         &resident, function_, static_cast<int>(shape_.block), shape_.smem_bytes),
                     "cuOccupancyMaxActiveBlocksPerMultiprocessor(" + entry_ + ")");
        resident *= static_cast<int>(facts.sms);
    }
    if (resident < 1)
        throw Error(Errc::Unsupported,
                    fmt::format("GPU {} ({}, {} SMs) cannot hold a cluster of {} CTAs with {} bytes of shared memory "
                                "each, which {} needs; name another kernel in `config`",
                                facts.index, facts.name, facts.sms, shape_.cluster, shape_.smem_bytes, entry_));
    return static_cast<uint32_t>(resident);
}

void Kernel::launch(uint32_t grid, const void* parameters, StreamHandle stream, bool overlap,
                    uint32_t smem_bytes) const {
    Launch launch(shape_, grid, stream, overlap);
    if (smem_bytes > 0) launch.config.smem_bytes = smem_bytes;
    void* arguments[] = {const_cast<void*>(parameters)};
    const Driver& driver = device_.driver();
    if (const Result result = driver.api.LaunchKernelEx(&launch.config, function_, arguments, nullptr); result != 0)
        driver.check(result, "cuLaunchKernelEx(" + entry_ + ")");
}

}  // namespace finegemm::cuda
