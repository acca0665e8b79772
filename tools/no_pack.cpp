// A library without precompiled kernels (FINEGEMM_PACK=none), and the program that makes packs. Layer tools.
#include "jit/pack.h"

namespace finegemm::jit {

Pack embedded_pack() { return {}; }

}  // namespace finegemm::jit
