// The C ABI of a layer of experts. Layer api.
#include "ops/moe/c_abi.h"

#include "api/c_values.h"
#include "api/option_lists.h"

namespace finegemm {

namespace {

const auto take_one = [](const char* name, const auto& from, auto& to) { take(name, from, to); };

void check_fused(int32_t given) {
    if (given < FINEGEMM_AS_CONTEXT || given > FINEGEMM_OFF)
        reject("fused", "is {}, must be 0 (whichever is faster), 1 (on) or 2 (off); pass one of them", given);
}

}  // namespace

MoeArgs to_args(const finegemm_moe_args& args) {
    return {.x = to_matrix(args.x, "x"),
            .x_scales = to_matrix(args.x_scales, "x_scales"),
            .ids = to_matrix(args.ids, "ids"),
            .weights = to_matrix(args.weights, "weights"),
            .gate_up = to_stack(args.gate_up, "gate_up"),
            .gate_up_scales = to_stack(args.gate_up_scales, "gate_up_scales"),
            .down = to_stack(args.down, "down"),
            .down_scales = to_stack(args.down_scales, "down_scales"),
            .first = args.first,
            .out = to_matrix(args.out, "out"),
            .workspace = args.workspace,
            .workspace_bytes = args.workspace_bytes};
}

FourBitWeights to_weights(const finegemm_four_bit_weights& x, const char* name) {
    require_zero(x.reserved, name);
    return {.data = x.data,
            .format = static_cast<FourBitFormat>(x.format),
            .groups = x.groups,
            .rows = x.rows,
            .cols = x.cols,
            .device = {static_cast<DeviceType>(x.device_type), x.device_index}};
}

MoeArgs to_args(const finegemm_moe_args& given, const finegemm_four_bit_weights* gate_up,
                const finegemm_four_bit_weights* down) {
    require(gate_up, "gate_up");
    require(down, "down");
    MoeArgs layer = to_args(given);
    layer.gate_up_packed = to_weights(*gate_up, "gate_up_packed");
    layer.down_packed = to_weights(*down, "down_packed");
    return layer;
}

MoeOptions to_options(const finegemm_moe_options& caller) {
    const finegemm_moe_options given = known_part(caller, "options");
    check_fused(given.fused);
    MoeOptions o{.stream = given.stream, .poll = to_poll(given.poll, given.poll_data)};
    moe_options(take_one, given, o);
    take("gate_up_bias", given.gate_up_bias, o.gate_up_bias);
    take("down_bias", given.down_bias, o.down_bias);
    return o;
}

MoeShape to_shape(const finegemm_moe_shape& given) {
    check_fused(given.fused);
    require_zero(given.reserved, "shape");
    MoeShape shape;
    moe_fields(take_one, given, shape);
    if (given.four_bit != 0) shape.four_bit = static_cast<FourBitFormat>(given.four_bit);
    shape.four_bit_alone = to_bool(given.four_bit_alone, "four_bit_alone");
    shape.biased = to_bool(given.biased, "biased");
    return shape;
}

}  // namespace finegemm

using namespace finegemm;

int32_t finegemm_moe(finegemm_context* context, const finegemm_moe_args* args, const finegemm_moe_options* options,
                     finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(args, "args");
        moe(context->context, to_args(*args), options ? to_options(*options) : MoeOptions{});
    });
}

int32_t finegemm_moe_workspace_bytes(const finegemm_moe_shape* shape, int64_t* bytes, finegemm_error* error) {
    return guarded(error, [&] {
        require(shape, "shape");
        require(bytes, "bytes");
        *bytes = moe_workspace_bytes(to_shape(known_part(*shape, "shape")));
    });
}

int32_t finegemm_explain_moe(const finegemm_moe_shape* shape, char* buffer, size_t capacity, size_t* needed,
                             finegemm_error* error) {
    return guarded(error, [&] {
        require(shape, "shape");
        const finegemm_moe_shape given = known_part(*shape, "shape");
        put_text(explain(to_shape(given), given.device ? given.device : ""), buffer, capacity, needed);
    });
}
