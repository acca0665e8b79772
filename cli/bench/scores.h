// Scores of an indexer on one device, from a line of text. Layer cli.
#pragma once

#include <finegemm/mqa.h>

#include "cli/bench/trial.h"

namespace finegemm::cli {

/// Is it the line of such a call, not of a product?
bool is_scores(const std::string& line);
/// "mqa_logits 2048x8192 64x128", or "paged_mqa_logits 256x2x8192 64x128": queries and keys, or requests, queries of
/// each and the most keys; heads and D. Then, in any order, a type, a form, a relu and page16, say, where they are not
/// f32, filled, exact and page64. Throws Error(InvalidArgument).
MqaShape parse_scores(const std::string& line);

/// A call with random operands. In rows the last query sees all keys, each one before it a key less; in pages, which
/// are in a random order, requests have half of the keys to all of them.
class Scores final : public Trial {
public:
    Scores(Context& context, const Target& target, const MqaShape& shape, uint64_t seed);

    double time(int repeats) override;
    Check check() override;
    /// Counts the pairs of a query and a key that it sees.
    double operations() const override;
    double bytes() const override;

private:
    struct Row {
        int64_t begin, end;  // keys
    };
    Row row(int64_t i) const;
    void make_rows();
    void make_pages();
    void make_codes(Mirrored& x, uint64_t seed) const;
    void call(const Matrix& d, bool on_host, int64_t first, int64_t count);
    const uint8_t* key(int64_t i, int64_t j, float& scale) const;

    Context& context_;
    const Target& target_;
    MqaShape shape_;
    uint64_t seed_;
    HostMatrix codes_;  // that operands are made of
    Mirrored q_, w_, keys_, sfk_, starts_, ends_, table_, d_;
};

}  // namespace finegemm::cli
