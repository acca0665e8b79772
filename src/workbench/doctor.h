// Facts about a machine that the library can use, for `finegemm doctor`, `cache` and `pack`. Layer api.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <finegemm/context.h>

namespace finegemm {

/// Missing: the library does without. Broken: it is there and does not work as it should.
enum class State { Ok, Missing, Broken };

struct Finding {
    std::string what;  // "cpu", "driver", "gpu", "nvrtc", "nvcc", "cache", "pack", "plan table"
    State state;
    std::string detail;  // what was found where, or what is wrong
    std::string remedy;  // what to do about it; empty when nothing
};

/// Looks at everything that GEMMs can use; never throws for what it finds.
std::vector<Finding> diagnose(const Options& options);

struct CacheEntry {
    std::string file, kernel;
    int64_t bytes = 0;
    int64_t age_seconds = 0;  // since it was last used
};
/// Last used first.
std::vector<CacheEntry> list_cache(const Options& options);
/// Returns how many files were removed.
int64_t clear_cache(const Options& options);

/// Compiles all kernels that a call can choose, with `jobs` threads, and writes them to `file`. Returns how many.
/// `newest_cuda`: the newest major version of CUDA whose drivers shall load them; 0: that of this machine's driver.
/// Throws Error(Compile), Error(Io).
size_t write_pack(const Options& options, const std::string& file, int newest_cuda, unsigned jobs,
                  const std::function<void(size_t done, size_t of, const std::string& kernel)>& progress);

}  // namespace finegemm
