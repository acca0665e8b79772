// NVML, opened at run time. Layer peers.
#include "peers/nvml.h"

#include <dlfcn.h>

#include <array>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "cuda/symbols.h"

namespace finegemm::nvml {

namespace {

constexpr const char* kLibrary = "libnvidia-ml.so.1";  // comes with the driver

bool resolve_all(void* lib, Api& api) {
    using cuda::resolve;
    return resolve(lib, api.Init, "nvmlInit_v2") && resolve(lib, api.Shutdown, "nvmlShutdown") &&
           resolve(lib, api.ErrorString, "nvmlErrorString") &&
           resolve(lib, api.SystemGetDriverVersion, "nvmlSystemGetDriverVersion") &&
           resolve(lib, api.DeviceGetHandleByPciBusId, "nvmlDeviceGetHandleByPciBusId_v2") &&
           resolve(lib, api.DeviceGetPowerUsage, "nvmlDeviceGetPowerUsage") &&
           resolve(lib, api.DeviceGetEnforcedPowerLimit, "nvmlDeviceGetEnforcedPowerLimit") &&
           resolve(lib, api.DeviceGetClockInfo, "nvmlDeviceGetClockInfo") &&
           resolve(lib, api.DeviceGetTemperature, "nvmlDeviceGetTemperature") &&
           resolve(lib, api.DeviceGetCurrentClocksThrottleReasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
}

/// Result of a query, or nothing where the GPU does not answer it.
template <typename T, typename Query>
std::optional<T> answer(const Query& query) {
    T value{};
    return query(&value) == 0 ? std::optional(value) : std::nullopt;
}

std::optional<double> watts(std::optional<unsigned> milliwatts) {
    return milliwatts ? std::optional(*milliwatts * 1e-3) : std::nullopt;
}

}  // namespace

std::vector<std::string> reasons_of(unsigned long long mask) {
    constexpr std::pair<unsigned long long, const char*> kReasons[] = {
        {kApplicationClocks, "applications clocks setting"},
        {kPowerCap, "SW power cap"},
        {kHwSlowdown, "HW slowdown"},
        {kSyncBoost, "sync boost"},
        {kSwThermal, "SW thermal slowdown"},
        {kHwThermal, "HW thermal slowdown"},
        {kPowerBrake, "HW power brake slowdown"},
        {kDisplayClocks, "display clock setting"}};
    std::vector<std::string> reasons;
    for (const auto& [bit, name] : kReasons)
        if (mask & bit) reasons.emplace_back(name);
    return reasons;
}

Monitor::Monitor(const std::string& pci_bus_id) {
    const auto refuse = [](const std::string& why) { throw Error(Errc::Unsupported, "no NVML: " + why); };
    void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);  // never closed: other users may have it open
    if (!library) refuse(dlerror());
    if (!resolve_all(library, api_)) refuse(fmt::format("{} lacks an entry point; update the driver", kLibrary));
    if (const int code = api_.Init()) refuse(fmt::format("nvmlInit failed: {}", api_.ErrorString(code)));
    if (const int code = api_.DeviceGetHandleByPciBusId(pci_bus_id.c_str(), &device_)) {
        const std::string why = api_.ErrorString(code);
        api_.Shutdown();
        refuse(fmt::format("it does not know the GPU at {}: {}", pci_bus_id, why));
    }
}

Monitor::~Monitor() { api_.Shutdown(); }

std::string Monitor::driver_version() const {
    std::array<char, 96> text{};
    return api_.SystemGetDriverVersion(text.data(), text.size()) == 0 ? text.data() : "unknown";
}

Reading Monitor::read() const {
    const auto reasons =
        answer<unsigned long long>([&](auto* to) { return api_.DeviceGetCurrentClocksThrottleReasons(device_, to); });
    return {
        .power_w = watts(answer<unsigned>([&](unsigned* to) { return api_.DeviceGetPowerUsage(device_, to); })),
        .power_limit_w =
            watts(answer<unsigned>([&](unsigned* to) { return api_.DeviceGetEnforcedPowerLimit(device_, to); })),
        .sm_mhz = answer<unsigned>([&](unsigned* to) { return api_.DeviceGetClockInfo(device_, kClockSm, to); }),
        .memory_mhz =
            answer<unsigned>([&](unsigned* to) { return api_.DeviceGetClockInfo(device_, kClockMemory, to); }),
        .celsius =
            answer<unsigned>([&](unsigned* to) { return api_.DeviceGetTemperature(device_, kTemperatureGpu, to); }),
        .slowed_by = reasons_of(reasons.value_or(0)),
    };
}

}  // namespace finegemm::nvml
