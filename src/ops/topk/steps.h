// A selection from logits as the calls that compute them and that select. Layer engine.
#pragma once

#include "engine/backend.h"

namespace finegemm {

/// Memory for logits, in bytes: of some queries, or none where all are asked for.
int64_t memory_of(const MqaTopkCall& call);
int64_t memory_of(const PagedMqaTopkCall& call);

/// `memory`: as much as memory_of says, at a multiple of 16 bytes. The call has been checked.
void run_steps(Backend& backend, const MqaTopkCall& call, void* memory);
void run_steps(Backend& backend, const PagedMqaTopkCall& call, void* memory);

}  // namespace finegemm
