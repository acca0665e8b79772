// What kernels that go over tokens know of the rows of their choices. Layer device.
#pragma once

#include <finegemm/routing/routing.h>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/ptx/convert.cuh>

namespace finegemm::device {

/// The rows of one token: a lane has one.
struct RowsOfToken {
    uint32_t row;
    uint32_t wanted;  // a bit for each choice whose row exists

    __device__ static RowsOfToken load(const ChosenRows& chosen, const RowStack& rows, uint32_t token) {
        const uint32_t lane = ptx::lane();
        const bool chooses = lane < chosen.k;
        const uint32_t row =
            ptx::load_global_if(chooses, chosen.inverse + token * chosen.row_stride + (chooses ? lane : 0));
        return {row, ptx::ballot(chooses && rows.has(static_cast<int32_t>(row)))};
    }
    /// `few`: rows of all choices, k for each token.
    __device__ static RowsOfToken load(const uint32_t* few, uint32_t k, const RowStack& rows, uint32_t token) {
        const uint32_t lane = ptx::lane(), row = lane < k ? few[token * k + lane] : static_cast<uint32_t>(kNoRow);
        return {row, ptx::ballot(rows.has(static_cast<int32_t>(row)))};
    }
};

/// Calls body(token, part) for the parts of rows that this warp takes.
template <typename Config, typename Params, typename Body>
__device__ void for_parts(const Config& c, const Params& p, const Body& body) {
    for (uint32_t task = blockIdx.x * c.warps() + threadIdx.x / kWarpSize; task < p.tasks;
         task += gridDim.x * c.warps()) {
        const uint32_t token = p.by_parts.quotient(task);
        body(token, task - token * p.by_parts.divisor);
    }
}

}  // namespace finegemm::device
