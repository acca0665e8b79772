// A profiler's library as NVTX 3 loads it, with what tests look at. Layer tests.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using Function = void (*)();

struct Tables {
    size_t struct_size;
    int (*module_table)(int module, Function*** table, unsigned* size);
};
struct VersionInfo {
    size_t struct_size;
    uint32_t version, reserved;
    void (*set_injection_version)(uint32_t version);
};

std::vector<std::string> texts;
int open_ranges = 0;

int push(const char* text) {
    texts.emplace_back(text);
    return open_ranges++;
}
int pop() { return --open_ranges; }

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

/// As profilers do it: goes through all modules, sets functions where they belong, and says 1.
EXPORT int InitializeInjectionNvtx2(const void* (*export_table)(uint32_t)) {
    const auto* version = static_cast<const VersionInfo*>(export_table(3));
    const auto* tables = static_cast<const Tables*>(export_table(1));
    if (!version || version->version < 2 || !tables || tables->struct_size < sizeof(Tables)) return 0;
    version->set_injection_version(3);
    for (int module = 1; module < 7; ++module) {
        Function** table = nullptr;
        unsigned size = 0;
        if (tables->module_table(module, &table, &size) != 1) return 0;
        for (unsigned i = 1; i < size; ++i)
            if (!table[i]) return 0;
        if (module != 1) continue;
        if (size < 12) return 0;
        *table[9] = reinterpret_cast<Function>(&push);
        *table[11] = reinterpret_cast<Function>(&pop);
    }
    Function** none = nullptr;
    return tables->module_table(7, &none, nullptr) == 0 ? 1 : 0;
}

EXPORT const std::vector<std::string>* mock_nvtx_texts() { return &texts; }
EXPORT int mock_nvtx_open_ranges() { return open_ranges; }
