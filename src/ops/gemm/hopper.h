// A call as the parameters of a launch, for kernels of every grouping. Layer engine.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

#include <finegemm/gemm/add_pieces.h>
#include <finegemm/gemm/group_list.h>
#include <finegemm/gemm/params.h>

#include "cuda/driver.h"
#include "ops/gemm/call.h"
#include "plan/plan.h"

namespace finegemm {

/// What the kernel of a call takes, of a type by the call's grouping and finish.
class LaunchParams {
public:
    template <typename Params>
    LaunchParams(const Params& params) {
        static_assert(sizeof(Params) <= sizeof bytes_ && alignof(Params) <= 64);
        new (bytes_) Params(params);
    }
    const void* data() const { return bytes_; }
    template <typename Params>
    const Params& as() const {
        return *std::launder(reinterpret_cast<const Params*>(bytes_));
    }

private:
    alignas(64) std::byte bytes_[4096];  // a kernel of CUDA 12.0 takes no more
};

/// The variant of a kernel that is fastest for the call.
GemmConfig variant_for(const Call& call, const GemmConfig& c);

/// Offsets on the host are left out: put_groups or group_lists_of have them; and so is where the sums of pieces are.
/// `clusters`: that may work at once.
LaunchParams params_of(const cuda::Driver& driver, const Call& call, const plan::Problem& problem, const GemmConfig& c,
                       uint32_t clusters);

/// CTAs to launch. Tiles of whole groups take equally long, and their number is known: no more CTAs than their rounds
/// take share power and L2.
uint32_t grid_of(const Call& call, const plan::Problem& problem, const GemmConfig& c, uint32_t clusters);

/// Cluster tiles that there may be: each group of rows has at most one that is not whole.
uint32_t most_tiles(const plan::Problem& problem, const GemmConfig& c, uint32_t clusters);

/// What adds up the pieces of a sum.
struct AddPiecesLaunch {
    AddPiecesConfig config;
    AddPiecesParams params;
    uint32_t grid;
};
AddPiecesLaunch add_pieces_of(const Call& call, const SummedParams& pieces);

/// Adds groups of K whose offsets are on the host to parameters that have room for them.
void put_groups(const cuda::Driver& driver, const Call& call, const GemmConfig& c, KGroupedParams& params);

/// Such groups as lists, without where they are written to; none if parameters have room for all groups.
std::vector<GroupListParams> group_lists_of(const cuda::Driver& driver, const Call& call, const GemmConfig& c);

}  // namespace finegemm
