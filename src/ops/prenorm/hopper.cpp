// The product before a norm as a launch. Layer engine.
#include "ops/prenorm/hopper.h"

#include <finegemm/core/tma_box.h>

#include "cuda/tensor_map.h"

namespace finegemm {

namespace {

/// A is read once: where it goes first, modified lines of others stay in L2, whose writing takes 3 us of an H200.
/// Reading on is 2% slower, which is more where A has this many bytes.
constexpr int64_t kLongRead = 350'000'000;

/// As a stack of matrices with rows of 128 bytes, of which a stage has some: rows of a box are no longer. The stride of
/// one row may be anything: then it is that of tight rows.
TensorMap map_of(const ConstMatrix& x, uint32_t element_bytes, uint32_t rows, uint32_t stage_cols,
                 const cuda::Driver& driver) {
    const uint32_t cols = 128 / element_bytes;
    const int64_t stride = x.rows > 1 ? x.row_stride : x.cols;
    return cuda::encode(driver,
                        {.data = x.data,
                         .rows = static_cast<uint64_t>(x.rows),
                         .cols = cols,
                         .row_stride_bytes = static_cast<uint64_t>(stride) * element_bytes,
                         .count = static_cast<uint64_t>(x.cols) / cols,
                         .stride_bytes = 128},
                        {.rows = rows,
                         .cols = cols,
                         .element_bytes = element_bytes,
                         .swizzle = Swizzle::B128,
                         .count = stage_cols / cols});
}

/// Do all rows of all slices lie at multiples of 16 bytes?
bool has_vectors(const Stack& d) {
    const auto in_place = [](int64_t count, int64_t stride) { return count <= 1 || stride % 4 == 0; };
    return reinterpret_cast<uintptr_t>(d.matrix.data) % 16 == 0 && in_place(d.matrix.rows, d.matrix.row_stride) &&
           in_place(d.count, d.stride);
}

int64_t number_of(const void* data) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(data)); }

}  // namespace

PrenormCallKey call_key(const PrenormCall& call) {
    const auto& [a, b, d, sqrsum, options] = call;
    return {number_of(a.data),
            a.rows,
            a.row_stride,
            number_of(b.data),
            b.rows,
            b.cols,
            b.row_stride,
            number_of(d.matrix.data),
            d.matrix.row_stride,
            d.count,
            d.stride,
            number_of(sqrsum.data),
            sqrsum.row_stride,
            options.num_sms};
}

PrenormLaunch launch_of(const PrenormCall& call, const cuda::Driver& driver, const plan::DeviceSpec& device) {
    return launch_of(call, driver,
                     plan_of({call.rows(), call.cols(), call.k(), call.slices(), call.options.num_sms}, device));
}

PrenormLaunch launch_of(const PrenormCall& call, const cuda::Driver& driver, const PrenormPlan& plan) {
    const PrenormConfig& c = plan.kernel.config;
    PrenormParams p{};
    const uint32_t stage_cols = c.blocks() * kPrenormBlock;
    p.a = map_of(call.a, 2, c.rows, stage_cols, driver);
    p.b = map_of(call.b, 4, c.cols, stage_cols, driver);
    p.d = static_cast<float*>(call.d.matrix.data);
    p.d_slice_stride = call.d.stride;
    p.d_row_stride = call.d.matrix.row_stride;
    p.squares = static_cast<float*>(call.sqrsum.data);
    p.squares_stride = call.sqrsum.row_stride;
    p.rows = static_cast<uint32_t>(call.rows());
    p.cols = static_cast<uint32_t>(call.cols());
    p.slices = static_cast<uint32_t>(call.slices());
    p.real_slices = Divider::by(plan.slices);
    p.items = ceil_div(p.rows, c.rows) * plan.slices;
    p.cluster_log2 = plan.kernel.cluster_log2;
    p.parts = PrenormParts::of(ceil_div(static_cast<uint32_t>(call.k()), stage_cols), plan.parts());
    p.vectors = has_vectors(call.d);
    p.a_policy = call.rows() * call.k() * 2 < kLongRead ? kEvictFirst : kEvictNormal;
    return {plan.kernel, p, plan.ctas()};
}

}  // namespace finegemm
