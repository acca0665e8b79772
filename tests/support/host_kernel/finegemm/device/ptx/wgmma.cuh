// Warpgroup products, on the host: operands are read some time after they were started, and sums are there only after
// the wait. Layer tests.
#pragma once

#include <finegemm/core/fragment.h>
#include <finegemm/core/tma_box.h>
#include <finegemm/core/wgmma_desc.h>
#include <finegemm/device/ptx/memory.cuh>

#include "support/wgmma_model.h"

namespace finegemm::ptx {

/// A K-major operand in swizzled rows, as its descriptor tells where it lies.
struct HostOperand {
    uint32_t address, row_bytes;
    Swizzle swizzle;

    static HostOperand of(uint64_t descriptor) {
        const auto swizzle = static_cast<uint32_t>(descriptor >> 62);
        const uint32_t width = swizzle == 1 ? 128 : swizzle == 2 ? 64 : 32;
        const auto address = static_cast<uint32_t>(descriptor & 0x3fff) << 4;
        if (swizzle == 0 || descriptor != wgmma_descriptor_of_rows(address, width) || address % (8 * width) != 0)
            machine->fail("a descriptor of wgmma is not what the machine knows");
        return {address, width, static_cast<Swizzle>(width)};
    }
    std::vector<uint8_t> codes(uint32_t rows, uint32_t k) const {
        std::vector<uint8_t> all;
        machine->check_fenced(address, rows * row_bytes);
        for (uint32_t r = 0; r < rows; ++r)
            for (uint32_t i = 0; i < k; ++i)
                all.push_back(*host_address({swizzled(address + r * row_bytes + i, swizzle)}));
        return all;
    }
};

/// To f32, towards zero.
inline double cut_off(double x) {
    const auto nearest = static_cast<float>(x);
    return std::fabs(nearest) > std::fabs(x) ? std::nextafter(nearest, 0.0f) : nearest;
}

/// `compute` gives [64, n] sums of the operands' rows of `row_bytes` bytes, and of what each thread has in `d`, if
/// `adds`.
template <uint32_t Registers, typename Compute>
void start_product(float (&d)[Registers], uint64_t a, uint64_t b, uint32_t row_bytes, bool adds,
                   const Compute& compute) {
    constexpr uint32_t kN = Registers * 2;
    host_kernel::Machine::Product& product = machine->product();
    if (product.started.come == 0) product.before.assign(64 * kN, 0);
    for (uint32_t r = 0; r < Registers; ++r) {
        const RowCol at = wgmma_accumulator(threadIdx.x % 128, r);
        if (adds) product.before[at.row * kN + at.col] = d[r];
        d[r] = float_of_bits(0x7fedcba9);  // until the wait
    }
    machine->registers() = {d, Registers};
    const HostOperand left = HostOperand::of(a), right = HostOperand::of(b);
    const uint32_t round = product.started.round;
    machine->meet(product.started, 128, false, "");
    if (product.started.round == round) return;
    machine->later([=, &product] {
        product.sums = compute(product.before, left.codes(64, row_bytes), right.codes(kN, row_bytes), kN);
        ++product.finished;
    });
}
template <uint32_t Registers>
void start_product(float (&d)[Registers], uint64_t a, uint64_t b, uint32_t k) {
    start_product(d, a, b, k, false, [k](const auto&, const auto& left, const auto& right, uint32_t n) {
        return wgmma_product(left, right, 64, n, k);
    });
}
/// bf16. The hardware's order of sums is not known: 16 products and a sum are added exactly here, and cut off.
template <uint32_t R>
void wgmma_k64(float (&d)[R], uint64_t a, uint64_t b, uint32_t add) {
    start_product(d, a, b, 128, add != 0, [](std::vector<float> sums, const auto& left, const auto& right, uint32_t n) {
        const auto element = [](const std::vector<uint8_t>& rows, uint32_t row, uint32_t k) {
            const size_t at = size_t{row} * 128 + 2 * k;
            return static_cast<double>(float_of_bf16(static_cast<uint16_t>(rows[at] | rows[at + 1] << 8)));
        };
        for (uint32_t i = 0; i < 64 * n; ++i) {
            double sum = sums[i];
            for (uint32_t k = 0; k < 64; ++k) {
                sum += element(left, i / n, k) * element(right, i % n, k);
                if (k % 16 == 15) sum = cut_off(sum);
            }
            sums[i] = canonical(static_cast<float>(sum));
        }
        return sums;
    });
}
template <uint32_t R>
void wgmma_k32_e4m3(float (&d)[R], uint64_t a, uint64_t b) {
    start_product(d, a, b, 32);
}
template <uint32_t R>
void wgmma_k64_e4m3(float (&d)[R], uint64_t a, uint64_t b) {
    start_product(d, a, b, 64);
}
template <uint32_t R>
void wgmma_k128_e4m3(float (&d)[R], uint64_t a, uint64_t b) {
    start_product(d, a, b, 128);
}
inline void wgmma_fence() { machine->show(0); }
inline void wgmma_commit_group() {}

/// The next product happens when all of the warpgroup have begun it, so when all have taken the sums of this one.
template <uint32_t Pending>
void wgmma_wait_group() {
    static_assert(Pending == 0);
    host_kernel::Machine::Product& product = machine->product();
    const uint32_t round = product.round_of[threadIdx.x % 128]++;
    if (product.finished == round) machine->wait_while(product.finished, ~0u, round, "a product");
    const auto& [sums, count] = machine->registers();
    for (uint32_t r = 0; r < count; ++r) {
        const RowCol at = wgmma_accumulator(threadIdx.x % 128, r);
        sums[r] = product.sums[at.row * count * 2 + at.col];
    }
}
inline void pin(float&) {}
inline void pin(uint32_t&) {}

}  // namespace finegemm::ptx
