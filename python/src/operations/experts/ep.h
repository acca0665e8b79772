// finegemm.ep: communicators, and a layer of experts over ranks. Layer: front end.
#pragma once

#include "object.h"

#include <finegemm/context.h>

#include "arguments.h"
#include "tensors.h"

namespace finegemm::python {

/// Returns `out`, the tensor that was given, or a new one.
Object ep_moe_into(const Imports& imports, Context& context, Arguments& given);
/// The keywords are the fields of a shape, ranks and capacity.
Object ep_moe_workspace_bytes_of(const Imports&, PyObject* keywords);

// The keywords are those of options, of a communicator also id, rank, ranks and device; of threads ranks. Communicators
// are capsules.
Object make_communicator_id(const Context& context, PyObject* keywords);
Object make_communicator(const Context& context, PyObject* keywords);
Object communicators_of_threads(const Imports&, PyObject* keywords);

// A capsule; the keywords are the fields of a shape.
Object make_peer_memory(const Imports&, PyObject* communicator, PyObject* keywords);
/// Whether it is reached, and its bytes.
Object facts_of_memory(const Imports&, PyObject* memory);

/// Its rank, how many there are, and its GPU, -1 on the CPU.
Object place_of(const Imports&, PyObject* communicator);
Object wait_for(const Imports&, PyObject* communicator, PyObject* stream);
Object end_communicator(const Imports&, PyObject* communicator);

}  // namespace finegemm::python
