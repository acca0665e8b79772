// The options of a call and of a context, once: C structs and Python's keywords are read by these lists. Layer api.
#pragma once

#include <finegemm/context.h>
#include <finegemm/four_bit.h>
#include <finegemm/gemm.h>
#include <finegemm/moe.h>
#include <finegemm/mqa.h>
#include <finegemm/prenorm.h>
#include <finegemm/routing.h>
#include <finegemm/swiglu.h>
#include <finegemm/topk.h>

namespace finegemm {

// Each calls visit(name, its member of each of `options`), which have members of these names.

/// Not `stream`, which Python asks the arrays' library for, nor `poll`, which is no value.
template <typename Visit, typename... Structs>
constexpr void call_options(const Visit& visit, Structs&... options) {
    visit("numerics", options.numerics...);
    visit("config", options.config...);
    visit("check_values", options.check_values...);
    visit("batch_invariant", options.batch_invariant...);
    visit("num_sms", options.num_sms...);
    visit("pdl", options.pdl...);
    visit("prefetch_weights", options.prefetch_weights...);
    visit("accumulate", options.accumulate...);
}

/// Options of an indexer's scores; not `stream`, nor `poll`.
template <typename Visit, typename... Structs>
constexpr void mqa_options(const Visit& visit, Structs&... options) {
    visit("form", options.form...);
    visit("relu", options.relu...);
    visit("check_values", options.check_values...);
    visit("num_sms", options.num_sms...);
    visit("pdl", options.pdl...);
}

/// Options of selections; not `stream`, nor `poll`.
template <typename Visit, typename... Structs>
constexpr void topk_options(const Visit& visit, Structs&... options) {
    visit("sorted", options.sorted...);
    visit("form", options.form...);
    visit("relu", options.relu...);
    visit("check_values", options.check_values...);
    visit("num_sms", options.num_sms...);
    visit("pdl", options.pdl...);
}

/// Fields of a call of a selection.
template <typename Visit, typename... Structs>
constexpr void topk_fields(const Visit& visit, Structs&... shapes) {
    visit("k", shapes.k...);
    visit("paged", shapes.paged...);
    visit("requests", shapes.requests...);
    visit("queries", shapes.queries...);
    visit("keys", shapes.keys...);
    visit("heads", shapes.heads...);
    visit("dim", shapes.dim...);
    visit("page_size", shapes.page_size...);
    visit("relu", shapes.relu...);
    visit("form", shapes.form...);
    visit("logits", shapes.logits...);
    visit("histogram", shapes.histogram...);
    visit("sorted", shapes.sorted...);
    visit("num_sms", shapes.num_sms...);
}

/// Fields of a call of an indexer's scores.
template <typename Visit, typename... Structs>
constexpr void mqa_fields(const Visit& visit, Structs&... shapes) {
    visit("paged", shapes.paged...);
    visit("requests", shapes.requests...);
    visit("queries", shapes.queries...);
    visit("keys", shapes.keys...);
    visit("heads", shapes.heads...);
    visit("dim", shapes.dim...);
    visit("page_size", shapes.page_size...);
    visit("form", shapes.form...);
    visit("relu", shapes.relu...);
}

/// Options of a product before a norm; not `stream`, nor `poll`.
template <typename Visit, typename... Structs>
constexpr void prenorm_options(const Visit& visit, Structs&... options) {
    visit("num_sms", options.num_sms...);
    visit("pdl", options.pdl...);
}

/// Fields of a call of it.
template <typename Visit, typename... Structs>
constexpr void prenorm_fields(const Visit& visit, Structs&... shapes) {
    visit("m", shapes.m...);
    visit("n", shapes.n...);
    visit("k", shapes.k...);
    visit("slices", shapes.slices...);
    visit("num_sms", shapes.num_sms...);
}

/// Options of SwiGLU with quantisation; not `stream`, nor `poll`.
template <typename Visit, typename... Structs>
constexpr void swiglu_options(const Visit& visit, Structs&... options) {
    visit("gate_limit", options.gate_limit...);
    visit("gate_alpha", options.gate_alpha...);
    visit("up_offset", options.up_offset...);
    visit("interleaved", options.interleaved...);
    visit("to_bf16", options.to_bf16...);
    visit("power_of_two_scales", options.power_of_two_scales...);
    visit("num_sms", options.num_sms...);
    visit("pdl", options.pdl...);
}

// Options of routing's calls; not `stream`, nor `poll`.
template <typename Visit, typename... Structs>
constexpr void route_options(const Visit& visit, Structs&... options) {
    visit("check_values", options.check_values...);
    visit("pdl", options.pdl...);
}
template <typename Visit, typename... Structs>
constexpr void permute_options(const Visit& visit, Structs&... options) {
    visit("check_values", options.check_values...);
    visit("power_of_two_scales", options.power_of_two_scales...);
    visit("num_sms", options.num_sms...);
    visit("pdl", options.pdl...);
}
template <typename Visit, typename... Structs>
constexpr void combine_options(const Visit& visit, Structs&... options) {
    visit("check_values", options.check_values...);
    visit("num_sms", options.num_sms...);
    visit("pdl", options.pdl...);
}

/// Options of a layer of experts; not `stream`, nor `poll`.
template <typename Visit, typename... Structs>
constexpr void moe_options(const Visit& visit, Structs&... options) {
    visit("gate_limit", options.gate_limit...);
    visit("gate_alpha", options.gate_alpha...);
    visit("up_offset", options.up_offset...);
    visit("f32_between", options.f32_between...);
    visit("power_of_two_scales", options.power_of_two_scales...);
    visit("weights_first", options.weights_first...);
    visit("fused", options.fused...);
    visit("rows", options.rows...);
    visit("expected_m", options.expected_m...);
    visit("numerics", options.numerics...);
    visit("num_sms", options.num_sms...);
    visit("pdl", options.pdl...);
    visit("check_values", options.check_values...);
}

/// Fields of a call of it.
template <typename Visit, typename... Structs>
constexpr void moe_fields(const Visit& visit, Structs&... shapes) {
    visit("tokens", shapes.tokens...);
    visit("choices", shapes.choices...);
    visit("hidden", shapes.hidden...);
    visit("intermediate", shapes.intermediate...);
    visit("experts", shapes.experts...);
    visit("rows", shapes.rows...);
    visit("expected_m", shapes.expected_m...);
    visit("num_sms", shapes.num_sms...);
    visit("f32_between", shapes.f32_between...);
    visit("fused", shapes.fused...);
}

/// Options of a product with weights of 4 bits; not `stream`, nor `poll`.
template <typename Visit, typename... Structs>
constexpr void four_bit_options(const Visit& visit, Structs&... options) {
    visit("numerics", options.numerics...);
    visit("num_sms", options.num_sms...);
    visit("pdl", options.pdl...);
}

/// Fields of a call of it; not `format`, nor `groups`, which may be left out.
template <typename Visit, typename... Structs>
constexpr void four_bit_fields(const Visit& visit, Structs&... shapes) {
    visit("m", shapes.m...);
    visit("n", shapes.n...);
    visit("k", shapes.k...);
    visit("expected_m", shapes.expected_m...);
    visit("alignment", shapes.alignment...);
    visit("num_sms", shapes.num_sms...);
    visit("fp8", shapes.fp8...);
}

/// Not `log`, which is no value.
template <typename Visit, typename... Structs>
constexpr void context_options(const Visit& visit, Structs&... options) {
    visit("cache_dir", options.cache_dir...);
    visit("cache_limit_bytes", options.cache_limit_bytes...);
    visit("driver_path", options.driver_path...);
    visit("nvrtc_path", options.nvrtc_path...);
    visit("nvcc_path", options.nvcc_path...);
    visit("cuda_home", options.cuda_home...);
    visit("python_prefix", options.python_prefix...);
    visit("compiler", options.compiler...);
    visit("trusted_dir", options.trusted_dir...);
    visit("use_pack", options.use_pack...);
    visit("pack_path", options.pack_path...);
    visit("dump_dir", options.dump_dir...);
    visit("cpu_threads", options.cpu_threads...);
    visit("check_values", options.check_values...);
    visit("batch_invariant", options.batch_invariant...);
    visit("plan_table", options.plan_table...);
    visit("nvtx_path", options.nvtx_path...);
}

}  // namespace finegemm
