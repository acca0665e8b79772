// For the program that makes the pack, which has none. Layer tools.
#include "jit/pack.h"

namespace finegemm::jit {

Pack embedded_pack() { return {}; }

}  // namespace finegemm::jit
