// A stand-in for libnvidia-ml.so.1 that knows the mock driver's GPU. Layer tests.
#include <cstring>

#define MOCK extern "C" __attribute__((visibility("default")))

namespace {
constexpr int kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6;
int device;
}  // namespace

MOCK int nvmlInit_v2() { return kSuccess; }
MOCK int nvmlShutdown() { return kSuccess; }
MOCK const char* nvmlErrorString(int code) { return code == kNotFound ? "Not Found" : "as the mock says"; }
MOCK int nvmlSystemGetDriverVersion(char* text, unsigned bytes) {
    std::strncpy(text, "580.00.01", bytes);
    return kSuccess;
}
MOCK int nvmlDeviceGetHandleByPciBusId_v2(const char* id, int** handle) {
    *handle = &device;
    return std::strcmp(id, "00000000:1b:00.0") == 0 ? kSuccess : kNotFound;
}
MOCK int nvmlDeviceGetPowerUsage(int*, unsigned* milliwatts) { return *milliwatts = 512'000, kSuccess; }
MOCK int nvmlDeviceGetEnforcedPowerLimit(int*, unsigned* milliwatts) { return *milliwatts = 700'000, kSuccess; }
MOCK int nvmlDeviceGetClockInfo(int*, int clock, unsigned* mhz) {
    if (clock != 1 && clock != 2) return kInvalidArgument;
    *mhz = clock == 1 ? 1755 : 3201;
    return kSuccess;
}
MOCK int nvmlDeviceGetTemperature(int*, int, unsigned*) { return kNotSupported; }
MOCK int nvmlDeviceGetCurrentClocksThrottleReasons(int*, unsigned long long* mask) {
    return *mask = 0x4 | 0x1, kSuccess;
}
