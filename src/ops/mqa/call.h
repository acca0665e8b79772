// Calls of an indexer's scores as everything behind the public functions sees them. Layer engine.
#pragma once

#include <string>

#include <finegemm/mqa.h>

namespace finegemm {

/// Queries and keys in one piece. The options are borrowed.
struct MqaCall {
    ConstStack q;
    ConstMatrix k, sfk, w, starts, ends;
    Matrix d;
    const MqaOptions& options;
    bool check_values = false;  // the options', or the context's

    int64_t queries() const { return q.count; }
    int64_t heads() const { return q.matrix.rows; }
    int64_t dim() const { return q.matrix.cols; }
    int64_t keys() const { return k.rows; }
};

/// Requests whose keys are in pages. The options are borrowed.
struct PagedMqaCall {
    ConstStack q;
    ConstMatrix cache, w, lengths, block_table, schedule;
    Matrix d;
    const MqaOptions& options;
    bool check_values = false;  // the options', or the context's

    int64_t requests() const { return block_table.rows; }
    /// Queries of a request. There is at least one request.
    int64_t queries_each() const { return q.count / block_table.rows; }
    int64_t heads() const { return q.matrix.rows; }
    int64_t dim() const { return q.matrix.cols; }
    int64_t page_size() const { return cache.cols / (dim() + static_cast<int64_t>(sizeof(float))); }
    int64_t slots() const { return schedule.rows - 1; }
    /// Does each query of a request have a length of its own?
    bool has_own_lengths() const { return lengths.cols > 1; }
};

/// The schedule of such a call. The options are borrowed.
struct PagedMqaScheduleCall {
    ConstMatrix lengths;
    int64_t queries_each;
    Matrix schedule;
    const PagedMqaScheduleOptions& options;

    int64_t slots() const { return schedule.rows - 1; }
};

/// Calls visit(matrix) for each matrix of numbers that checks look at.
template <typename Visit>
void visit_numbers(auto& call, const Visit& visit)
    requires requires { call.starts; }
{
    visit(call.starts), visit(call.ends);
}
template <typename Visit>
void visit_numbers(auto& call, const Visit& visit)
    requires requires { call.block_table; }
{
    visit(call.lengths), visit(call.block_table);
}

/// "mqa_logits 2048x8192 64x128 f32 filled exact": queries, keys, heads, D, and what becomes of them.
std::string text_of(const MqaCall& call);
/// "paged_mqa_logits 256x2x8192 64x128 page64 f32 filled exact": requests, queries of each, columns of the logits.
std::string text_of(const PagedMqaCall& call);

// Checks of numbers in the host's memory, which throw Error(InvalidArgument) that names the first that breaks the
// rules. Arguments have been checked.
void check_numbers(const MqaCall& call);
void check_numbers(const PagedMqaCall& call);

}  // namespace finegemm
