// One GPU. Layer cuda.
#include "cuda/device.h"

#include <fmt/format.h>

#include <finegemm/error.h>

namespace finegemm::cuda {

Device::Device(std::shared_ptr<const Driver> driver, int index) : driver_(std::move(driver)) {
    const Api& api = driver_->api;
    if (index < 0 || index >= driver_->devices)
        throw Error(Errc::InvalidArgument,
                    fmt::format("device {} does not exist: the driver sees {} GPU(s), numbered from 0; pass the index "
                                "of one",
                                index, driver_->devices));
    driver_->check(api.DeviceGet(&handle_, index), "cuDeviceGet");
    char name[256] = {};
    driver_->check(api.DeviceGetName(name, sizeof name, handle_), "cuDeviceGetName");
    facts_ = {.name = name,
              .index = index,
              .major = attribute(DeviceAttribute::ComputeMajor),
              .minor = attribute(DeviceAttribute::ComputeMinor),
              .sms = static_cast<uint32_t>(attribute(DeviceAttribute::MultiprocessorCount)),
              .smem_bytes = static_cast<uint32_t>(attribute(DeviceAttribute::MaxSharedMemoryOptin)),
              .l2_bytes = static_cast<uint32_t>(attribute(DeviceAttribute::L2Bytes)),
              .clock_ghz = attribute(DeviceAttribute::ClockRateKhz) * 1e-6,
              // two transfers per clock: kHz * 2 * bits / 8 is bytes per ms
              .memory_bytes_per_us =
                  attribute(DeviceAttribute::MemoryClockKhz) * 1e-3 * 2 * attribute(DeviceAttribute::BusWidthBits) / 8};
    driver_->check(api.DevicePrimaryCtxRetain(&context_, handle_), "cuDevicePrimaryCtxRetain");
}

Device::~Device() {
    if (driver_->process.is_this()) driver_->api.DevicePrimaryCtxRelease(handle_);
}

int Device::attribute(DeviceAttribute which) const {
    int value = 0;
    driver_->check(driver_->api.DeviceGetAttribute(&value, static_cast<int>(which), handle_), "cuDeviceGetAttribute");
    return value;
}

CurrentDevice::CurrentDevice(const Device& device) : device_(device) {
    const Driver& driver = device.driver();
    ContextHandle current = nullptr;
    driver.check(driver.api.CtxGetCurrent(&current), "cuCtxGetCurrent");
    if (current == device.context()) return;
    driver.check(driver.api.CtxPushCurrent(device.context()), "cuCtxPushCurrent");
    pushed_ = true;
}

CurrentDevice::~CurrentDevice() {
    ContextHandle popped = nullptr;
    if (pushed_) device_.driver().api.CtxPopCurrent(&popped);
}

RelaxedCapture::RelaxedCapture(const Driver& driver) : driver_(driver), mode_(kRelaxedCapture) {
    driver.check(driver.api.ThreadExchangeStreamCaptureMode(&mode_), "cuThreadExchangeStreamCaptureMode");
}

RelaxedCapture::~RelaxedCapture() { driver_.api.ThreadExchangeStreamCaptureMode(&mode_); }

}  // namespace finegemm::cuda
