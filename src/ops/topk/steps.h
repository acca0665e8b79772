// A selection from logits as the calls that compute them and that select. Layer engine.
#pragma once

#include "engine/backend.h"

namespace finegemm {

/// How the rows of a call that computes logits are split. `rows`: of a step, the last one may have less; `bytes`: of
/// memory for logits, which steps take in turn.
struct TopkSteps {
    int64_t count, rows, bytes;
};
TopkSteps steps_of(const TopkShape& shape);

/// Memory for logits, in bytes: of some queries, or none where all are asked for.
int64_t memory_of(const MqaTopkCall& call);
int64_t memory_of(const PagedMqaTopkCall& call);

/// `memory`: as much as memory_of says, at a multiple of 16 bytes. The call has been checked.
void run_steps(Backend& backend, const MqaTopkCall& call, void* memory);
void run_steps(Backend& backend, const PagedMqaTopkCall& call, void* memory);

}  // namespace finegemm
