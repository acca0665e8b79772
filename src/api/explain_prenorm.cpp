// Which kernel a product before a norm takes, and why. Layer api.
#include <finegemm/error.h>
#include <finegemm/prenorm.h>

#include "ops/prenorm/checks.h"

namespace finegemm {

std::string explain(const PrenormShape& shape, const std::string&) {
    check_prenorm(shape);
    throw Error(Errc::Unsupported, "prenorm_gemm: has no kernel for GPUs yet; call it on the CPU");
}

}  // namespace finegemm
