// The validation mode on a GPU: copies of what it looks at. Layer engine.
#pragma once

#include "cuda/driver.h"
#include "ops/gemm/call.h"
#include "ops/mqa/call.h"
#include "ops/routing/call.h"

namespace finegemm {

/// Backend::check_values for a device that is current. Waits for the stream, and throws Error(InvalidArgument) while it
/// captures.
void check_device_values(const cuda::Driver& driver, const Call& call);

// `check_numbers`, likewise.
void check_device_numbers(const cuda::Driver& driver, const MqaCall& call);
void check_device_numbers(const cuda::Driver& driver, const PagedMqaCall& call);
void check_device_numbers(const cuda::Driver& driver, const RouteCall& call);
void check_device_numbers(const cuda::Driver& driver, const PermuteCall& call);
void check_device_numbers(const cuda::Driver& driver, const CombineCall& call);

}  // namespace finegemm
