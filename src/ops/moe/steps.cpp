// A layer of experts as calls of the operations that it is made of. Layer engine.
#include "ops/moe/steps.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "ops/gemm/finish/finishes.h"
#include "ops/moe/planner.h"
#include "ops/routing/hopper.h"

namespace finegemm {

namespace {

/// A call with its shape, and the parts of its memory as what the operations take.
class Steps {
public:
    Steps(Backend& backend, const MoeCall& call, const MoeForms& forms, void* memory)
        : backend_(backend),
          call_(call),
          forms_(forms),
          shape_(call.shape()),
          parts_(memory_of(shape_, forms.fused)),
          memory_(first_line(memory)),
          route_args_(with_permutation(route_of(call, parts_, memory))),
          route_options_{.stream = call.options.stream, .pdl = call.options.pdl, .poll = call.options.poll},
          stored_(!forms.fused && !call.elsewhere && awaits_rows(shape_)
                      ? reinterpret_cast<uint32_t*>(memory_ + parts_.stored)
                      : nullptr),
          route_{route_args_, route_options_, call.check_values, stored_},
          routes_together_(!call.elsewhere && route_.choices() <= kRoutedTogether && call.x.dtype == DType::BF16 &&
                           !call.check_values) {}

    void run() const {
        const MoeOptions& o = call_.options;
        if (call_.elsewhere) call_.elsewhere->bring(rows(), row_scales(), route_args_.numbers);
        else route_and_permute();
        if (forms_.fused)
            multiply_gate_up(codes(), activation(o, code_scales(), o.weights_first ? weights_of_rows() : Matrix()));
        else multiply_then_activate();
        if (call_.elsewhere) return multiply_and_send();
        if (forms_.stores_sums) return multiply_and_store_sums();
        multiply_down();
        const auto combine = overlapping<CombineOptions>();
        CombineArgs sums{.y = y(), .inverse = route_args_.inverse, .out = call_.out};
        if (!o.weights_first) sums.weights = call_.weights;
        CombineCall combined{sums, combine};
        if (counts_choices() || call_.has_bias()) combined.route = &route_;
        combined.biases = o.down_bias, combined.counts = counts_choices();
        if (o.weights_first) combined.bias_weights = call_.weights;
        backend_.run(combined);
    }

private:
    /// One launch where choices are few, not looked at before, and tokens are bf16.
    void route_and_permute() const {
        const MoeOptions& o = call_.options;
        auto options = overlapping<PermuteOptions>();
        options.power_of_two_scales = o.power_of_two_scales;
        PermuteCall permute{{.x = call_.x,
                             .x_scales = call_.x_scales,
                             .inverse = route_args_.inverse,
                             .q = rows(),
                             .scales = row_scales()},
                            options};
        permute.weights_of_rows = weights_of_rows();
        if (permute.weights_of_rows.data) permute.weights = call_.weights;
        if (forms_.stores_sums) permute.sums = call_.out;
        if (!forms_.gate_up_four_bit) permute.coming = first_weights();
        if (routes_together_) options.pdl = o.pdl, permute.route = &route_;
        else backend_.run(route_);
        backend_.run(permute);
    }
    /// CTAs that come while those of the launch before leave lie on SMs in no order: with many rows that costs more
    /// than overlapping saves, up to 10% of the product.
    void multiply_gate_up(const Stack& d, const Epilogue& epilogue = {}) const {
        constexpr int64_t kManyChoices = 4096;
        multiply("gate_up_scales", {rows(), row_scales(), call_.gate_up, call_.gate_up_scales, d, groups()}, epilogue,
                 {.overlaps = route_.choices() < kManyChoices, .stored = stored_});
    }
    void multiply_and_send() const {
        const bool stores = call_.elsewhere->places.rows.data && !forms_.down_four_bit;
        multiply_down(stores ? stored_at(call_.elsewhere->places) : Epilogue());
        call_.elsewhere->take(stores ? Stack{} : y());
    }
    void multiply_down(const Epilogue& epilogue = {}) const {
        if (forms_.down_four_bit) return multiply(codes(), code_scales(), call_.down_packed, y());
        multiply("down_scales", {codes(), code_scales(), call_.down, call_.down_scales, y(), groups()}, epilogue,
                 {.holds_back = !forms_.fused});
    }
    /// Rows of tokens that have one, each where its token has its sum. Those of others are zero already.
    void multiply_and_store_sums() const {
        auto options = overlapping<GemmOptions>();
        options.numerics = call_.options.numerics;
        options.epilogue =
            stored_by_token(route_args_.permutation, call_.options.weights_first ? Matrix() : weights_of_rows());
        Call product(GroupedGemmArgs{codes(), code_scales(), call_.down, call_.down_scales, {call_.out}, groups()},
                     options);
        product.stores_sums = true;
        backend_.gemm(product);
    }
    void multiply_then_activate() const {
        const Stack between = matrix(parts_.between, DType::BF16, 2 * shape_.intermediate);
        if (forms_.gate_up_four_bit) multiply(rows(), row_scales(), call_.gate_up_packed, between);
        else multiply_gate_up(between);
        const MoeOptions& o = call_.options;
        auto swiglu = overlapping<SwigluOptions>();
        swiglu.gate_limit = o.gate_limit, swiglu.gate_alpha = o.gate_alpha, swiglu.up_offset = o.up_offset;
        swiglu.to_bf16 = true, swiglu.power_of_two_scales = o.power_of_two_scales;
        SwigluCall activate{{.x = between, .q = codes(), .scales = code_scales(), .groups = groups()}, swiglu};
        if (o.weights_first) activate.weights = weights_of_rows();
        activate.few = counts_choices() || (!call_.elsewhere && begins_second_early(shape_));
        activate.stored = stored_;
        activate.biases = o.gate_up_bias;
        backend_.run(activate);
    }

    /// Weights that come to L2 while tokens are put in order. Experts with few rows may have none, and their products
    /// end no sooner.
    ComingBytes first_weights() const {
        constexpr int64_t kRows = 32, kBytes = 8 << 20;
        const ConstMatrix& w = call_.gate_up.matrix;
        const bool all_read = expected_rows_of(shape_) >= kRows * shape_.experts;
        if (!all_read || w.row_stride != w.cols || call_.gate_up.stride != w.rows * w.cols) return {};
        const int64_t bytes = std::min(kBytes, call_.gate_up.count * w.rows * w.cols);
        return {static_cast<const uint8_t*>(w.data), static_cast<uint64_t>(bytes)};
    }

    /// What a product does while the launches before it end, and while it runs itself.
    struct Meanwhile {
        bool overlaps = true;     // its CTAs come
        bool holds_back = false;  // where choices are counted, they load weights for half of their stages, not for all
        uint32_t* stored = nullptr;  // it reports rows (ReportParams)
    };
    /// `scales`: what callers call those of B.
    void multiply(std::string_view scales, const GroupedGemmArgs& args, const Epilogue& epilogue,
                  Meanwhile meanwhile) const {
        auto options = overlapping<GemmOptions>();
        options.numerics = call_.options.numerics, options.epilogue = epilogue;
        options.pdl = meanwhile.overlaps;
        options.prefetch_weights = counts_choices() && !meanwhile.holds_back;
        Call product(args, options);
        if (counts_choices()) product.choices = counted_choices(route_);
        product.stored = meanwhile.stored;
        if (call_.check_values) check(scales, product);
        backend_.gemm(product);
    }

    /// Weights of 4 bits, whose scales were looked at when they were packed.
    void multiply(const ConstStack& a, const ConstStack& sfa, const FourBitWeights& b, const Stack& d) const {
        auto options = overlapping<FourBitOptions>();
        options.numerics = call_.options.numerics;
        backend_.run(FourBitCall{{.a = a, .sfa = sfa, .b = b, .d = d, .groups = groups()}, options});
    }

    void check(std::string_view scales, const Call& product) const {
        try {
            backend_.check_values(product);
        } catch (const Error& e) {
            constexpr std::string_view kScales = "sfb";
            if (!std::string_view(e.what()).starts_with(kScales)) throw;
            throw Error(e.code(), fmt::format("{}{}", scales, e.what() + kScales.size()));
        }
    }

    /// Are choices so few that all launches count them?
    bool counts_choices() const { return routes_together_ && route_.choices() <= kCountedChoices; }

    /// Options of a launch that may begin while the one before it ends.
    template <typename Options>
    Options overlapping() const {
        Options o;
        o.stream = call_.options.stream, o.num_sms = call_.options.num_sms, o.poll = call_.options.poll;
        o.pdl = true;
        return o;
    }

    Stack matrix(int64_t at, DType dtype, int64_t cols) const {
        return {{memory_ + at, dtype, route_args_.rows, cols, cols, 1, call_.device()}};
    }
    /// Scales of a matrix of so many columns, with rows contiguous.
    Stack scales(int64_t at, int64_t cols) const {
        const int64_t blocks = (cols + kScaleBlock - 1) / kScaleBlock;
        return {{memory_ + at, DType::F32, route_args_.rows, blocks, 1, parts_.scale_stride, call_.device()}};
    }
    /// [1, rows], where weights multiply the activation, or what is stored.
    Matrix weights_of_rows() const {
        if ((!call_.options.weights_first && !forms_.stores_sums) || !call_.weights.data) return {};
        return {memory_ + parts_.weights_of_rows, DType::F32, 1, route_args_.rows, route_args_.rows, 1, call_.device()};
    }
    RouteArgs with_permutation(RouteArgs args) const {
        if (forms_.stores_sums)
            args.permutation = {memory_ + parts_.permutation, DType::I32, 1, args.rows, args.rows, 1, call_.device()};
        return args;
    }
    Stack rows() const { return matrix(parts_.rows, DType::E4M3, shape_.hidden); }
    Stack row_scales() const { return scales(parts_.row_scales, shape_.hidden); }
    Stack codes() const { return matrix(parts_.codes, DType::E4M3, shape_.intermediate); }
    Stack code_scales() const { return scales(parts_.code_scales, shape_.intermediate); }
    Stack y() const { return matrix(parts_.y, DType::BF16, shape_.hidden); }
    Groups groups() const {
        return {.form = route_args_.form,
                .data = static_cast<const int32_t*>(route_args_.numbers.data),
                .size = route_args_.numbers.cols,
                .expected_m = shape_.expected_m,
                .device = call_.device()};
    }

    Backend& backend_;
    const MoeCall& call_;
    const MoeForms forms_;
    const MoeShape shape_;
    const MoeMemory parts_;
    uint8_t* const memory_;
    const RouteArgs route_args_;
    const RouteOptions route_options_;
    uint32_t* const stored_;  // null: the activation waits for all experts
    const RouteCall route_;
    const bool routes_together_;
};

}  // namespace

void run_steps(Backend& backend, const MoeCall& call, const MoeForms& forms, void* memory) {
    Steps(backend, call, forms, memory).run();
}

}  // namespace finegemm
