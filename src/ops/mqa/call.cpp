// Checks of the numbers that an indexer's scores are told by. Layer engine.
#include "ops/mqa/call.h"

#include <fmt/format.h>

#include "engine/any_address.h"
#include "plan/elements.h"
#include "plan/reject.h"

namespace finegemm {

namespace {

int64_t number(const ConstMatrix& x, int64_t r, int64_t c) { return load<int32_t>(x.data, r * x.row_stride + c); }

/// Keys of request b that its last query sees.
int64_t check_lengths(const PagedMqaCall& call, int64_t b) {
    const ConstMatrix& lengths = call.lengths;
    const int64_t pages = call.block_table.cols, page_size = call.page_size();
    int64_t before = 0;
    for (int64_t t = 0; t < lengths.cols; ++t) {
        const int64_t length = number(lengths, b, t);
        if (length < 0 || length > pages * page_size)
            reject("lengths",
                   "[{}, {}] is {}, must be from 0 to {}, the keys of the {} pages that block_table has for a request; "
                   "look at what computed it",
                   b, t, length, pages * page_size, pages);
        if (length > call.d.cols)
            reject("lengths", "[{}, {}] is {}, but d has {} columns; pass memory for all keys", b, t, length,
                   call.d.cols);
        if (length < before)
            reject("lengths",
                   "[{}, {}] is {}, must be at least the {} before it, as the last query of a request sees the most "
                   "keys; look at what computed it",
                   b, t, length, before);
        before = length;
    }
    return before;
}

std::string text_of(const MqaOptions& options, DType d) {
    constexpr const char* kForms[] = {"filled", "untouched", "compressed"};
    return fmt::format("{} {} {}", name_of(d), kForms[static_cast<size_t>(options.form)],
                       options.relu == Relu::Exact ? "exact" : "abs");
}

}  // namespace

std::string text_of(const MqaCall& call) {
    return fmt::format("mqa_logits {}x{} {}x{} {}", call.queries(), call.keys(), call.heads(), call.dim(),
                       text_of(call.options, call.d.dtype));
}

std::string text_of(const PagedMqaCall& call) {
    return fmt::format("paged_mqa_logits {}x{}x{} {}x{} page{} {}", call.requests(), call.queries_each(), call.d.cols,
                       call.heads(), call.dim(), call.page_size(), text_of(call.options, call.d.dtype));
}

void check_numbers(const MqaCall& call) {
    const int64_t keys = call.keys();
    for (int64_t i = 0; i < call.queries(); ++i) {
        const int64_t start = number(call.starts, 0, i), end = number(call.ends, 0, i);
        if (end <= start) continue;
        if (start < 0 || start > keys)
            reject("starts", "[{}] is {}, must be from 0 to Skv = {}; look at what computed it", i, start, keys);
        if (end > keys) reject("ends", "[{}] is {}, must be at most Skv = {}; look at what computed it", i, end, keys);
        if (call.options.form == LogitsForm::Compressed && end - start > call.d.cols)
            reject("ends", "[{}] is {} and starts[{}] {}, which are {} keys, but d has {} columns; pass memory for all",
                   i, end, i, start, end - start, call.d.cols);
    }
}

void check_numbers(const PagedMqaCall& call) {
    const int64_t pages = call.cache.rows, page_size = call.page_size();
    for (int64_t b = 0; b < call.requests(); ++b) {
        const int64_t used = (check_lengths(call, b) + page_size - 1) / page_size;
        for (int64_t p = 0; p < used; ++p) {
            const int64_t page = number(call.block_table, b, p);
            if (page < 0 || page >= pages)
                reject("block_table",
                       "[{}, {}] is {}, must be from 0 to {}, the last page of cache; look at what "
                       "computed it",
                       b, p, page, pages - 1);
        }
    }
}

}  // namespace finegemm
