// Calls of selections as everything behind the public functions sees them. Layer engine.
#pragma once

#include <string>

#include <finegemm/topk.h>
#include <finegemm/topk/topk.h>

#include "ops/mqa/call.h"

namespace finegemm {

/// Selection from numbers in memory. The options are borrowed.
struct TopkCall : TopkArgs {
    const TopkOptions& options;
    int64_t each = 1;         // rows that a row of `ends` is of
    bool own_lengths = true;  // it has one for each of them; else the row before sees one number less
    bool of_logits = false;   // the launch before computes them: a selection may begin before it ends

    bool early_windows = false;  // they are there before the launch before ends

    int64_t rows() const { return logits.rows; }
    int64_t k() const { return out.indices.cols; }
};

/// Selection from logits that are computed for it. The options are borrowed.
struct MqaTopkCall : MqaTopkArgs {
    const TopkOptions& options;
    bool check_values = false;  // the options', or the context's

    int64_t rows() const { return q.count; }
};
struct PagedMqaTopkCall : PagedMqaTopkArgs {
    const TopkOptions& options;
    bool check_values = false;

    int64_t rows() const { return q.count; }
    /// Columns of its logits.
    int64_t width() const;
};

/// What a kernel is told, and the CPU with it.
TopkParams topk_params(const TopkCall& call);

inline bool is_given(const ConstMatrix& x) { return x.data || x.rows != 0 || x.cols != 0; }

/// The logits of all queries; without memory for them where they are not asked for. `options`: for_logits.
MqaCall logits_call(const MqaTopkCall& call, const MqaOptions& options);
PagedMqaCall logits_call(const PagedMqaTopkCall& call, const MqaOptions& options);
MqaOptions for_logits(const TopkOptions& options);
/// The logits of such a call: those that are asked for, or those of a step.
MqaShape logits_shape(const TopkShape& shape);

/// "topk 2048 of 4096x32768 sorted histogram"
std::string text_of(const TopkCall& call);
/// "mqa_topk 2048 of 4096x32768 64x128 exact sorted histogram logits untouched": k, then as of mqa_logits.
std::string text_of(const MqaTopkCall& call);
/// "paged_mqa_topk 2048 of 256x2x8192 64x128 page64 exact"
std::string text_of(const PagedMqaTopkCall& call);

}  // namespace finegemm
