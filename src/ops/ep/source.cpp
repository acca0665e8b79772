// Printing the sources of the kernels for messages between ranks. Layer jit.
#include "ops/ep/source.h"

#include <string_view>

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

KernelSource source_of(const PeersConfig& c) {
    const std::string_view verb = c.pushes ? "push" : "pull";
    return {
        .entry = fmt::format("FineGEMM_ep_{}", verb),
        .text = fmt::format("#include <finegemm/device/routing/peers.cuh>\n"
                            "inline constexpr finegemm::PeersConfig kConfig{{{}, {}}};\n"
                            "extern \"C\" __global__ void __launch_bounds__(kConfig.threads(), {})\n"
                            "FineGEMM_ep_{}(const __grid_constant__ finegemm::{} params) {{\n"
                            "    finegemm::device::{}_rows<kConfig>(params, {{blockIdx.x, gridDim.x}});\n"
                            "}}\n",
                            c.pushes, c.warps, c.ctas_per_sm(), verb, c.pushes ? "PushParams" : "PullParams", verb)};
}

}  // namespace finegemm::jit
