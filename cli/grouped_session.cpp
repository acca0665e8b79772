// One grouped GEMM on one device. Layer cli.
#include "cli/grouped_session.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include <finegemm/quantize.h>

namespace finegemm::cli {

namespace {

const std::map<std::string, GroupForm> kForms = {{"offsets", GroupForm::Offsets},
                                                 {"indices", GroupForm::Indices},
                                                 {"prefix-sums", GroupForm::PrefixSums},
                                                 {"masked", GroupForm::Masked}};

int64_t rounded_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

/// One matrix of several that lie one below the other.
Matrix part_of(Matrix all, int64_t count, int64_t i) {
    all.rows /= count;
    all.data = static_cast<uint8_t*>(all.data) + i * all.rows * all.row_stride * size_of(all.dtype);
    return all;
}

ConstStack stack_of(const Matrix& all, int64_t count) {
    const Matrix first = part_of(all, count, 0);
    return {first, count, first.rows * first.row_stride};
}

}  // namespace

CLI::Option* add_group_options(CLI::App& command, GroupOptions& o) {
    auto* groups =
        command
            .add_option("--groups", o.count, "Multiply M rows in so many groups with a B each: ragged, drawn by --seed")
            ->check(CLI::Range(1, 1024));
    command.add_option("--form", o.form, "How the groups' rows are told: offsets, indices, prefix-sums or masked")
        ->check(CLI::IsMember(kForms))
        ->capture_default_str()
        ->needs(groups);
    return groups;
}

std::vector<int64_t> ragged_sizes(int64_t m, int64_t groups, uint64_t seed) {
    // The standard says what the engine gives, but not what its distributions make of it.
    std::mt19937_64 engine(seed);
    constexpr uint64_t kLargest = 1 << 20, kOneInEmpty = 8;
    std::vector<uint64_t> ends;  // of shares that are not rounded to rows yet
    for (int64_t g = 0; g < groups; ++g) {
        const bool empty = engine() % kOneInEmpty == 0;
        const uint64_t share = 1 + engine() % kLargest;
        ends.push_back((ends.empty() ? 0 : ends.back()) + (empty ? 0 : share));
    }
    std::vector<int64_t> sizes;
    int64_t before = 0;
    for (const uint64_t end : ends) {
        const double part = ends.back() > 0 ? static_cast<double>(end) / static_cast<double>(ends.back()) : 1;
        const auto row = static_cast<int64_t>(part * static_cast<double>(m));
        sizes.push_back(row - before);
        before = row;
    }
    if (groups > 1 && std::ranges::min(sizes) > 0) {
        const auto i = static_cast<size_t>(engine() % static_cast<uint64_t>(groups));
        sizes[(i + 1) % sizes.size()] += sizes[i];
        sizes[i] = 0;
    }
    return sizes;
}

int64_t busy_groups(const std::vector<int64_t>& sizes) {
    return std::ranges::count_if(sizes, [](int64_t size) { return size > 0; });
}

RaggedRows rows_in_form(const std::string& form, const std::vector<int64_t>& sizes) {
    RaggedRows r{.form = kForms.at(form)};
    if (r.form == GroupForm::Masked) {
        r.stacks = static_cast<int64_t>(sizes.size());
        r.rows = std::ranges::max(sizes);
        r.numbers.assign(sizes.begin(), sizes.end());
        return r;
    }
    if (r.form == GroupForm::Offsets) r.numbers.push_back(0);
    for (size_t g = 0; g < sizes.size(); ++g) {
        const int64_t begin = r.form == GroupForm::Offsets ? r.rows : rounded_up(r.rows, kRowAlignment);
        r.rows = begin + sizes[g];
        if (r.form == GroupForm::Indices) {
            r.numbers.resize(static_cast<size_t>(begin), -1);
            r.numbers.resize(static_cast<size_t>(r.rows), static_cast<int32_t>(g));
        } else {
            r.numbers.push_back(static_cast<int32_t>(r.rows));
        }
    }
    return r;
}

GroupedSession::Part GroupedSession::make(DType dtype, int64_t count, int64_t rows, int64_t cols) const {
    return {mirrored(target_, dtype, count * rows, cols), count};
}

GroupedSession::GroupedSession(Context& context, const Target& target, const Shape& shape, const GroupOptions& groups,
                               uint64_t seed)
    : context_(context),
      target_(target),
      sizes_(ragged_sizes(shape.m, groups.count, seed)),
      rows_(rows_in_form(groups.form, sizes_)) {
    const int64_t n = shape.n, k = shape.k, k_blocks = (k + 127) / 128;
    a_ = make(DType::E4M3, rows_.stacks, rows_.rows, k);
    sfa_ = make(DType::F32, rows_.stacks, rows_.rows, k_blocks);
    b_ = make(DType::E4M3, groups.count, n, k);
    sfb_ = make(DType::F32, groups.count, (n + 127) / 128, k_blocks);
    d_ = make(DType::BF16, rows_.stacks, rows_.rows, n);
    numbers_ = mirrored(target, rows_.numbers);

    const HostMatrix random = random_matrix(1, kRandomPeriod, seed);
    HostMatrix x = make_matrix(DType::F32, a_.host.rows, k), w = make_matrix(DType::F32, n, k);
    const Matrix x_there = allocate_on(target, x), w_there = allocate_on(target, w);
    fill(x, random, 0);
    upload(target, x, x_there);
    quantize_rows(context, x_there, a_.there, sfa_.there, {});
    for (int64_t g = 0; g < groups.count; ++g) {
        // Blocks of scales begin anew in each group. The copy waits for the product before it: one stream has both.
        fill(w, random, (g + 1) * (n * k + 1));
        upload(target, w, w_there);
        quantize_blocks(context, w_there, part_of(b_.there, b_.count, g), part_of(sfb_.there, sfb_.count, g), {});
    }
}

GroupedGemmArgs GroupedSession::args(bool on_host) {
    const auto all = [&](Mirrored& part) { return on_host ? part.host.view() : part.there; };
    const Matrix numbers = on_host ? numbers_.host.view() : numbers_.there, d = all(d_);
    const Matrix first = part_of(d, d_.count, 0);
    return {.a = stack_of(all(a_), a_.count),
            .sfa = stack_of(all(sfa_), sfa_.count),
            .b = stack_of(all(b_), b_.count),
            .sfb = stack_of(all(sfb_), sfb_.count),
            .d = {first, d_.count, first.rows * first.row_stride},
            .groups = {.form = rows_.form,
                       .data = static_cast<const int32_t*>(numbers.data),
                       .size = numbers.cols,
                       .alignment = kRowAlignment,
                       .expected_m = shape().expected_m,
                       .device = numbers.device}};
}

GroupedShape GroupedSession::shape() const {
    const auto count = static_cast<int64_t>(sizes_.size());
    return {.m = a_.host.rows,
            .n = d_.host.cols,
            .k = a_.host.cols,
            .groups = count,
            .expected_m = std::max<int64_t>(1, std::accumulate(sizes_.begin(), sizes_.end(), int64_t{0}) / count),
            .alignment = rows_.form == GroupForm::Indices ? kRowAlignment : 0};
}

double GroupedSession::time(const GemmOptions& options, int repeats) {
    return median_time(target_, repeats,
                       [this, options, arguments = args(false)] { grouped_gemm(context_, arguments, options); });
}

GroupedGemmArgs GroupedSession::fetch() {
    for (Mirrored* part : {&a_, &sfa_, &b_, &sfb_, &d_}) download(target_, part->host, part->there);
    return args(true);
}

}  // namespace finegemm::cli
