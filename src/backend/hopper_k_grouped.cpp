// K-grouped GEMMs on Hopper GPUs. Layer backend.
#include <finegemm/error.h>

#include "backend/hopper_backend.h"

namespace finegemm {

void HopperBackend::k_grouped_gemm(const KGroupedGemmArgs&, const GemmOptions&) {
    throw Error(Errc::Unsupported, "k_grouped_gemm: runs on the CPU only; pass CPU matrices");
}

}  // namespace finegemm
