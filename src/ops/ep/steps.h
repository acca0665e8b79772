// A layer over ranks as calls of the operations that it is made of, and the exchanges between them. Layer engine.
#pragma once

#include <functional>

#include "engine/backend.h"
#include "ops/ep/call.h"

namespace finegemm {

/// Memory of the device that lasts until the call returns.
using TakeMemory = std::function<void*(int64_t bytes)>;

/// The call has been checked.
void run_steps(Backend& backend, const EpMoeCall& call, const TakeMemory& take);

}  // namespace finegemm
