// A layer over ranks that reach each other's memory: rows go to their experts, and back, without messages. Layer
// engine.
#include <algorithm>

#include <fmt/format.h>

#include "ops/ep/steps.h"

namespace finegemm {

namespace {

class PeerSteps {
public:
    PeerSteps(Backend& backend, const EpMoeCall& call, const TakeMemory& take, bool on_gpu)
        : backend_(backend),
          call_(call),
          take_(take),
          stores_results_(on_gpu && !call.check_values),
          shape_(call.shape()),
          row_(sent_row(shape_.hidden)) {
        const PeerMemoryState& memory = *call.memory;
        const auto ranks = static_cast<int32_t>(call.ranks());
        view_ = {.memory = {},
                 .places = peer_places(memory.most, ranks),
                 .missing = call.group.missing(call.experts()),
                 .timeout_ns = static_cast<uint64_t>(call.group.timeout().count() * 1e9),
                 .rank = static_cast<uint32_t>(call.group.rank()),
                 .ranks = static_cast<uint32_t>(ranks),
                 .experts = static_cast<uint32_t>(call.experts()),
                 .tokens = static_cast<uint32_t>(shape_.tokens),
                 .k = static_cast<uint32_t>(shape_.choices),
                 .capacity = static_cast<uint32_t>(call.how.capacity),
                 .value_bytes = static_cast<uint32_t>(shape_.hidden),
                 .scale_blocks = static_cast<uint32_t>((row_.tail - row_.scales) / 4),
                 .row_bytes = static_cast<uint32_t>(row_.bytes),
                 .result_bytes = static_cast<uint32_t>(shape_.hidden * size_of(DType::BF16))};
        for (int r = 0; r < ranks; ++r) view_.memory[r] = static_cast<uint8_t*>(memory.table->of(r));
    }

    void run() {
        const auto workspace = static_cast<uint8_t*>(call_.layer.workspace);
        const EpMemory parts = memory_of(shape_, call_.ranks(), call_.how.capacity);
        void* const layer = workspace ? workspace + parts.layer : take_(parts.layer_bytes);
        void* const counts = call_.how.counts.data ? call_.how.counts.data
                             : workspace           ? workspace + parts.counts
                                                   : take_(call_.ranks() * 4);
        call_.group.check();
        results_ = static_cast<uint64_t*>(workspace ? workspace + parts.sent  // as much as a message at least
                                                    : take_(rows() * static_cast<int64_t>(sizeof *results_)));
        publish();
        compute(layer, parts.layer_bytes, static_cast<int32_t*>(counts));
        combine();
        check_fits(call_, static_cast<const int32_t*>(counts));
    }

private:
    /// Rows of this rank's choices, and its tokens, to where other ranks find them.
    void publish() {
        const RouteOptions first{.stream = stream(), .pdl = call_.options.pdl, .poll = call_.options.poll};
        const int64_t experts = call_.ranks() * call_.experts();
        backend_.run(RouteCall{{.ids = call_.layer.ids,
                                .inverse = inverse(),
                                .numbers = mine(view_.places.offsets, DType::I32, 1, experts + 1),
                                .form = GroupForm::Offsets,
                                .experts = experts,
                                .rows = std::max<int64_t>(call_.choices(), 1)},
                               first});
        if (shape_.tokens == 0) return;
        PermuteOptions second = overlapping();
        second.power_of_two_scales = call_.options.power_of_two_scales;
        const Matrix values{at(view_.places.rows), DType::E4M3, shape_.tokens, shape_.hidden, row_.bytes, 1,
                            call_.device()};
        const Matrix scales{at(view_.places.rows + row_.scales),
                            DType::F32,
                            shape_.tokens,
                            view_.scale_blocks,
                            row_.bytes / 4,
                            1,
                            call_.device()};
        backend_.run(PermuteCall{{.x = call_.layer.x,
                                  .x_scales = call_.layer.x_scales,
                                  .inverse = mine(view_.places.order, DType::I32, shape_.tokens, 1),
                                  .q = {values},
                                  .scales = {scales}},
                                 second});
    }

    /// The experts here, over rows of all ranks.
    void compute(void* workspace, int64_t workspace_bytes, int32_t* counts) {
        const int32_t* numbers = nullptr;
        ElsewhereRows elsewhere{.bring =
                                    [&](const Stack& q, const Stack& scales, const Matrix& offsets) {
                                        numbers = static_cast<const int32_t*>(offsets.data);
                                        pull(q, scales, offsets, counts);
                                    },
                                .take = [&](const Stack& y) { push(y, numbers); }};
        // The CPU's product has no addresses, and who looks at values finds no numbers among them.
        if (stores_results_) elsewhere.places = {{results_, DType::I64, rows(), 1, 1, 1, call_.device()}};
        MoeArgs args = call_.layer;
        args.x = {nullptr, DType::E4M3, rows(), shape_.hidden, shape_.hidden, 1, call_.device()};
        args.ids = {nullptr, DType::I32, rows(), 1, 1, 1, call_.device()};
        args.weights = {};
        args.out = {nullptr, DType::BF16, rows(), shape_.hidden, shape_.hidden, 1, call_.device()};
        args.workspace = workspace, args.workspace_bytes = workspace_bytes;
        const MoeOptions of_layer = local_options(call_);
        backend_.run(MoeCall{args, of_layer, call_.check_values, &elsewhere});
    }

    void pull(const Stack& q, const Stack& scales, const Matrix& offsets, int32_t* counts) {
        const PermuteOptions options = overlapping();
        backend_.run(PullCall{{.peers = view_,
                               .q = static_cast<uint8_t*>(q.matrix.data),
                               .scales = static_cast<float*>(scales.matrix.data),
                               .scale_col_stride = scales.matrix.col_stride,
                               .numbers = static_cast<int32_t*>(offsets.data),
                               .counts = counts,
                               .results = results_},
                              call_.memory->most.tokens,
                              options,
                              call_.group});
    }

    /// Tells all ranks that their results are there, behind those that are not yet.
    void push(const Stack& y, const int32_t* numbers) {
        const PermuteOptions options = overlapping();
        backend_.run(PushCall{
            {.peers = view_, .y = static_cast<const uint8_t*>(y.matrix.data), .numbers = numbers, .results = results_},
            options,
            call_.group});
    }

    void combine() {
        if (shape_.tokens == 0) return;
        const CombineOptions options{
            .stream = stream(), .num_sms = call_.options.num_sms, .pdl = true, .poll = call_.options.poll};
        backend_.run(CombineCall{{.y = {mine(view_.places.returned, DType::BF16, call_.choices(), shape_.hidden)},
                                  .inverse = inverse(),
                                  .weights = call_.layer.weights,
                                  .out = call_.layer.out},
                                 options});
    }

    int64_t rows() const { return call_.ranks() * call_.how.capacity; }
    PermuteOptions overlapping() const {
        PermuteOptions o;
        o.stream = stream(), o.num_sms = call_.options.num_sms, o.poll = call_.options.poll;
        o.pdl = true;
        return o;
    }
    Stream stream() const { return call_.options.stream; }
    uint8_t* at(int64_t place) const { return view_.memory[view_.rank] + place; }
    Matrix mine(int64_t place, DType dtype, int64_t rows, int64_t cols) const {
        return {at(place), dtype, rows, cols, cols, 1, call_.device()};
    }
    Matrix inverse() const { return mine(view_.places.inverse, DType::I32, shape_.tokens, shape_.choices); }

    Backend& backend_;
    const EpMoeCall& call_;
    const TakeMemory& take_;
    const bool stores_results_;  // the second product does
    const MoeShape shape_;
    const SentRow row_;
    PeerView view_;
    uint64_t* results_ = nullptr;  // [rows()]: where the result of each row belongs
};

}  // namespace

void run_with_peers(Backend& backend, const EpMoeCall& call, const TakeMemory& take, bool on_gpu) {
    PeerSteps(backend, call, take, on_gpu).run();
}

}  // namespace finegemm
