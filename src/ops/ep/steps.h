// A layer over ranks as calls of the operations that it is made of, and the exchanges between them. Layer engine.
#pragma once

#include <functional>

#include "engine/backend.h"
#include "ops/ep/call.h"

namespace finegemm {

/// Memory of the device that lasts until the call returns.
using TakeMemory = std::function<void*(int64_t bytes)>;

/// The call has been checked.
void run_steps(Backend& backend, const EpMoeCall& call, const TakeMemory& take, bool on_gpu = false);

/// The steps of a call whose rows travel through memory that all ranks reach.
void run_with_peers(Backend& backend, const EpMoeCall& call, const TakeMemory& take, bool on_gpu);

/// Options of the layer that experts here compute.
MoeOptions local_options(const EpMoeCall& call);
/// Where values are looked at: throws Error(InvalidArgument) if choices do not fit. `counts`: of each rank, memory of
/// the device.
void check_fits(const EpMoeCall& call, const int32_t* counts);

}  // namespace finegemm
