// finegemm.quantize_rows, quantize_blocks, quantize_weights, quantize_columns and reencode. Layer: front end.
#pragma once

#include "object.h"

#include <finegemm/context.h>

#include "arguments.h"
#include "tensors.h"

namespace finegemm::python {

// Codes and scales, which are new tensors if they are not given; columns with what else was asked for.
Object quantize_rows_into(const Imports& imports, Context& context, Arguments& given);
Object quantize_blocks_into(const Imports& imports, Context& context, Arguments& given);
Object quantize_weights_into(const Imports& imports, Context& context, Arguments& given);
Object quantize_columns_into(const Imports& imports, Context& context, Arguments& given);
Object reencode_into(const Imports& imports, Context& context, Arguments& given);

}  // namespace finegemm::python
