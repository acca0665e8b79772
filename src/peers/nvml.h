// Power, clocks and temperature of a GPU, from NVML, opened at run time. Layer peers. Own declarations of the few entry
// points and values that are used; a test holds them against nvml.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace finegemm::nvml {

// nvmlClockType_t, nvmlTemperatureSensors_t, nvmlClocksThrottleReasons.
inline constexpr int kClockSm = 1, kClockMemory = 2, kTemperatureGpu = 0;
inline constexpr unsigned long long kIdle = 0x1, kApplicationClocks = 0x2, kPowerCap = 0x4, kHwSlowdown = 0x8,
                                    kSyncBoost = 0x10, kSwThermal = 0x20, kHwThermal = 0x40, kPowerBrake = 0x80,
                                    kDisplayClocks = 0x100;

using DeviceHandle = struct DeviceTag*;

/// The entry points, named as in nvml.h without "nvml".
struct Api {
    int (*Init)();
    int (*Shutdown)();
    const char* (*ErrorString)(int);
    int (*SystemGetDriverVersion)(char*, unsigned bytes);
    int (*DeviceGetHandleByPciBusId)(const char*, DeviceHandle*);
    int (*DeviceGetPowerUsage)(DeviceHandle, unsigned* milliwatts);
    int (*DeviceGetEnforcedPowerLimit)(DeviceHandle, unsigned* milliwatts);
    int (*DeviceGetClockInfo)(DeviceHandle, int clock, unsigned* mhz);
    int (*DeviceGetTemperature)(DeviceHandle, int sensor, unsigned* celsius);
    int (*DeviceGetCurrentClocksThrottleReasons)(DeviceHandle, unsigned long long*);
};

/// NVML's readings at one moment; empty where it has none.
struct Reading {
    std::optional<double> power_w, power_limit_w;
    std::optional<unsigned> sm_mhz, memory_mhz, celsius;
    std::vector<std::string> slowed_by;  // why clocks are below their maximum, in NVML's words
};

class Monitor {
public:
    /// Monitors the GPU at this address on the bus. Throws Error(Unsupported) that says what is missing.
    explicit Monitor(const std::string& pci_bus_id);
    ~Monitor();
    Monitor(const Monitor&) = delete;
    Monitor& operator=(const Monitor&) = delete;

    /// "580.159.04"
    std::string driver_version() const;
    Reading read() const;

private:
    Api api_{};
    DeviceHandle device_ = nullptr;
};

/// The reasons of a mask, in NVML's words. An idle GPU is not slowed by anything.
std::vector<std::string> reasons_of(unsigned long long mask);

}  // namespace finegemm::nvml
