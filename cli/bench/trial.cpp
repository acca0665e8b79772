// Which calls there are besides those of gemm and its kind. Layer cli.
#include "cli/bench/trial.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "cli/bench/experts/layer.h"
#include "cli/bench/four_bit/trial.h"
#include "cli/bench/indexer/scores.h"
#include "cli/bench/indexer/selection.h"
#include "cli/bench/prenorm.h"
#include "cli/text.h"

namespace finegemm::cli {

void Trial::Check::add(double found, double exact, double bound) {
    const double share = std::abs(found - exact) / bound;
    if (!(share <= of_bound)) of_bound = std::isnan(share) ? std::numeric_limits<double>::infinity() : share;
}

bool is_trial(const std::string& line) {
    return is_scores(line) || is_selection(line) || is_prenorm(line) || is_layer(line) || is_four_bit(line);
}

void check_trial(const std::string& line) {
    if (is_prenorm(line)) static_cast<void>(parse_prenorm(line));
    else if (is_layer(line)) static_cast<void>(parse_layer(line));
    else if (is_selection(line)) static_cast<void>(parse_selection(line));
    else if (is_four_bit(line)) static_cast<void>(parse_four_bit(line));
    else static_cast<void>(parse_scores(line));
}

std::unique_ptr<Trial> make_trial(Context& context, const Target& target, const std::string& line, uint64_t seed) {
    if (is_prenorm(line)) return std::make_unique<Prenorm>(context, target, parse_prenorm(line), seed);
    if (is_layer(line)) return std::make_unique<Layer>(context, target, parse_layer(line), seed);
    if (is_selection(line)) return std::make_unique<Selection>(context, target, parse_selection(line), seed);
    if (is_four_bit(line)) return std::make_unique<FourBit>(context, target, parse_four_bit(line), seed);
    return std::make_unique<Scores>(context, target, parse_scores(line), seed);
}

std::string explain_trial(const std::string& line, const std::string& device) {
    if (is_prenorm(line)) return explain(parse_prenorm(line), device);
    if (is_selection(line)) return explain(parse_selection(line), device);
    if (is_four_bit(line)) return explain(parse_four_bit(line), device);
    return is_layer(line) ? explain(parse_layer(line), device) : explain(parse_scores(line));
}

std::vector<int64_t> extents_of(const std::string& word, size_t count) {
    std::vector<int64_t> extents;
    std::istringstream parts(word);
    for (std::string part; std::getline(parts, part, 'x');) extents.push_back(number_of(part));
    const bool good =
        extents.size() == count && std::ranges::all_of(extents, [](int64_t x) { return x >= 1 && x <= INT32_MAX; });
    return good ? extents : std::vector<int64_t>();
}

}  // namespace finegemm::cli
