// NVTX without its headers: a profiler fills tables of functions. Layer cuda.
#include "cuda/nvtx.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <mutex>

#include "cuda/symbols.h"

namespace finegemm::cuda {

namespace {

// Numbers of NVTX 3.
constexpr uint32_t kVersion = 3;
constexpr uint32_t kCallbacks = 1, kVersionInfo = 3;           // export tables
constexpr int kCore = 1;                                       // the module of ranges
constexpr size_t kRangePushA = 9, kRangePop = 11;              // in it
constexpr unsigned kModuleSizes[] = {0, 16, 9, 15, 7, 16, 7};  // by module; the first function is number 1
constexpr size_t kModules = std::size(kModuleSizes), kMost = 16;

using Function = void (*)();

struct Module {
    Function functions[kMost]{};
    Function* addresses[kMost + 1]{};  // null for number 0, and behind the last
};

// The protocol has no argument that could say whose tables a profiler asks for.
constinit Module modules[kModules];

struct Callbacks {
    size_t struct_size;
    int (*module_table)(int module, Function*** table, unsigned* size);
};
struct VersionInfo {
    size_t struct_size;
    uint32_t version, reserved;
    void (*set_injection_version)(uint32_t version);
};

/// 1 where there is such a module. What the addresses point to is the profiler's to set.
int module_table(int module, Function*** table, unsigned* size) {
    if (module < kCore || static_cast<size_t>(module) >= kModules) return 0;
    Module& m = modules[module];
    for (unsigned i = 1; i < kModuleSizes[module]; ++i) m.addresses[i] = &m.functions[i];
    if (table) *table = m.addresses;
    if (size) *size = kModuleSizes[module];
    return 1;
}

const void* export_table(uint32_t id) {
    static constexpr Callbacks kTables{sizeof(Callbacks), &module_table};
    static constexpr VersionInfo kInfo{sizeof(VersionInfo), kVersion, 0, [](uint32_t) {}};
    if (id == kCallbacks) return &kTables;
    return id == kVersionInfo ? &kInfo : nullptr;
}

Nvtx attached(const std::string& injection) {
    int (*initialize)(const void* (*)(uint32_t)) = nullptr;
    void* library = dlopen(injection.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: the profiler goes on
    if (!library || !cuda::resolve(library, initialize, "InitializeInjectionNvtx2") || initialize(&export_table) != 1)
        return {};
    const auto& set = modules[kCore].functions;
    return {reinterpret_cast<int (*)(const char*)>(set[kRangePushA]), reinterpret_cast<int (*)()>(set[kRangePop])};
}

}  // namespace

const Nvtx* attach_nvtx(const std::string& injection) {
    if (injection.empty()) return nullptr;
    static std::mutex mutex;
    static Nvtx nvtx;
    const std::scoped_lock lock(mutex);
    if (!nvtx.push) nvtx = attached(injection);
    return nvtx.push && nvtx.pop ? &nvtx : nullptr;
}

}  // namespace finegemm::cuda
