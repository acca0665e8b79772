// Random operands of an indexer on one device, and words of its lines. Layer cli.
#pragma once

#include <map>
#include <string>

#include <finegemm/mqa.h>

#include "cli/target.h"

namespace finegemm::cli {

inline const std::map<std::string, LogitsForm> kLogitsForms = {
    {"filled", LogitsForm::Filled}, {"untouched", LogitsForm::Untouched}, {"compressed", LogitsForm::Compressed}};
inline const std::map<std::string, Relu> kRelus = {{"exact", Relu::Exact}, {"abs", Relu::Abs}};

template <typename T>
bool take_word(const std::map<std::string, T>& names, const std::string& word, T& to) {
    const auto found = names.find(word);
    if (found == names.end()) return false;
    to = found->second;
    return true;
}
/// "page16", of pages. Sets `good`, where it is one, to whether its number is.
bool take_page(const std::string& word, bool paged, int64_t& page_size, bool& good);
/// Throws Error(InvalidArgument) where a query in rows would see no key.
void check_queries_see(const std::string& line, bool paged, int64_t queries, int64_t keys);

/// In rows the last query sees all keys, each one before it a key less; in pages, which are in a random order, requests
/// have half of the keys to all of them.
class IndexerOperands {
public:
    IndexerOperands(Context& context, const Target& target, const MqaShape& shape, uint64_t seed);

    struct Row {
        int64_t begin, end;
    };
    /// The keys that a query sees.
    Row row(int64_t i) const;
    const uint8_t* query(int64_t i) const { return q_.host.bytes.data() + i * shape_.heads * shape_.dim; }
    const float* weights(int64_t i) const {
        return reinterpret_cast<const float*>(w_.host.bytes.data()) + i * shape_.heads;
    }
    const uint8_t* key(int64_t i, int64_t j, float& scale) const;

    /// What calls for all queries read, where the target computes; without d.
    MqaLogitsArgs in_rows();
    PagedMqaLogitsArgs in_pages();
    /// The logits of all queries, where the target computes.
    void score(const Matrix& d, const MqaOptions& options);
    /// The logits of one query, or of one request, on the CPU.
    void score_on_host(const Matrix& d, const MqaOptions& options, int64_t item);

    /// Counts the pairs of a query and a key that it sees.
    double operations() const;
    /// What is read, each byte once.
    double bytes() const;

private:
    void make_rows();
    void make_pages();
    void make_codes(Mirrored& x, uint64_t seed) const;

    Context& context_;
    const Target& target_;
    MqaShape shape_;
    uint64_t seed_;
    HostMatrix codes_;  // that operands are made of
    Mirrored q_, w_, keys_, sfk_, starts_, ends_, table_;
};

}  // namespace finegemm::cli
