// A library without precompiled kernels (FINEGEMM_PACK=none), and the program that makes packs. Layer tools.
#include "jit/pack.h"

namespace finegemm::jit {

std::span<const EmbeddedPack> embedded_packs() { return {}; }

}  // namespace finegemm::jit
