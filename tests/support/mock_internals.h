// What is inside the mock driver: its objects and how each call begins. Layer tests; only mock_driver.cpp includes it.
// Types are declared as cuda.h has them, not taken from the library: a wrong declaration there shows up here.
#pragma once

#include <cstdlib>
#include <memory>
#include <sstream>

#include "mock_driver.h"

namespace finegemm::mock {

// CUresult.
inline constexpr int kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kStubLibrary = 34, kNoDevice = 100,
                     kInvalidDevice = 101, kInvalidImage = 200, kInvalidContext = 201, kInvalidHandle = 400,
                     kNotFound = 500, kStreamCaptureUnsupported = 900;
inline constexpr char kElf[] = {0x7f, 'E', 'L', 'F'};  // how a cubin begins

/// The major version of CUDA whose compilers made a cubin, by the ABI version of its ELF header; 0 for a pretended one.
inline int cuda_of(const char* cubin) {
    constexpr char kClass64 = 2, kLittleEndian = 1, kAbiOfCuda13 = 8;
    if (cubin[4] != kClass64 || cubin[5] != kLittleEndian) return 0;  // a pretended one may end there
    return cubin[8] >= kAbiOfCuda13 ? 13 : 12;
}
inline constexpr int kFirstDevice = 70;  // a handle is not an index

struct LaunchAttribute {
    int id;
    char pad[4];
    union {
        unsigned cluster[3];
        int allowed;
        char bytes[64];
    } value;
};
struct LaunchConfig {
    unsigned grid[3], block[3], smem_bytes;
    void* stream;
    LaunchAttribute* attributes;
    unsigned attribute_count;
};

struct Context {
    int gpu;
};
struct Function {
    std::string entry;
    int gpu;                    // of its context
    int smem_bytes = 48 << 10;  // the most that it may ask for
};
struct Kernel {
    std::string entry;
    std::map<int, std::unique_ptr<Function>> functions;  // by GPU
};
struct Library {
    std::map<std::string, std::unique_ptr<Kernel>> kernels;
};

/// FINEGEMM_MOCK_KERNEL_US="entry=microseconds,...": for processes of which the driver is all that a test can steer.
inline std::map<std::string, double> kernel_us_of_environment() {
    std::map<std::string, double> times;
    const char* text = std::getenv("FINEGEMM_MOCK_KERNEL_US");
    std::istringstream list(text ? text : "");
    for (std::string item; std::getline(list, item, ',');)
        times[item.substr(0, item.find('='))] = std::stod(item.substr(item.find('=') + 1));
    return times;
}

struct Internals {
    Internals() { state.kernel_us = kernel_us_of_environment(); }
    State state;
    Context contexts[16] = {};
    std::map<Library*, std::unique_ptr<Library>> libraries;
    std::map<void*, Kernel*> kernels;
    std::map<void*, double> recorded_us;  // by event
    std::set<Function*> functions;
    std::map<void*, std::vector<Launch>> recorded;  // by stream, of those that are
    std::map<void*, unsigned long long> stream_ids;
    unsigned long long next_stream_id = 1;
};
inline Internals& internals() {
    static Internals i;
    return i;
}
inline State& state() { return internals().state; }

inline thread_local std::vector<Context*> stack;
inline thread_local int capture_mode = 0;  // global: the strictest

/// Whether a call that a capturing stream may forbid is forbidden now: a thread in relaxed mode may do it.
inline bool forbidden_in_capture() { return state().capturing && capture_mode != 2; }

/// One call of the driver: locked, logged, and failing if it was told so.
class Entry {
public:
    explicit Entry(const char* call) : lock_(state().mutex) {
        if (!state().recording) return;
        state().calls.emplace_back(call);
        const auto failure = state().failures.find(call);
        if (failure != state().failures.end() && failure->second.after-- <= 0) result = failure->second.code;
    }
    int result = kSuccess;

private:
    std::scoped_lock<std::mutex> lock_;
};

}  // namespace finegemm::mock
