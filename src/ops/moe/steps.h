// A layer of experts as calls of the operations that it is made of. Layer engine.
#pragma once

#include "engine/backend.h"

namespace finegemm {

/// `memory`: as many bytes as memory_of says. The call has been checked.
void run_steps(Backend& backend, const MoeCall& call, const MoeForms& forms, void* memory);

}  // namespace finegemm
