// One K-grouped GEMM on one device. Layer cli.
#include "cli/k_grouped_session.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <finegemm/error.h>
#include <finegemm/quantize.h>

#include "cli/grouped_session.h"

namespace finegemm::cli {

namespace {

constexpr int64_t kBlock = 128;  // k of a scale; groups have whole ones
const std::map<std::string, KLayout> kLayouts = {{"columns", KLayout::Columns}, {"blocks", KLayout::Blocks}};

/// K divided among groups at random, in whole blocks.
std::vector<int64_t> ragged_k(int64_t k, int64_t groups, uint64_t seed) {
    if (k % kBlock != 0)
        throw Error(Errc::InvalidArgument,
                    fmt::format("K is {}, must be a multiple of {} with --k-groups; round it up", k, kBlock));
    std::vector<int64_t> sizes = ragged_sizes(k / kBlock, groups, seed);
    for (int64_t& size : sizes) size *= kBlock;
    return sizes;
}

Matrix columns_of(Matrix x, int64_t first, int64_t count) {
    x.data = static_cast<uint8_t*>(x.data) + first * size_of(x.dtype);
    x.cols = count;
    return x;
}

/// A group's part of A or B: `count` of K from `first` on.
Matrix part_of(Matrix x, KLayout layout, int64_t first, int64_t count) {
    if (layout == KLayout::Columns) return columns_of(x, first, count);
    x.data = static_cast<uint8_t*>(x.data) + x.rows * first;
    x.cols = x.row_stride = count;
    return x;
}

}  // namespace

CLI::Option* add_k_group_options(CLI::App& command, KGroupOptions& o) {
    auto* groups = command
                       .add_option("--k-groups", o.count,
                                   "Multiply so many groups with a part of K and a D each: ragged, drawn by --seed")
                       ->check(CLI::Range(1, 1024));
    command
        .add_option("--layout", o.layout,
                    "How the groups' parts of A and B lie: columns (sizes on the device) or "
                    "blocks (sizes on the host)")
        ->check(CLI::IsMember(kLayouts))
        ->capture_default_str()
        ->needs(groups);
    return groups;
}

KGroupedSession::KGroupedSession(Context& context, const Target& target, const Shape& shape,
                                 const KGroupOptions& groups, uint64_t seed)
    : context_(context),
      target_(target),
      layout_(kLayouts.at(groups.layout)),
      sizes_(ragged_k(shape.k, groups.count, seed)),
      offsets_{0} {
    const auto& [m, n, k] = shape;
    for (const int64_t size : sizes_) offsets_.push_back(offsets_.back() + static_cast<int32_t>(size));
    a_ = mirrored(target, DType::E4M3, m, k);
    sfa_ = mirrored(target, DType::F32, m, k / kBlock);
    b_ = mirrored(target, DType::E4M3, n, k);
    sfb_ = mirrored(target, DType::F32, n, k / kBlock);
    d_ = mirrored(target, DType::F32, groups.count * m, n);
    numbers_ = mirrored(target, offsets_);

    const HostMatrix random = random_matrix(1, kRandomPeriod, seed);
    quantize(random, 0, a_, sfa_);
    quantize(random, m * k + 1, b_, sfb_);
}

/// A group after the other, as that is how they lie in blocks. The copy waits for the kernel before it.
void KGroupedSession::quantize(const HostMatrix& random, int64_t first, Mirrored& q, Mirrored& scales) {
    HostMatrix x = make_matrix(DType::F32, q.host.rows, std::ranges::max(sizes_));
    Matrix there = allocate_on(target_, x);
    for (size_t g = 0; g < sizes_.size(); ++g) {
        const int64_t begin = offsets_[g];
        fill(x, random, first + q.host.rows * begin);
        upload(target_, x, there);
        there.cols = there.row_stride = sizes_[g];
        quantize_rows(context_, there, part_of(q.there, layout_, begin, sizes_[g]),
                      columns_of(scales.there, begin / kBlock, sizes_[g] / kBlock), {});
    }
}

KGroupedGemmArgs KGroupedSession::args(bool on_host) {
    const auto all = [&](Mirrored& part) { return on_host ? part.host.view() : part.there; };
    const bool host_offsets = on_host || layout_ == KLayout::Blocks;
    Matrix d = all(d_);
    d.rows = a_.host.rows;
    return {.a = all(a_),
            .sfa = all(sfa_),
            .b = all(b_),
            .sfb = all(sfb_),
            .d = {d, static_cast<int64_t>(sizes_.size()), d.rows * d.row_stride},
            .offsets = host_offsets ? offsets_.data() : static_cast<const int32_t*>(numbers_.there.data),
            .groups = static_cast<int64_t>(sizes_.size()),
            .offsets_device = host_offsets ? Device{} : numbers_.there.device,
            .layout = layout_};
}

KGroupedShape KGroupedSession::shape() const {
    return {.m = a_.host.rows, .n = b_.host.rows, .k = a_.host.cols, .groups = static_cast<int64_t>(sizes_.size())};
}

double KGroupedSession::time(const GemmOptions& options, int repeats) {
    return median_time(target_, repeats,
                       [this, options, arguments = args(false)] { k_grouped_gemm(context_, arguments, options); });
}

KGroupedGemmArgs KGroupedSession::fetch() {
    for (Mirrored* part : {&a_, &sfa_, &b_, &sfb_, &d_}) download(target_, part->host, part->there);
    return args(true);
}

double traffic_bytes(const KGroupedShape& shape) {
    const int64_t m = shape.m, n = shape.n, k = shape.k;
    const int64_t of_row = k + k / kBlock * size_of(DType::F32);
    return static_cast<double>((m + n) * of_row + shape.groups * m * n * size_of(DType::F32));
}

}  // namespace finegemm::cli
