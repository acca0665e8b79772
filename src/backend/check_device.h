// The validation mode on a GPU: copies of what it looks at. Layer backend.
#pragma once

#include <finegemm/grouped.h>
#include <finegemm/k_grouped.h>

#include "cuda/driver.h"

namespace finegemm {

// Backend::check_scales, check_groups and check_k_groups for a device that is current. They wait for the stream,
// and throw Error(InvalidArgument) while it captures.
void check_device_scales(const cuda::Driver& driver, const GemmArgs& args, Stream stream);
void check_device_groups(const cuda::Driver& driver, const GroupedGemmArgs& args, Stream stream);
void check_device_k_groups(const cuda::Driver& driver, const KGroupedGemmArgs& args, Stream stream);

}  // namespace finegemm
