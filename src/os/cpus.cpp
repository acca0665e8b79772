// Affinity masks and control groups. Layer os.
#include "os/cpus.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace finegemm::os {

namespace {

namespace fs = std::filesystem;

int64_t number_in(std::string_view text) {
    int64_t number = 0;
    return std::from_chars(text.data(), text.data() + text.size(), number).ec == std::errc() ? number : 0;
}

std::string first_line(const fs::path& file) {
    std::ifstream in(file);
    std::string line;
    std::getline(in, line);
    return line;
}

int affinity() {
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) == 0) return CPU_COUNT(&mask);
    return static_cast<int>(std::thread::hardware_concurrency());  // more than the mask has room for
}

/// The least quota from the process's own group up to the root: version 2's unified tree, or version 1's mounted group.
int quota() {
    int least = 0;
    const auto take = [&](int cpus) {
        if (cpus > 0) least = least > 0 ? std::min(least, cpus) : cpus;
    };
    const fs::path root = "/sys/fs/cgroup";
    const std::string own = first_line("/proc/self/cgroup");  // "0::/user.slice/..."
    if (own.starts_with("0::/"))
        for (fs::path group = own.substr(4);; group = group.parent_path()) {
            take(cpus_of_quota(first_line(root / group / "cpu.max")));
            if (group.empty()) break;
        }
    take(cpus_of_quota(first_line(root / "cpu/cpu.cfs_quota_us") + ' ' + first_line(root / "cpu/cpu.cfs_period_us")));
    return least;
}

}  // namespace

int cpus_of_quota(std::string_view cpu_max) {
    const size_t blank = std::min(cpu_max.find(' '), cpu_max.size());
    const int64_t quota = number_in(cpu_max.substr(0, blank));
    const int64_t period = number_in(cpu_max.substr(std::min(blank + 1, cpu_max.size())));
    return quota > 0 && period > 0 ? static_cast<int>(std::min<int64_t>((quota + period - 1) / period, 1 << 20)) : 0;
}

int usable_cpus() {
    const int cpus = std::max(1, affinity()), limit = quota();
    return limit > 0 ? std::min(cpus, limit) : cpus;
}

}  // namespace finegemm::os
