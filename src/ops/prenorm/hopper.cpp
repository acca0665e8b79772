// The product before a norm as a launch. Layer engine.
#include "ops/prenorm/hopper.h"

#include <finegemm/core/tma_box.h>

#include "cuda/tensor_map.h"

namespace finegemm {

namespace {

/// A is read once. The policy is as createpolicy.fractional encodes it for a fraction of one. PTX ISA, createpolicy.
constexpr uint64_t kEvictFirst = 0x12f0000000000000;

/// The stride of one row may be anything: then it is that of tight rows.
TensorMap map_of_a(const ConstMatrix& a, uint32_t rows, const cuda::Driver& driver) {
    return cuda::encode(driver,
                        {.data = a.data,
                         .rows = static_cast<uint64_t>(a.rows),
                         .cols = static_cast<uint64_t>(a.cols),
                         .row_stride_bytes = static_cast<uint64_t>(a.rows > 1 ? a.row_stride : a.cols) * 2},
                        {.rows = rows, .cols = kPrenormBlock, .element_bytes = 2, .swizzle = Swizzle::B128});
}

/// As a stack of matrices of 32 columns, two of which are a block: a row of a box has 128 bytes at most.
TensorMap map_of_b(const ConstMatrix& b, uint32_t rows, const cuda::Driver& driver) {
    return cuda::encode(driver,
                        {.data = b.data,
                         .rows = static_cast<uint64_t>(b.rows),
                         .cols = 32,
                         .row_stride_bytes = static_cast<uint64_t>(b.row_stride) * 4,
                         .count = static_cast<uint64_t>(b.cols) / 32,
                         .stride_bytes = 128},
                        {.rows = rows, .cols = 32, .element_bytes = 4, .swizzle = Swizzle::B128, .count = 2});
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
    p.a = map_of_a(call.a, c.rows, driver);
    p.b = map_of_b(call.b, c.cols, driver);
    p.d = static_cast<float*>(call.d.matrix.data);
    p.d_slice_stride = call.d.stride;
    p.d_row_stride = call.d.matrix.row_stride;
    p.squares = static_cast<float*>(call.sqrsum.data);
    p.squares_stride = call.sqrsum.row_stride;
    p.rows = static_cast<uint32_t>(call.rows());
    p.cols = static_cast<uint32_t>(call.cols());
    p.slices = static_cast<uint32_t>(call.slices());
    p.real_slices = plan.slices;
    p.items = ceil_div(p.rows, c.rows) * plan.slices;
    p.cluster_log2 = plan.kernel.cluster_log2;
    p.parts = PrenormParts::of(static_cast<uint32_t>(call.k()) / kPrenormBlock, plan.parts());
    p.vectors = has_vectors(call.d);
    p.a_policy = kEvictFirst;
    return {plan.kernel, p, plan.ctas()};
}

}  // namespace finegemm
