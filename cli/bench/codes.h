// Random codes of e4m3, which operands are made of. Layer cli.
#pragma once

#include <cstdint>

#include <finegemm/context.h>

#include "cli/files/files.h"

namespace finegemm::cli {

/// Standard normal values, each row of 128 as large as codes can be: of a magnitude of 448 at most, and of 165 in root
/// mean square. They repeat after a prime number of rows.
HostMatrix random_codes(Context& context);
/// Takes codes cyclically, beginning at a row of them.
void fill_codes(uint8_t* to, int64_t count, const HostMatrix& codes, uint64_t seed);

}  // namespace finegemm::cli
