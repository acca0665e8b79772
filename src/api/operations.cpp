// The operations: check, then hand over to the backend of the device. Layer api.
#include <chrono>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <finegemm/einsum.h>
#include <finegemm/ep.h>
#include <finegemm/four_bit.h>
#include <finegemm/gemm.h>
#include <finegemm/moe.h>
#include <finegemm/mqa.h>
#include <finegemm/prenorm.h>
#include <finegemm/quantize.h>
#include <finegemm/routing.h>
#include <finegemm/scale_layout.h>
#include <finegemm/swiglu.h>
#include <finegemm/topk.h>

#include "api/context.h"
#include "api/equations.h"
#include "api/multiply.h"
#include "cuda/nvtx.h"
#include "ops/ep/checks.h"
#include "ops/four_bit/checks.h"
#include "ops/gemm/checks.h"
#include "ops/gemm/groups.h"
#include "ops/moe/checks.h"
#include "ops/mqa/checks.h"
#include "ops/prenorm/checks.h"
#include "ops/quantize/checks.h"
#include "ops/routing/checks.h"
#include "ops/scale_layout/checks.h"
#include "ops/swiglu/checks.h"
#include "ops/topk/checks.h"
#include "plan/elements.h"
#include "plan/fields.h"

namespace finegemm {

namespace {

/// Runs a call, which returns what computed it, in a profiler's range, and tells the log.
template <typename Run>
void run_observed(const ContextState& state, const Device& device, std::string line, const Run& run) {
    using Clock = std::chrono::steady_clock;
    LoggedCall call;
    call.line = std::move(line), call.device = device;
    {
        const cuda::NvtxRange range(state.nvtx, call.line);
        const auto start = Clock::now();
        const Computing& by = run();
        call.host_us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
        call.kernel = by.kernel, call.origin = by.origin;
    }
    if (state.options.log) state.options.log(call);
}

const Computing& run_product(ContextState& state, const Call& call) {
    Backend& backend = state.backend(call.device());
    if (call.options.check_values.value_or(state.options.check_values)) backend.check_values(call);
    return backend.gemm(call);
}

/// Operations besides products. `line`: makes a call's line.
template <typename Line>
void run_operation(ContextState& state, const Device& device, const Operation& operation, const Line& line) {
    static const Computing kUnnamed{};
    const auto run = [&]() -> const Computing& {
        state.backend(device).run(operation);
        return kUnnamed;
    };
    state.observed() ? run_observed(state, device, line(), run) : static_cast<void>(run());
}

std::string text_of(const ConstStack& x) {
    const ConstMatrix& m = x.matrix;
    return fmt::format("{}{}x{} {}", x.count > 1 ? fmt::format("{}x", x.count) : "", m.rows, m.cols, name_of(m.dtype));
}

}  // namespace

void multiply(Context& context, const Call& call) {
    check_gemm(call);
    if (call.rows() == 0 || call.d.matrix.rows == 0 || call.d.matrix.cols == 0) return;
    ContextState& state = context.state();
    if (!state.observed()) return static_cast<void>(run_product(state, call));
    run_observed(state, call.device(), plan::text_of(problem_of(call, state.options.batch_invariant)),
                 [&]() -> const Computing& { return run_product(state, call); });
}

void gemm(Context& context, const GemmArgs& args, const GemmOptions& options) { multiply(context, {args, options}); }

void grouped_gemm(Context& context, const GroupedGemmArgs& args, const GemmOptions& options) {
    multiply(context, {args, options});
}

void k_grouped_gemm(Context& context, const KGroupedGemmArgs& args, const GemmOptions& options) {
    multiply(context, {args, options});
}

namespace {

/// A tensor with other letters for its stack, its rows and its columns, in this order.
template <typename AnyStack>
AnyStack viewed(AnyStack x, std::string_view letters, std::string_view as) {
    const Dimension count = dimension(x, letters, as[0]), rows = dimension(x, letters, as[1]),
                    cols = dimension(x, letters, as[2]);
    x.count = count.extent, x.stride = count.stride;
    x.matrix.rows = rows.extent, x.matrix.row_stride = rows.stride;
    x.matrix.cols = cols.extent, x.matrix.col_stride = cols.stride;
    return x;
}

/// What is no tensor: there are no scales, or there is no C.
bool is_left_out(const ConstStack& x) { return !x.matrix.data && x.matrix.rows == 0 && x.matrix.cols == 0; }

ConstStack viewed_if_given(const ConstStack& x, std::string_view letters, std::string_view as) {
    return is_left_out(x) ? x : viewed(x, letters, as);
}

/// Each letter has one extent. `of`: the name of the tensor where its extent came from.
void check_extents(const Equation& e, const EinsumArgs& x) {
    const auto check = [&](const char* name, const auto& tensor, std::string_view letters, const char* of,
                           const ConstStack& other, std::string_view other_letters) {
        for (const char letter : letters) {
            if (other_letters.find(letter) == std::string_view::npos) continue;
            const int64_t came = dimension(tensor, letters, letter).extent,
                          wanted = dimension(other, other_letters, letter).extent;
            if (came != wanted)
                reject(name, "has {0} = {1}, but {2} has {0} = {3} in '{4}'; a letter has one extent", letter, came, of,
                       wanted, e.text);
        }
    };
    check("b", x.b, e.b(), "a", x.a, e.a());
    check("d", x.d, e.d(), "a", x.a, e.a());
    check("d", x.d, e.d(), "b", x.b, e.b());
    if (e.summed && x.d.count != 1)
        reject("d", "has {} matrices, must have 1, [m, n] of '{}'; pass one", x.d.count, e.text);
}

/// Nothing to sum up is a K of 0.
ConstStack some(ConstStack x) {
    if (x.count == 0) x.count = 1, x.matrix.cols = 0;
    return x;
}

}  // namespace

void einsum(Context& context, std::string_view equation, const EinsumArgs& x, const GemmOptions& options) {
    const Equation& e = equation_named(equation);
    check_extents(e, x);
    if (e.summed) {
        for (const auto& [name, scales] : {std::pair{"sfa", x.sfa}, {"sfb", x.sfb}})
            if (!is_left_out(scales))
                reject(name, "is given, but '{}' is of {}, which have no scales; leave it out", e.text,
                       names_of(is_unscaled));
        return multiply(context, {SummedGemmArgs{some(x.a), some(x.b), x.d.matrix}, options});
    }
    const std::string a{e.batch, e.m, e.k}, b{e.batch, e.n, e.k}, d{e.batch, e.m, e.n};
    GemmOptions all = options;
    plan::arguments_of<ConstStack>([&](const char*, ConstStack& like_d) { like_d = viewed_if_given(like_d, e.d(), d); },
                                   all.epilogue);
    multiply(context, {GroupedGemmArgs{.a = viewed(x.a, e.a(), a),
                                       .sfa = viewed_if_given(x.sfa, e.a(), a),
                                       .b = viewed(x.b, e.b(), b),
                                       .sfb = viewed_if_given(x.sfb, e.b(), b),
                                       .d = viewed(x.d, e.d(), d),
                                       .groups = {.form = GroupForm::Whole, .device = x.d.matrix.device}},
                       all});
}

namespace {

void quantize(Context& context, const QuantizeCall& call) {
    check_quantize(call);
    const ConstMatrix& x = call.x.matrix;
    if (x.rows == 0 || x.cols == 0) return;
    run_operation(context.state(), x.device, call, [&] {
        return fmt::format("{} {}{}{}", call.shape == ScaleShape::Blocks ? "quantize_blocks" : "quantize_rows",
                           text_of(call.x), call.has_transposed() ? " transposed" : "",
                           call.shape == ScaleShape::WholeRows ? " whole_rows" : "");
    });
}

}  // namespace

void scale_layout(Context& context, const ScaleLayoutArgs& args, const ScaleLayoutOptions& options) {
    const ScaleLayoutCall call{args.sf, args.out, args.groups, options};
    check_scale_layout(call);
    const Matrix& out = call.out.matrix;
    if (out.rows == 0 || out.cols == 0) return;
    run_operation(context.state(), out.device, call, [&] {
        return fmt::format("scale_layout {} to {}", text_of(call.sf), text_of(ConstStack(call.out)));
    });
}

void mqa_logits(Context& context, const MqaLogitsArgs& args, const MqaOptions& options) {
    ContextState& state = context.state();
    const MqaCall call{.q = args.q,
                       .k = args.k,
                       .sfk = args.sfk,
                       .w = args.w,
                       .starts = args.starts,
                       .ends = args.ends,
                       .d = args.d,
                       .options = options,
                       .check_values = options.check_values.value_or(state.options.check_values)};
    check_mqa(call);
    if (call.d.rows == 0 || call.d.cols == 0 || call.keys() == 0) return;
    run_operation(state, call.d.device, call, [&] { return text_of(call); });
}

void paged_mqa_logits(Context& context, const PagedMqaLogitsArgs& args, const MqaOptions& options) {
    ContextState& state = context.state();
    const PagedMqaCall call{.q = args.q,
                            .cache = args.cache,
                            .w = args.w,
                            .lengths = args.lengths,
                            .block_table = args.block_table,
                            .schedule = args.schedule,
                            .d = args.d,
                            .options = options,
                            .check_values = options.check_values.value_or(state.options.check_values)};
    check_mqa(call);
    if (call.d.rows == 0 || call.d.cols == 0) return;
    run_operation(state, call.d.device, call, [&] { return text_of(call); });
}

void paged_mqa_schedule(Context& context, const PagedMqaScheduleArgs& args, const PagedMqaScheduleOptions& options) {
    const PagedMqaScheduleCall call{args.lengths, args.queries_each, args.schedule, options};
    check_mqa(call);
    run_operation(context.state(), call.schedule.device, call, [&] {
        return fmt::format("paged_mqa_schedule {}x{} to {} slots", call.lengths.rows, call.queries_each, call.slots());
    });
}

void topk(Context& context, const TopkArgs& args, const TopkOptions& options) {
    const TopkCall call{args, options};
    check_topk(call);
    if (call.rows() == 0) return;
    run_operation(context.state(), call.logits.device, call, [&] { return text_of(call); });
}

void mqa_topk(Context& context, const MqaTopkArgs& args, const TopkOptions& options) {
    ContextState& state = context.state();
    const MqaTopkCall call{args, options, options.check_values.value_or(state.options.check_values)};
    check_topk(call);
    if (call.rows() == 0) return;
    run_operation(state, call.k.device, call, [&] { return text_of(call); });
}

void paged_mqa_topk(Context& context, const PagedMqaTopkArgs& args, const TopkOptions& options) {
    ContextState& state = context.state();
    const PagedMqaTopkCall call{args, options, options.check_values.value_or(state.options.check_values)};
    check_topk(call);
    if (call.rows() == 0) return;
    run_operation(state, call.cache.device, call, [&] { return text_of(call); });
}

void prenorm_gemm(Context& context, const PrenormArgs& args, const PrenormOptions& options) {
    const PrenormCall call{args.a, args.b, args.d, args.sqrsum, options};
    check_prenorm(call);
    if (call.rows() == 0) return;
    run_operation(context.state(), call.sqrsum.device, call, [&] { return text_of(call); });
}

void swiglu_quantize(Context& context, const SwigluArgs& args, const SwigluOptions& options) {
    const SwigluCall call{args, options};
    check_swiglu(call);
    if (call.q.matrix.rows == 0 || call.q.matrix.cols == 0) return;
    run_operation(context.state(), call.x.matrix.device, call, [&] {
        const bool grouped = call.groups.form != GroupForm::Whole;
        return fmt::format("swiglu_quantize {}{}{}{}", text_of(call.x), call.options.interleaved ? " interleaved" : "",
                           grouped ? fmt::format(" {}", name_of(call.groups.form)) : "",
                           call.has_weights() ? " weighted" : "");
    });
}

void route(Context& context, const RouteArgs& args, const RouteOptions& options) {
    ContextState& state = context.state();
    const RouteCall call{args, options, options.check_values.value_or(state.options.check_values)};
    check_routing(call);
    run_operation(state, call.ids.device, call, [&] { return text_of(call); });
}

void permute_quantize(Context& context, const PermuteQuantizeArgs& args, const PermuteOptions& options) {
    ContextState& state = context.state();
    const PermuteCall call{args, options, options.check_values.value_or(state.options.check_values)};
    check_routing(call);
    if (call.x.rows == 0 || call.x.cols == 0) return;
    run_operation(state, call.x.device, call, [&] { return text_of(call); });
}

void combine(Context& context, const CombineArgs& args, const CombineOptions& options) {
    ContextState& state = context.state();
    const CombineCall call{args, options, options.check_values.value_or(state.options.check_values)};
    check_routing(call);
    if (call.out.rows == 0 || call.out.cols == 0) return;
    run_operation(state, call.out.device, call, [&] { return text_of(call); });
}

void moe(Context& context, const MoeArgs& args, const MoeOptions& options) {
    ContextState& state = context.state();
    const MoeCall call{args, options, options.check_values.value_or(state.options.check_values)};
    check_moe(call);
    if (call.x.rows == 0) return;
    run_operation(state, call.device(), call, [&] { return text_of(call); });
}

void ep_moe(Context& context, Communicator& communicator, const MoeArgs& layer, const EpOptions& how,
            const MoeOptions& options) {
    ContextState& state = context.state();
    const EpMoeCall call{layer,
                         options,
                         how,
                         communicator.group(),
                         options.check_values.value_or(state.options.check_values),
                         how.memory ? &how.memory->state() : nullptr};
    check_ep_moe(call);
    run_operation(state, call.device(), call, [&] { return text_of(call); });
}

void four_bit_gemm(Context& context, const FourBitArgs& args, const FourBitOptions& options) {
    const FourBitCall call{args, options};
    check_four_bit(call);
    if (call.a.matrix.rows == 0) return;
    run_operation(context.state(), call.d.matrix.device, call, [&] { return text_of(call.shape()); });
}

void quantize_rows(Context& context, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
                   const QuantizeOptions& options) {
    quantize(context, {shape_of_row_scales(x, scales), x, q, scales, options});
}

void quantize_columns(Context& context, const QuantizeColumnsArgs& args, const QuantizeOptions& options) {
    const QuantizeColumnsCall call{args, options};
    check_quantize(call);
    if (!call.has_groups() && (call.q.rows == 0 || call.q.cols == 0)) return;
    run_operation(context.state(), call.x.device, call, [&] {
        return fmt::format("quantize_columns {}{}{}", text_of({call.x, 1, 0}),
                           call.has_groups() ? fmt::format(" {} groups", call.groups().groups) : "",
                           call.has_rows() ? " with rows" : "");
    });
}

void quantize_blocks(Context& context, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
                     const QuantizeOptions& options) {
    quantize(context, {ScaleShape::Blocks, x, q, scales, options});
}

void quantize_weights(Context& context, const QuantizeWeightsArgs& args, const QuantizeOptions& options) {
    quantize(context, {args, options});
}

void reencode(Context& context, const ReencodeArgs& args, const ReencodeOptions& options) {
    const ReencodeCall call{args, options};
    check_reencode(call);
    const ConstMatrix& codes = call.codes.matrix;
    if (codes.rows == 0 || codes.cols == 0) return;
    run_operation(context.state(), codes.device, call, [&] {
        return fmt::format("reencode {}{}", text_of(call.codes), call.has_blocks() ? " blocks" : "");
    });
}

}  // namespace finegemm
