// Kernels on the device. Layer cuda.
#include "cuda/kernel.h"

namespace finegemm::cuda {

namespace {

/// While it lives, this thread may do what a capturing stream of the process would otherwise forbid: load modules.
class RelaxedCapture {
public:
    explicit RelaxedCapture(const Driver& driver) : driver_(driver) { driver_.api.ThreadExchangeStreamCaptureMode(&mode_); }
    ~RelaxedCapture() { driver_.api.ThreadExchangeStreamCaptureMode(&mode_); }
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;

private:
    const Driver& driver_;
    int mode_ = 2;   // CU_STREAM_CAPTURE_MODE_RELAXED
};

LaunchConfig config_of(const LaunchShape& shape, uint32_t grid, LaunchAttribute& attribute, StreamHandle stream) {
    LaunchConfig config;
    config.grid[0] = grid;
    config.block[0] = shape.block;
    config.smem_bytes = shape.smem_bytes;
    config.stream = stream;
    if (shape.cluster > 1) {
        attribute.value.cluster[0] = shape.cluster;
        attribute.value.cluster[1] = attribute.value.cluster[2] = 1;
        config.attributes = &attribute;
        config.attribute_count = 1;
    }
    return config;
}

}  // namespace

Kernel::Kernel(const Device& device, const std::string& cubin, const std::string& entry, const LaunchShape& shape)
    : device_(device), shape_(shape) {
    const Driver& driver = device.driver();
    const Api& api = driver.api;
    const CurrentDevice current(device);
    const RelaxedCapture relaxed(driver);
    driver.check(api.LibraryLoadData(&library_, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
                 "cuLibraryLoadData(" + entry + ")");
    try {
        driver.check(api.LibraryGetKernel(&kernel_, library_, entry.c_str()), "cuLibraryGetKernel(" + entry + ")");
        driver.check(api.KernelSetAttribute(kMaxDynamicSharedMemory, static_cast<int>(shape.smem_bytes), kernel_, device.handle()),
                     "cuKernelSetAttribute(" + entry + ")");
        int resident = 0;
        if (shape.cluster > 1) {
            LaunchAttribute attribute;
            const LaunchConfig config = config_of(shape, shape.cluster, attribute, nullptr);
            driver.check(api.OccupancyMaxActiveClusters(&resident, kernel_, &config), "cuOccupancyMaxActiveClusters(" + entry + ")");
        } else {
            driver.check(api.OccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel_, static_cast<int>(shape.block),
                                                                       shape.smem_bytes),
                         "cuOccupancyMaxActiveBlocksPerMultiprocessor(" + entry + ")");
            resident *= static_cast<int>(device.facts().sms);
        }
        resident_ = static_cast<uint32_t>(resident);
    } catch (...) {
        api.LibraryUnload(library_);
        throw;
    }
}

Kernel::~Kernel() { device_.driver().api.LibraryUnload(library_); }

void Kernel::launch(uint32_t grid, const void* parameters, StreamHandle stream) const {
    LaunchAttribute attribute;
    const LaunchConfig config = config_of(shape_, grid, attribute, stream);
    void* arguments[] = {const_cast<void*>(parameters)};
    device_.driver().check(device_.driver().api.LaunchKernelEx(&config, kernel_, arguments, nullptr), "cuLaunchKernelEx");
}

}  // namespace finegemm::cuda
