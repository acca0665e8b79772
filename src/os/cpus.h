// How many processors this process may use. Layer os.
#pragma once

#include <string_view>

namespace finegemm::os {

/// Processors of the affinity mask (taskset, cpusets), and no more than the quota of the control group (containers).
int usable_cpus();

/// The quota of a control group's cpu.max, "150000 100000" say, rounded up to whole processors; 0: none.
int cpus_of_quota(std::string_view cpu_max);

}  // namespace finegemm::os
