// Counts what this thread allocates with new. Layer tests.
#pragma once

#include <cstdint>

namespace finegemm::test {

int64_t allocations();

}  // namespace finegemm::test
