// Reading ptxas -v. Layer jit.
#include "jit/resources.h"

#include <charconv>

namespace finegemm::jit {

namespace {

/// The number that ends just before `end`.
int64_t number_before(std::string_view text, size_t end) {
    size_t begin = end;
    while (begin > 0 && text[begin - 1] >= '0' && text[begin - 1] <= '9') --begin;
    int64_t number = -1;
    std::from_chars(text.data() + begin, text.data() + end, number);
    return number;
}

}  // namespace

Resources resources_of(std::string_view log) {
    Resources r;
    for (const std::string_view kind : {" bytes spill stores", " bytes spill loads"})
        for (size_t at = log.find(kind); at != std::string_view::npos; at = log.find(kind, at + 1))
            r.spill_bytes += number_before(log, at);
    if (const size_t at = log.find(" registers"); at != std::string_view::npos) r.registers = number_before(log, at);
    // ptxas: "(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to ..."
    r.serialised = log.find("wgmma.mma_async instructions are serialized") != std::string_view::npos ||
                   log.find("C7510") != std::string_view::npos;
    return r;
}

}  // namespace finegemm::jit
