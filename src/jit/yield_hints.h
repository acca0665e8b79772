// Yield hints: how often the promotions of a compiled kernel yield, set in its machine code. Layer jit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace finegemm::jit {

/// Lets long sequences of FP32 multiplications and additions yield to other warps once in `every` instructions, and
/// keep in the operand cache what the next one reads, too, in between. `every` = 0 leaves all as it is. Only hints to
/// the scheduler change, in instructions that wait for nothing: results cannot. Returns how many instructions it set;
/// none of what is no cubin.
///
/// Why here: no option and no source makes ptxas do so (gemm/kernel_plan.h).
/// Source of the encoding: Jia et al., "Dissecting the NVIDIA Volta GPU architecture via microbenchmarking", 2018,
/// section 2.1; Hopper's is the same, as nvdisasm shows.
size_t set_yield_hints(std::string& cubin, uint32_t every);

}  // namespace finegemm::jit
