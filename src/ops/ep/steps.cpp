// A layer over ranks as calls of the operations that it is made of. Layer engine.
#include "ops/ep/steps.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include <finegemm/error.h>

namespace finegemm {

namespace {

using comm::Message;
using comm::Place;

/// Rows of each message, and where it begins among the rows of all.
struct Rows {
    std::vector<int64_t> counts, begins;
    int64_t all = 0;

    explicit Rows(std::vector<int64_t> of_ranks) : counts(std::move(of_ranks)), begins(counts.size()) {
        std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), int64_t{0});
        all = std::reduce(counts.begin(), counts.end());
    }
};

class Steps {
public:
    Steps(Backend& backend, const EpMoeCall& call, const TakeMemory& take)
        : backend_(backend),
          call_(call),
          take_(take),
          shape_(call.shape()),
          row_(sent_row(shape_.hidden)),
          capacity_(call.how.capacity),
          ranks_(static_cast<size_t>(call.ranks())) {}

    void run() {
        capacity_ > 0 ? run_in_places() : run_exactly();
        if (capacity_ > 0) check_fits(call_, counts_);
    }

private:
    void run_in_places() {
        const int64_t rows = call_.ranks() * capacity_;
        const EpMemory parts = memory_of(shape_, call_.ranks(), capacity_);
        auto* const memory = static_cast<uint8_t*>(call_.layer.workspace ? call_.layer.workspace : take_(parts.bytes));
        const auto words = [&](int64_t at) { return reinterpret_cast<int32_t*>(memory + at); };
        sent_ = memory + parts.sent, received_ = memory + parts.received;
        y_ = memory + parts.y, returned_ = memory + parts.returned;
        inverse_ = words(parts.inverse), offsets_ = words(parts.offsets), slots_ = words(parts.slots);
        counts_ = call_.how.counts.data ? static_cast<int32_t*>(call_.how.counts.data) : words(parts.counts);
        const Rows each(std::vector<int64_t>(ranks_, capacity_));
        find_slots();
        permute(rows);
        exchange(sent_, received_, each, each, row_.bytes,
                 {received_ + row_.tail + 4, capacity_ * row_.bytes, kMissing});
        compute(rows, memory + parts.layer, parts.layer_bytes);
        exchange(y_, returned_, each, each, row_bytes(), {returned_, capacity_ * row_bytes(), kMissing});
        combine(rows + 1);
    }

    void run_exactly() {
        constexpr int64_t kOfWord = 4;
        const int64_t choices = std::max<int64_t>(call_.choices(), 1);
        const auto words = [&](int64_t count) { return static_cast<int32_t*>(take_(count * kOfWord)); };
        inverse_ = words(choices), offsets_ = words(call_.ranks() * call_.experts() + 1), slots_ = words(choices);
        counts_ = call_.how.counts.data ? static_cast<int32_t*>(call_.how.counts.data) : words(call_.ranks());
        sent_ = static_cast<uint8_t*>(take_(choices * row_.bytes));
        find_slots();
        permute(choices);
        int32_t* const coming = words(call_.ranks());
        const Rows one(std::vector<int64_t>(ranks_, 1));
        call_.group.mark_missing(coming, ranks_ * kOfWord, stream());
        exchange(counts_, coming, one, one, kOfWord, {coming, kOfWord, kMissing});
        const Rows sent(fetch_counts(counts_)), received(fetch_counts(coming));
        check_takes(received.all);
        received_ = static_cast<uint8_t*>(take_(std::max<int64_t>(received.all, 1) * row_.bytes));
        y_ = static_cast<uint8_t*>(take_(std::max<int64_t>(received.all, 1) * row_bytes()));
        returned_ = static_cast<uint8_t*>(take_(choices * row_bytes()));
        exchange(sent_, received_, sent, received, row_.bytes, {});
        if (received.all > 0) compute(received.all, nullptr, 0);
        exchange(y_, returned_, received, sent, row_bytes(), {});
        combine(choices);
    }

    /// Rows of choices in the order of experts, and from that in the order of messages.
    void find_slots() {
        const int64_t experts = call_.ranks() * call_.experts();
        const RouteOptions first{.stream = stream(), .pdl = call_.options.pdl, .poll = call_.options.poll};
        backend_.run(RouteCall{{.ids = call_.layer.ids,
                                .inverse = words_of(inverse_, call_.layer.ids.rows, call_.layer.ids.cols),
                                .numbers = words_of(offsets_, 1, experts + 1),
                                .form = GroupForm::Offsets,
                                .experts = experts,
                                .rows = std::max<int64_t>(call_.choices(), 1)},
                               first});
        const RouteOptions second{.stream = stream(), .pdl = true, .poll = call_.options.poll};
        const bool placed = capacity_ > 0;
        backend_.run(SlotsCall{
            {.ids = static_cast<const uint8_t*>(call_.layer.ids.data),
             .inverse = inverse_,
             .offsets = offsets_,
             .slots = slots_,
             .counts = counts_,
             .tails = sent_ + row_.tail,
             .coming = placed ? received_ + row_.tail : nullptr,
             .returned = placed ? returned_ : nullptr,
             .row_bytes = row_.bytes,
             .returned_row_bytes = static_cast<uint32_t>(row_bytes()),
             .ids_row_stride = call_.layer.ids.row_stride,
             .choices = static_cast<uint32_t>(call_.choices()),
             .wide = call_.layer.ids.dtype == DType::I64,
             .by_k = Divider::by(static_cast<uint32_t>(call_.layer.ids.cols)),
             .rank_slots = {.ranks = static_cast<uint32_t>(call_.ranks()),
                            .capacity = static_cast<uint32_t>(capacity_),
                            .by_experts = Divider::by(static_cast<uint32_t>(call_.experts())),
                            .by_capacity = Divider::by(static_cast<uint32_t>(std::max<int64_t>(capacity_, 1)))}},
            second});
    }

    /// Rows of tokens into messages.
    void permute(int64_t rows) {
        if (call_.layer.x.rows == 0) return;
        auto options = overlapping<PermuteOptions>();
        options.power_of_two_scales = call_.options.power_of_two_scales;
        backend_.run(PermuteCall{{.x = call_.layer.x,
                                  .x_scales = call_.layer.x_scales,
                                  .inverse = slots(),
                                  .q = {values_of(sent_, rows)},
                                  .scales = {scales_of(sent_, rows)}},
                                 options});
    }

    /// What has arrived, through the experts that are here.
    void compute(int64_t rows, void* workspace, int64_t workspace_bytes) {
        MoeArgs args = call_.layer;
        args.x = values_of(received_, rows), args.x_scales = scales_of(received_, rows);
        args.ids = {received_ + row_.tail, DType::I32, rows, 1, row_.bytes / 4, 1, call_.device()};
        args.weights = {};
        args.first = call_.group.rank() * call_.experts();
        args.out = matrix(y_, DType::BF16, rows, shape_.hidden);
        args.workspace = workspace, args.workspace_bytes = workspace_bytes;
        const MoeOptions options = local_options(call_);
        backend_.run(MoeCall{args, options, call_.check_values});
    }

    void combine(int64_t rows) {
        if (call_.layer.out.rows == 0) return;
        auto options = overlapping<CombineOptions>();
        options.pdl = false;
        backend_.run(CombineCall{{.y = {matrix(returned_, DType::BF16, rows, shape_.hidden)},
                                  .inverse = slots(),
                                  .weights = call_.layer.weights,
                                  .out = call_.layer.out},
                                 options});
    }

    void exchange(const void* from, void* to, const Rows& sent, const Rows& received, int64_t bytes,
                  const comm::Arrivals& arrivals) {
        std::vector<Message> messages;
        std::vector<Place> places;
        for (size_t r = 0; r < ranks_; ++r) {
            messages.push_back({static_cast<const uint8_t*>(from) + sent.begins[r] * bytes,
                                static_cast<size_t>(sent.counts[r] * bytes)});
            places.push_back({static_cast<uint8_t*>(to) + received.begins[r] * bytes,
                              static_cast<size_t>(received.counts[r] * bytes)});
        }
        call_.group.all_to_all({messages, places, stream(), call_.experts(), arrivals});
    }

    std::vector<int64_t> fetch_counts(const int32_t* counts) {
        std::vector<int32_t> words(ranks_);
        call_.group.fetch(words.data(), counts, ranks_ * sizeof words[0], stream());
        return {words.begin(), words.end()};
    }

    /// The others have sent what this rank cannot take: it is the end for all.
    void check_takes(int64_t rows) const {
        if (rows <= most_rows(shape_.hidden)) return;
        const std::string reason =
            fmt::format("x: {} rows come to {}, must be at most {}; split the tokens", rows,
                        comm::name_of_rank(call_.group.rank(), call_.experts()), most_rows(shape_.hidden));
        call_.group.end(reason);
        throw Error(Errc::Peer, reason);
    }

    template <typename Options>
    Options overlapping() const {
        Options o;
        o.stream = stream(), o.num_sms = call_.options.num_sms, o.poll = call_.options.poll;
        o.pdl = true;
        return o;
    }

    Stream stream() const { return call_.options.stream; }
    int64_t row_bytes() const { return shape_.hidden * size_of(DType::BF16); }
    Matrix matrix(void* at, DType dtype, int64_t rows, int64_t cols) const {
        return {at, dtype, rows, cols, cols, 1, call_.device()};
    }
    Matrix words_of(int32_t* at, int64_t rows, int64_t cols) const { return matrix(at, DType::I32, rows, cols); }
    Matrix slots() const { return words_of(slots_, call_.layer.ids.rows, call_.layer.ids.cols); }
    Matrix values_of(uint8_t* messages, int64_t rows) const {
        return {messages, DType::E4M3, rows, shape_.hidden, row_.bytes, 1, call_.device()};
    }
    Matrix scales_of(uint8_t* messages, int64_t rows) const {
        return {messages + row_.scales, DType::F32, rows,          (row_.tail - row_.scales) / 4,
                row_.bytes / 4,         1,          call_.device()};
    }

    Backend& backend_;
    const EpMoeCall& call_;
    const TakeMemory& take_;
    const MoeShape shape_;
    const SentRow row_;
    const int64_t capacity_;
    const size_t ranks_;
    int32_t *inverse_ = nullptr, *offsets_ = nullptr, *slots_ = nullptr, *counts_ = nullptr;
    uint8_t *sent_ = nullptr, *received_ = nullptr, *y_ = nullptr, *returned_ = nullptr;
};

}  // namespace

MoeOptions local_options(const EpMoeCall& call) {
    MoeOptions options = call.options;
    options.pdl = false;
    // Where most of the rows may be unused: as many as other ranks choose here if all have tokens as this one has.
    if (call.how.capacity > 0 && options.expected_m == 0)
        options.expected_m = (call.choices() + call.experts() - 1) / call.experts();
    return options;
}

void check_fits(const EpMoeCall& call, const int32_t* counts) {
    if (!call.check_values) return;
    std::vector<int32_t> words(static_cast<size_t>(call.ranks()));
    call.group.fetch(words.data(), counts, words.size() * sizeof words[0], call.options.stream);
    for (int rank = 0; const int64_t count : words)
        if (const std::string name = comm::name_of_rank(rank++, call.experts()); count > call.how.capacity)
            throw Error(Errc::InvalidArgument,
                        fmt::format("capacity: is {}, but tokens of rank {} choose {} {} times, and those that did not "
                                    "fit are NaN; pass at least {}, or 0 for as many as are chosen",
                                    call.how.capacity, call.group.rank(), name, count, count));
}

void run_steps(Backend& backend, const EpMoeCall& call, const TakeMemory& take, bool on_gpu) {
    call.has_peers() ? run_with_peers(backend, call, take, on_gpu) : Steps(backend, call, take).run();
}

}  // namespace finegemm
