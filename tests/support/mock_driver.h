// The control interface of the mock driver: found by dlsym in the library that tests give as the driver. Layer tests.
#pragma once

#include <cstdint>

#include <finegemm/core/params.h>

namespace finegemm::mock {

struct MapRecord {
    TensorMap map;             // what was handed out: the number of the record in its first word
    int type, swizzle, l2_promotion;
    const void* base;
    uint64_t cols, rows, stride;
    uint32_t box_cols, box_rows;
};

struct LaunchRecord {
    uint32_t grid, block, cluster, smem;
    void* stream;
    const char* entry;         // of the kernel
    GemmParams params;         // its argument's first sizeof(GemmParams) bytes
};

/// Everything a test sets or reads. One for each process: the mock is one library.
struct Control {
    // set
    int devices = 1, version = 13000, major = 9, minor = 0, init_result = 0;
    const char* name = "NVIDIA H200";
    const char* missing_entry = nullptr;   // an entry point that this driver does not have
    const char* failing_entry = nullptr;   // an entry point that returns `failure`
    int failure = 999;
    int capturing = 0;
    // read
    uint64_t calls = 0;
    uint64_t encodes = 0, launches = 0, loads = 0, unloads = 0, retains = 0, releases = 0, memsets = 0, copies = 0;
    int64_t pushed = 0;                    // contexts pushed and not popped
    MapRecord last_maps[8];                // a ring, by record number modulo 8
    LaunchRecord last_launch;
    struct { uint64_t address; uint64_t pitch, width, height; } last_memset;
};

}  // namespace finegemm::mock

/// `mock_control` is its name; it returns the one Control. `mock_reset` restores what tests set and clears what they read.
extern "C" finegemm::mock::Control* mock_control();
extern "C" void mock_reset();
