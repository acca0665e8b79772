// Printing the source of the kernel for messages between ranks. Layer jit.
#include "ops/ep/source.h"

#include <fmt/format.h>

namespace finegemm::jit {

KernelSource source_of(const SlotsConfig& c) {
    return {.entry = "FineGEMM_ep_slots",
            .text = fmt::format("#include <finegemm/device/routing/slots.cuh>\n"
                                "extern \"C\" __global__ void __launch_bounds__({}, {})\n"
                                "FineGEMM_ep_slots(const __grid_constant__ finegemm::SlotsParams params) {{\n"
                                "    finegemm::device::assign_slots(params);\n"
                                "}}\n",
                                c.threads(), c.ctas_per_sm())};
}

}  // namespace finegemm::jit
