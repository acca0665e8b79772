// The device that an explanation is for. Layer api.
#pragma once

#include <string>

#include "plan/plan.h"

namespace finegemm {

/// A known one by its name; '': the first GPU, or where there is none of Hopper the h200. Throws
/// Error(InvalidArgument).
plan::DeviceSpec explained_device(const std::string& name);

}  // namespace finegemm
