// What calls of selections have in common, and their lines of text. Layer engine.
#include "ops/topk/call.h"

#include <algorithm>

#include <fmt/format.h>

namespace finegemm {

namespace {

/// A matrix of logits that nobody has asked for.
Matrix no_logits(int64_t rows, int64_t cols, Device device) {
    return {nullptr, DType::F32, rows, cols, cols, 1, device};
}

/// The stride of what there is one of may be anything.
int64_t stride_of(const ConstMatrix& x) { return x.rows > 1 ? x.row_stride : 0; }

std::string text_of(const TopkOutputs& out, const TopkOptions& options) {
    return fmt::format("{}{}", out.indices.cols > 0 && options.sorted ? " sorted" : "",
                       is_given(out.histogram) ? " histogram" : "");
}
std::string text_of(const Matrix& logits, LogitsForm form) {
    if (!is_given(logits)) return {};
    return form == LogitsForm::Untouched ? " logits untouched" : " logits";
}

const char* text_of(Relu relu) { return relu == Relu::Exact ? "exact" : "abs"; }

}  // namespace

int64_t PagedMqaTopkCall::width() const {
    if (is_given(logits)) return logits.cols;
    const int64_t page_size = cache.cols / (q.matrix.cols + static_cast<int64_t>(sizeof(float)));
    const int64_t room = std::min<int64_t>(block_table.cols * page_size, INT32_MAX);
    return keys > 0 ? std::min(keys, room) : room;
}

MqaOptions for_logits(const TopkOptions& o) {
    return {.form = o.form, .relu = o.relu, .stream = o.stream, .num_sms = o.num_sms, .pdl = o.pdl, .poll = o.poll};
}

MqaShape logits_shape(const TopkShape& s) {
    return {.paged = s.paged,
            .requests = s.requests,
            .queries = s.queries,
            .keys = s.keys,
            .heads = s.heads,
            .dim = s.dim,
            .page_size = s.page_size,
            .form = s.logits ? s.form : LogitsForm::Untouched,
            .relu = s.relu};
}

MqaCall logits_call(const MqaTopkCall& call, const MqaOptions& options) {
    return {.q = call.q,
            .k = call.k,
            .sfk = call.sfk,
            .w = call.w,
            .starts = call.starts,
            .ends = call.ends,
            .d = is_given(call.logits) ? call.logits : no_logits(call.q.count, call.k.rows, call.k.device),
            .options = options};
}

PagedMqaCall logits_call(const PagedMqaTopkCall& call, const MqaOptions& options) {
    return {.q = call.q,
            .cache = call.cache,
            .w = call.w,
            .lengths = call.lengths,
            .block_table = call.block_table,
            .schedule = {},
            .d = is_given(call.logits) ? call.logits : no_logits(call.q.count, call.width(), call.cache.device),
            .options = options};
}

TopkParams topk_params(const TopkCall& call) {
    const TopkOutputs& out = call.out;
    return {.logits = static_cast<const float*>(call.logits.data),
            .logits_stride = stride_of(call.logits),
            .starts = static_cast<const int32_t*>(call.starts.data),
            .ends = static_cast<const int32_t*>(call.ends.data),
            .ends_stride = call.ends.rows > 1 ? call.ends.row_stride : 1,
            .indices = static_cast<int32_t*>(out.indices.data),
            .indices_stride = stride_of(out.indices),
            .values = static_cast<float*>(out.values.data),
            .values_stride = stride_of(out.values),
            .histogram = static_cast<int32_t*>(out.histogram.data),
            .histogram_stride = stride_of(out.histogram),
            .rows = static_cast<uint32_t>(call.rows()),
            .width = static_cast<uint32_t>(call.logits.cols),
            .k = static_cast<uint32_t>(call.k()),
            .each = static_cast<uint32_t>(call.each),
            .own_lengths = call.own_lengths,
            .sorted = call.options.sorted,
            .early_windows = call.early_windows};
}

std::string text_of(const TopkCall& call) {
    return fmt::format("topk {} of {}x{}{}", call.k(), call.rows(), call.logits.cols, text_of(call.out, call.options));
}

std::string text_of(const MqaTopkCall& call) {
    return fmt::format("mqa_topk {} of {}x{} {}x{} {}{}{}", call.out.indices.cols, call.rows(), call.k.rows,
                       call.q.matrix.rows, call.q.matrix.cols, text_of(call.options.relu),
                       text_of(call.out, call.options), text_of(call.logits, call.options.form));
}

std::string text_of(const PagedMqaTopkCall& call) {
    const MqaOptions options;
    const PagedMqaCall logits = logits_call(call, options);
    return fmt::format("paged_mqa_topk {} of {}x{}x{} {}x{} page{} {}{}{}", call.out.indices.cols, logits.requests(),
                       logits.queries_each(), call.width(), logits.heads(), logits.dim(), logits.page_size(),
                       text_of(call.options.relu), text_of(call.out, call.options),
                       text_of(call.logits, call.options.form));
}

}  // namespace finegemm
