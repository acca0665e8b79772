// Dense layers of published models. Layer cli.
#include "cli/bench/model_layers.h"

#include <array>

namespace finegemm::cli {

namespace {

// From the models' published configurations: hidden and intermediate sizes, heads, ranks. Projections that share their
// input (Q, K and V; gate and up) are one product, as servers have it. Tensor parallelism splits N of these and K of
// those that follow them. Of mixtures of experts the attention, and one expert's layers.
// clang-format off
constexpr auto kLayers = std::to_array<ModelLayer>({
    {"DeepSeek-V3", 2112, 7168}, {"DeepSeek-V3", 576, 7168}, {"DeepSeek-V3", 24576, 1536}, {"DeepSeek-V3", 32768, 512},
    {"DeepSeek-V3", 7168, 16384}, {"DeepSeek-V3", 36864, 7168}, {"DeepSeek-V3", 7168, 18432},
    {"DeepSeek-V3", 4096, 7168}, {"DeepSeek-V3", 7168, 2048}, {"DeepSeek-V3", 256, 7168},
    {"DeepSeek-V3 TP8", 3072, 1536}, {"DeepSeek-V3 TP8", 4096, 512}, {"DeepSeek-V3 TP8", 4608, 7168},
    {"DeepSeek-V3 TP8", 7168, 2304}, {"DeepSeek-V3 TP8", 512, 7168}, {"DeepSeek-V3 TP8", 7168, 256},
    {"DeepSeek-V3 TP16", 1536, 1536}, {"DeepSeek-V3 TP16", 2048, 512}, {"DeepSeek-V3 TP16", 7168, 1024},
    {"DeepSeek-V3 TP16", 2304, 7168}, {"DeepSeek-V3 TP16", 7168, 1152}, {"DeepSeek-V3.2", 64, 7168},
    {"DeepSeek-V3.2", 128, 7168}, {"DeepSeek-V3.2", 8192, 1536}, {"DeepSeek-V4-Flash, Llama-3.1-8B TP4", 1536, 4096},
    {"Kimi-K2", 12288, 1536}, {"Kimi-K2", 16384, 512}, {"Kimi-K2, Llama-3.1-70B TP8", 7168, 8192},
    {"Llama-3.1-8B, Qwen3-8B", 6144, 4096}, {"Llama-3.1-8B", 4096, 4096}, {"Llama-3.1-8B", 28672, 4096},
    {"Llama-3.1-8B", 4096, 14336}, {"Llama-3.1-8B TP4, Qwen3-0.6B", 4096, 1024}, {"Llama-3.1-8B TP4", 7168, 4096},
    {"Llama-3.1-8B TP4", 4096, 3584}, {"Llama-3.1-70B, Qwen2.5-72B", 10240, 8192},
    {"Llama-3.1-70B, Qwen2.5-72B", 8192, 8192}, {"Llama-3.1-70B TP2", 28672, 8192}, {"Llama-3.1-70B TP2", 8192, 14336},
    {"Llama-3.1-70B TP4", 2560, 8192}, {"Llama-3.1-70B TP4", 8192, 2048}, {"Llama-3.1-70B TP4", 14336, 8192},
    {"Llama-3.1-70B TP4", 8192, 7168}, {"Llama-3.1-70B TP8", 1280, 8192}, {"Llama-3.1-70B TP8", 8192, 1024},
    {"Llama-3.1-70B TP8", 8192, 3584}, {"Llama-3.1-405B TP8", 2304, 16384}, {"Llama-3.1-405B TP8", 16384, 2048},
    {"Llama-3.1-405B TP8", 13312, 16384}, {"Llama-3.1-405B TP8", 16384, 6656},
    {"Llama-4-Scout, Qwen3-14B", 7168, 5120}, {"Llama-4-Scout", 5120, 5120},
    {"Llama-4-Scout, Qwen3.6-27B", 16384, 5120}, {"Llama-4-Scout, Qwen3-32B", 5120, 8192},
    {"Mistral-Small-24B", 6144, 5120}, {"Mistral-Small-24B", 5120, 4096}, {"Mixtral-8x22B", 8192, 6144},
    {"Mixtral-8x22B", 6144, 6144}, {"Mixtral-8x22B", 32768, 6144}, {"Mixtral-8x22B", 6144, 16384},
    {"Qwen3-0.6B", 1024, 2048}, {"Qwen3-0.6B", 6144, 1024}, {"Qwen3-0.6B", 1024, 3072}, {"Qwen3-1.7B", 4096, 2048},
    {"Qwen3-1.7B", 2048, 2048}, {"Qwen3-1.7B", 12288, 2048}, {"Qwen3-1.7B", 2048, 6144}, {"Qwen3-4B", 6144, 2560},
    {"Qwen3-4B", 2560, 4096}, {"Qwen3-4B", 19456, 2560}, {"Qwen3-4B", 2560, 9728}, {"Qwen3-8B", 24576, 4096},
    {"Qwen3-8B", 4096, 12288}, {"Qwen3-14B", 34816, 5120}, {"Qwen3-14B", 5120, 17408}, {"Qwen3-32B", 10240, 5120},
    {"Qwen3-32B TP2", 25600, 5120}, {"Qwen3-32B TP2", 5120, 12800}, {"Qwen3-32B TP4", 12800, 5120},
    {"Qwen3-32B TP4", 5120, 6400}, {"Qwen3-32B TP8", 6400, 5120}, {"Qwen3-32B TP8", 5120, 3200},
    {"Qwen3-30B-A3B", 5120, 2048}, {"Qwen3-30B-A3B", 2048, 4096}, {"Qwen3-30B-A3B", 1536, 2048},
    {"Qwen3-30B-A3B", 2048, 768}, {"Qwen3-235B-A22B", 9216, 4096}, {"Qwen3-235B-A22B", 4096, 8192},
    {"Qwen3-235B-A22B", 3072, 4096}, {"Qwen3-235B-A22B", 4096, 1536}, {"Qwen3.6-27B, GLM-4.5", 14336, 5120},
    {"Qwen3.6-27B", 5120, 6144}, {"Qwen2.5-7B", 4608, 3584}, {"Qwen2.5-7B", 3584, 3584},
    {"Qwen2.5-7B TP2", 18944, 3584}, {"Qwen2.5-7B TP2", 3584, 9472}, {"Qwen2.5-72B TP4", 14784, 8192},
    {"Qwen2.5-72B TP4", 8192, 7392}, {"Qwen2.5-72B TP8", 7392, 8192}, {"Qwen2.5-72B TP8", 8192, 3696},
    {"Gemma-2-27B", 8192, 4608}, {"Gemma-2-27B", 4608, 4096}, {"Gemma-2-27B TP2", 36864, 4608},
    {"Gemma-2-27B TP2", 4608, 18432}, {"Gemma-3-27B", 8192, 5376}, {"Gemma-3-27B", 5376, 4096},
    {"Gemma-3-27B TP2", 21504, 5376}, {"Gemma-3-27B TP2", 5376, 10752}, {"Phi-3-mini", 9216, 3072},
    {"Phi-3-mini", 3072, 3072}, {"Phi-3-mini", 16384, 3072}, {"Phi-3-mini", 3072, 8192}, {"GLM-4.5", 5120, 12288},
    {"GLM-4.5", 24576, 5120}, {"GLM-4.5", 3072, 5120}, {"GLM-4.5", 5120, 1536}, {"GLM-5", 4096, 6144},
    {"GLM-5", 6144, 2048}, {"GLM-5 TP8", 512, 6144}, {"gpt-oss-120b", 5120, 2880}, {"gpt-oss-120b", 2880, 4096},
    {"gpt-oss-120b", 5760, 2880}, {"gpt-oss-120b", 2880, 2880},
});
// clang-format on

}  // namespace

std::span<const ModelLayer> model_layers() { return kLayers; }

}  // namespace finegemm::cli
