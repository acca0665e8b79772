// One GPU: its facts and its primary context. Layer cuda.
#pragma once

#include <memory>
#include <string>

#include "cuda/driver.h"

namespace finegemm::cuda {

struct DeviceFacts {
    std::string name;
    int index = 0;
    int major = 0, minor = 0;
    uint32_t sms = 0;
    uint32_t smem_bytes = 0;  // largest dynamic shared memory of a CTA
    uint32_t l2_bytes = 0;
    double clock_ghz = 0;
    double memory_bytes_per_us = 0;  // nominal
};

/// Retains the primary context, which is the one that the CUDA run-time API and so every framework uses.
class Device {
public:
    /// Throws Error(InvalidArgument) for an index that does not exist.
    Device(std::shared_ptr<const Driver> driver, int index);
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    const Driver& driver() const { return *driver_; }
    const DeviceFacts& facts() const { return facts_; }
    DeviceHandle handle() const { return handle_; }
    ContextHandle context() const { return context_; }

private:
    int attribute(DeviceAttribute which) const;

    std::shared_ptr<const Driver> driver_;
    DeviceFacts facts_;
    DeviceHandle handle_ = 0;
    ContextHandle context_ = nullptr;
};

/// Makes the device's context current for a scope and leaves the thread's own as it was.
class CurrentDevice {
public:
    explicit CurrentDevice(const Device& device);
    ~CurrentDevice();
    CurrentDevice(const CurrentDevice&) = delete;
    CurrentDevice& operator=(const CurrentDevice&) = delete;

private:
    const Device& device_;
    bool pushed_ = false;
};

/// While it lives, this thread may do what a capturing stream of the process would otherwise forbid: load kernels,
/// allocate.
class RelaxedCapture {
public:
    explicit RelaxedCapture(const Driver& driver);
    ~RelaxedCapture();
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;

private:
    const Driver& driver_;
    int mode_;  // the thread's own, to be put back
};

}  // namespace finegemm::cuda
