// Kernels on the device: load a cubin, launch it. Layer cuda.
#pragma once

#include <string>
#include <string_view>

#include "cuda/device.h"

namespace finegemm::cuda {

/// Settings that all launches of a kernel share.
struct LaunchShape {
    uint32_t block = 1, cluster = 1, smem_bytes = 0;
    uint32_t most_smem_bytes = smem_bytes;  // that a launch may ask for
};

/// A loaded kernel, for launches while the device's context is current; the library is unloaded with it.
/// Loading is safe during stream capture.
class Kernel {
public:
    /// Throws Error(Driver), or Error(Unsupported) when the device cannot hold even one cluster.
    Kernel(const Device& device, const std::string& cubin, const std::string& entry, const LaunchShape& shape);
    ~Kernel();
    Kernel(const Kernel&) = delete;
    Kernel& operator=(const Kernel&) = delete;

    /// Clusters (CTAs, when they have one) that the device holds at once.
    uint32_t resident_clusters() const { return resident_; }
    /// `parameters` points to the kernel's only argument, which is copied. `overlap`: it may start before the kernel
    /// before it in the stream has ended, and waits for that itself. `smem_bytes`: 0 for those of all launches.
    void launch(uint32_t grid, const void* parameters, StreamHandle stream, bool overlap = false,
                uint32_t smem_bytes = 0) const;

private:
    uint32_t occupancy() const;

    const Device& device_;
    const std::string entry_;
    const LaunchShape shape_;
    LibraryHandle library_ = nullptr;
    FunctionHandle function_ = nullptr;  // of the device's primary context: launched faster than a CUkernel
    uint32_t resident_ = 0;
};

}  // namespace finegemm::cuda
