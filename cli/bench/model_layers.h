// Dense layers of published models: N and K of their products. Layer cli.
#pragma once

#include <cstdint>
#include <span>

namespace finegemm::cli {

struct ModelLayer {
    const char* models;  // that have it, and how many GPUs share its tensors: "Kimi-K2, DeepSeek-V3 TP8"
    int64_t n, k;
};

/// N from 64 to 36864 and K from 256 to 18432; no (N, K) twice.
std::span<const ModelLayer> model_layers();

}  // namespace finegemm::cli
