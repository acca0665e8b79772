// Warpgroup products, on the host: operands are read some time after they were started, and sums are there only after
// the wait. Layer tests.
#pragma once

#include <finegemm/core/fragment.h>
#include <finegemm/core/tma_box.h>
#include <finegemm/core/wgmma_desc.h>
#include <finegemm/device/ptx/memory.cuh>

#include "support/wgmma_model.h"

namespace finegemm::ptx {

/// A K-major operand of e4m3 in swizzled rows, as its descriptor tells where it lies.
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

template <uint32_t Registers>
void start_product(float (&d)[Registers], uint64_t a, uint64_t b, uint32_t k) {
    host_kernel::Machine::Product& product = machine->product();
    for (float& x : d) x = float_of_bits(0x7fedcba9);  // until the wait
    machine->mine[machine->current()] = d;
    machine->mine_count[machine->current()] = Registers;
    const HostOperand left = HostOperand::of(a), right = HostOperand::of(b);
    const uint32_t round = product.started.round;
    machine->meet(product.started, 128, false, "");
    if (product.started.round == round) return;
    machine->later([=, &product] {
        const uint32_t n = Registers * 2;
        product.sums = wgmma_product(left.codes(64, k), right.codes(n, k), 64, n, k);
        ++product.finished;
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
    const uint32_t thread = machine->current(), round = product.round_of[thread % 128]++;
    if (product.finished == round) machine->wait_while(product.finished, ~0u, round, "a product");
    const uint32_t n = machine->mine_count[thread] * 2;
    for (uint32_t r = 0; r < n / 2; ++r) {
        const RowCol at = wgmma_accumulator(thread % 128, r);
        machine->mine[thread][r] = product.sums[at.row * n + at.col];
    }
}
inline void pin(float&) {}
inline void pin(uint32_t&) {}

}  // namespace finegemm::ptx
