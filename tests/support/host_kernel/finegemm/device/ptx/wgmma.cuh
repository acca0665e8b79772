// Warpgroup products, on the host: operands are read some time after they were started, and sums are there only after
// the wait. Layer tests.
#pragma once

#include <bit>
#include <cstring>

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
    uint32_t first = 0;  // byte of a row

    static HostOperand of(uint64_t descriptor) {
        const auto swizzle = static_cast<uint32_t>(descriptor >> 62);
        const uint32_t width = swizzle == 1 ? 128 : swizzle == 2 ? 64 : 32;
        const auto address = static_cast<uint32_t>(descriptor & 0x3fff) << 4;
        if (swizzle == 0 || descriptor != wgmma_descriptor_of_rows(address, width) || address % (8 * width) != 0)
            machine->fail("a descriptor of wgmma is not what the machine knows");
        return {address, width, static_cast<Swizzle>(width)};
    }
    /// In rows of 128 bytes, at a step of K.
    static HostOperand of_step(uint64_t descriptor) {
        const uint64_t step = descriptor & (1024 / 16 - 1);
        if (step * 16 >= 128) machine->fail("a descriptor of wgmma begins behind the first of eight rows");
        HostOperand at = of(descriptor - step);
        at.first = static_cast<uint32_t>(step) * 16;
        return at;
    }
    std::vector<uint8_t> codes(uint32_t rows, uint32_t k) const {
        std::vector<uint8_t> all;
        machine->check_fenced(address, rows * row_bytes);
        for (uint32_t r = 0; r < rows; ++r)
            for (uint32_t i = 0; i < k; ++i)
                all.push_back(*host_address({swizzled(address + r * row_bytes + first + i, swizzle)}));
        return all;
    }
};

/// To f32, towards zero.
inline double cut_off(double x) {
    const auto nearest = static_cast<float>(x);
    return std::fabs(nearest) > std::fabs(x) ? std::nextafter(nearest, 0.0f) : nearest;
}

/// An operand of two-byte elements, as its descriptor tells where 16 of K lie.
struct HostOperand16 {
    uint32_t address, leading, stride;
    bool mn_major;

    static HostOperand16 of(uint64_t descriptor, bool mn) {
        const auto field = [&](uint32_t bit) { return static_cast<uint32_t>(descriptor >> bit & 0x3fff) << 4; };
        if (descriptor >> 62 != 1 || field(0) % 1024 != 0)
            machine->fail("a descriptor of wgmma is not what the machine knows");
        return {field(0), field(16), field(32), mn};
    }
    /// The element of row `row` of M or N and column `k` of a k-block.
    uint16_t code(uint32_t row, uint32_t k) const {
        const uint32_t step = k / 16, of_step = k % 16, start = address + step * wgmma_k16_step(mn_major) * 16;
        const uint32_t in_atoms = mn_major
                                      ? row / 64 * leading + of_step / 8 * stride + of_step % 8 * 128 + row % 64 * 2
                                      : row / 8 * stride + row % 8 * 128 + of_step * 2;
        const uint32_t at = swizzled(start + in_atoms, Swizzle::B128);
        machine->check_fenced(at, 2);
        return load_as<uint16_t>(host_address({at}));
    }
    std::vector<float> values(uint32_t rows, uint32_t k, bool f16) const {
        std::vector<float> all;
        for (uint32_t r = 0; r < rows; ++r)
            for (uint32_t i = 0; i < k; ++i) all.push_back(f16 ? float_of_f16(code(r, i)) : float_of_bf16(code(r, i)));
        return all;
    }
};

/// The hardware's order of sums is not known: 16 products and a sum are added exactly here, and cut off.
inline std::vector<float> added_16_bits(const std::vector<float>& x, const std::vector<float>& y, uint32_t n,
                                        std::vector<float> sums) {
    constexpr uint32_t kK = 64;
    for (uint32_t i = 0; i < 64 * n; ++i) {
        double sum = sums[i];
        for (uint32_t k = 0; k < kK; ++k) {
            sum += static_cast<double>(x[i / n * kK + k]) * static_cast<double>(y[i % n * kK + k]);
            if (k % 16 == 15) sum = cut_off(sum);
        }
        sums[i] = canonical(static_cast<float>(sum));
    }
    return sums;
}

/// Are two-byte elements f16? The type is no argument of the instructions' wrappers.
inline bool host_elements_are_f16 = false;

/// `multiply` adds a product of [64, n] to what it gets.
template <typename Sum, uint32_t Registers, typename Multiply>
void start_product(Sum (&d)[Registers], bool adds, const Multiply& multiply) {
    constexpr uint32_t kN = Registers * 2;
    host_kernel::Machine::Products& products = machine->products();
    const uint32_t thread = threadIdx.x % 128, which = products.started[thread]++;
    while (products.next.size() <= which - products.finished) products.next.emplace_back();
    host_kernel::Machine::Products::Next& next = products.next[which - products.finished];
    next.adds = adds, next.onto_registers = products.taken[thread] == which;
    next.registers.resize(64 * kN);
    for (uint32_t r = 0; r < Registers; ++r) {
        const RowCol at = wgmma_accumulator(thread, r);
        next.registers[at.row * kN + at.col] = std::bit_cast<float>(d[r]);
        d[r] = std::bit_cast<Sum>(0x7fedcba9);  // until the wait
    }
    machine->registers(which) = {reinterpret_cast<float*>(d), Registers};
    if (++next.come < 128) return;
    next.multiply = multiply;
    machine->later([&products] { products.happen(); });
}
template <uint32_t R>
void start_fp8(float (&d)[R], uint64_t a, uint64_t b, uint32_t k) {
    const HostOperand left = HostOperand::of(a), right = HostOperand::of(b);
    start_product(d, false, [=](const std::vector<float>&) {
        return wgmma_product(left.codes(64, k), right.codes(R * 2, k), 64, R * 2, k);
    });
}
template <uint32_t R>
void wgmma_k32_fp8(float (&d)[R], uint64_t a, uint64_t b) {
    start_fp8(d, a, b, 32);
}
template <uint32_t R>
void wgmma_k64_fp8(float (&d)[R], uint64_t a, uint64_t b) {
    start_fp8(d, a, b, 64);
}
template <uint32_t R>
void wgmma_k128(float (&d)[R], uint64_t a, uint64_t b) {
    start_fp8(d, a, b, 128);
}
/// The products of each 32 of K, one behind the other, as if they were columns of one.
template <uint32_t R>
void wgmma_k32_each(float (&d)[R], uint64_t a, uint64_t b) {
    const HostOperand left = HostOperand::of(a), right = HostOperand::of(b);
    start_product(d, false, [=](const std::vector<float>&) {
        constexpr uint32_t kAll = R * 2, kN = kAll / 4;
        std::vector<float> sums(64 * kAll);
        for (uint32_t part = 0; part < 4; ++part) {
            HostOperand x = left, y = right;
            x.first = y.first = part * 32;
            const std::vector<float> product = wgmma_product(x.codes(64, 32), y.codes(kN, 32), 64, kN, 32);
            for (uint32_t i = 0; i < 64 * kN; ++i) sums[i / kN * kAll + part * kN + i % kN] = product[i];
        }
        return sums;
    });
}
/// A product of 32 of K and, as if they were its next columns, products of scales: those of rows of A from registers,
/// each thread's of the part that its lane counts, those of rows of B from rows of sixteen bytes.
template <uint32_t R>
void wgmma_k32_mx(float (&d)[R], uint64_t a, uint64_t b, uint32_t upper, uint32_t lower, uint64_t scales) {
    constexpr uint32_t kN = R, kParts = 4, kScaleBytes = 4;
    const HostOperand left = HostOperand::of_step(a), right = HostOperand::of_step(b);
    const uint32_t address = static_cast<uint32_t>(scales & 0x3fff) << 4;
    if (scales != wgmma_descriptor_of_short_rows(address, 0))
        machine->fail("a descriptor of wgmma is not what the machine knows");
    host_kernel::Machine::Products& products = machine->products();
    const uint32_t thread = threadIdx.x % 128, which = products.started[thread] - products.finished;
    while (products.next.size() <= which) products.next.emplace_back();
    auto& of_rows = products.next[which].left;
    if (!of_rows) of_rows = std::make_shared<std::vector<uint8_t>>(64 * kParts * kScaleBytes);
    for (uint32_t low = 0; low < 2; ++low) {
        const uint32_t row = thread / 32 * 16 + thread % 32 / 4 + low * 8;
        std::memcpy(&(*of_rows)[(row * kParts + thread % 4) * kScaleBytes], low ? &lower : &upper, kScaleBytes);
    }
    start_product(d, false, [left, right, address, rows = of_rows](const std::vector<float>&) {
        std::vector<float> sums(64 * kN * 2);
        const std::vector<float> product = wgmma_product(left.codes(64, 32), right.codes(kN, 32), 64, kN, 32);
        machine->check_fenced(address, kN * kParts * kScaleBytes);
        for (uint32_t i = 0; i < 64 * kN; ++i) {
            double factor = 0;
            for (uint32_t part = 0; part < kParts; ++part)
                factor += static_cast<double>(load_as<float>(&(*rows)[(i / kN * kParts + part) * kScaleBytes])) *
                          static_cast<double>(
                              load_as<float>(host_address({address + (i % kN * kParts + part) * kScaleBytes})));
            sums[i / kN * kN * 2 + i % kN] = product[i];
            sums[i / kN * kN * 2 + kN + i % kN] = static_cast<float>(factor);
        }
        return sums;
    });
}
/// A is in registers: for each 32 of K four, of rows eight apart in turn, then of columns sixteen further on.
template <uint32_t R>
void start_of_registers(float (&d)[R], const uint32_t (&a)[8], uint32_t b, bool adds) {
    constexpr uint32_t kK = 64;
    const HostOperand right = HostOperand::of_step(wgmma_descriptor_with(b));
    host_kernel::Machine::Products& products = machine->products();
    const uint32_t thread = threadIdx.x % 128, which = products.started[thread] - products.finished;
    while (products.next.size() <= which) products.next.emplace_back();
    auto& left = products.next[which].left;
    if (!left) left = std::make_shared<std::vector<uint8_t>>(64 * kK);
    for (uint32_t i = 0; i < 32; ++i) {
        const uint32_t reg = i / 4, row = thread / 32 * 16 + thread % 32 / 4 + reg % 2 * 8;
        const uint32_t k = reg / 4 * 32 + reg % 4 / 2 * 16 + thread % 4 * 4 + i % 4;
        (*left)[row * kK + k] = static_cast<uint8_t>(a[reg] >> i % 4 * 8);
    }
    start_product(d, adds, [right, codes = left](const std::vector<float>& sums) {
        return wgmma_product(*codes, right.codes(R * 2, kK), 64, R * 2, kK, sums);
    });
}
template <uint32_t R>
void wgmma_k64_fp8_of_registers(float (&d)[R], const uint32_t (&a)[8], uint32_t b) {
    start_of_registers(d, a, b, false);
}
template <uint32_t R>
void add_wgmma_k64_fp8_of_registers(float (&d)[R], const uint32_t (&a)[8], uint32_t b) {
    start_of_registers(d, a, b, true);
}
/// 64 of K in bf16: for each 16 four registers, of rows eight apart in turn, then of columns eight further on.
template <uint32_t R>
void wgmma_k64_bf16_of_registers(float (&d)[R], const uint32_t (&a)[16], uint32_t b, uint32_t add) {
    constexpr uint32_t kN = R * 2, kK = 64;
    const HostOperand16 right = HostOperand16::of(wgmma_descriptor_with(b), false);
    host_kernel::Machine::Products& products = machine->products();
    const uint32_t thread = threadIdx.x % 128, which = products.started[thread] - products.finished;
    while (products.next.size() <= which) products.next.emplace_back();
    auto& left = products.next[which].left;
    if (!left) left = std::make_shared<std::vector<uint8_t>>(64 * kK * 2);
    for (uint32_t reg = 0; reg < 16; ++reg) {
        const uint32_t row = thread / 32 * 16 + thread % 32 / 4 + reg % 2 * 8;
        const uint32_t k = reg / 4 * 16 + reg % 4 / 2 * 8 + thread % 4 * 2;
        std::memcpy(&(*left)[(row * kK + k) * 2], &a[reg], 4);
    }
    start_product(d, add != 0, [=, codes = left](std::vector<float> sums) {
        const auto y = right.values(kN, kK, false);
        std::vector<float> x(64 * kK);
        for (uint32_t i = 0; i < 64 * kK; ++i) {
            uint16_t code;
            std::memcpy(&code, &(*codes)[i * 2], 2);
            x[i] = float_of_bf16(code);
        }
        return added_16_bits(x, y, kN, std::move(sums));
    });
}
/// Sums of integers, which the machine keeps as the bits of floats.
template <uint32_t R>
void wgmma_k128(int32_t (&d)[R], uint64_t a, uint64_t b) {
    const HostOperand left = HostOperand::of(a), right = HostOperand::of(b);
    start_product(d, false, [=](std::vector<float> sums) {
        constexpr uint32_t kN = R * 2, kK = 128;
        const auto x = left.codes(64, kK), y = right.codes(kN, kK);
        for (uint32_t i = 0; i < 64 * kN; ++i) {
            int32_t sum = 0;
            for (uint32_t k = 0; k < kK; ++k)
                sum += static_cast<int8_t>(x[i / kN * kK + k]) * static_cast<int8_t>(y[i % kN * kK + k]);
            sums[i] = float_of_bits(static_cast<uint32_t>(sum));
        }
        return sums;
    });
}
template <uint32_t R>
void wgmma_k16_bf16(float (&d)[R], uint64_t a, uint64_t b);  // declared for kernels that nobody runs here
template <bool MnA = false, bool MnB = false, uint32_t R>
void wgmma_k64(float (&d)[R], uint64_t a, uint64_t b, uint32_t add) {
    const HostOperand16 left = HostOperand16::of(a, MnA), right = HostOperand16::of(b, MnB);
    start_product(d, add != 0, [=](std::vector<float> sums) {
        constexpr uint32_t kN = R * 2, kK = 64;
        const auto x = left.values(64, kK, host_elements_are_f16), y = right.values(kN, kK, host_elements_are_f16);
        return added_16_bits(x, y, kN, std::move(sums));
    });
}
inline void wgmma_fence() { machine->show(0); }
inline void wgmma_commit_group() {}

/// Sums are there when all products are; the next one happens when all of the warpgroup have begun it, so when all have
/// taken these. Where two are in flight, each has registers of its own.
template <uint32_t Pending>
void wgmma_wait_group() {
    static_assert(Pending < 2);
    host_kernel::Machine::Products& products = machine->products();
    const uint32_t thread = threadIdx.x % 128, wanted = products.started[thread] - Pending;
    while (products.finished < wanted) machine->wait_while(products.finished, ~0u, products.finished, "a product");
    if (wanted == 0 || (Pending > 0 && machine->registers(0).sums == machine->registers(1).sums)) return;
    if (Pending == 0) products.taken[thread] = wanted;
    const auto& [sums, count] = machine->registers(wanted - 1);
    for (uint32_t r = 0; r < count; ++r) {
        const RowCol at = wgmma_accumulator(thread, r);
        const float sum = products.of[(wanted - 1) % 2][at.row * count * 2 + at.col];
        std::memcpy(&sums[r], &sum, sizeof sum);  // which may be a sum of integers
    }
}
inline void pin(float&) {}
inline void pin(uint32_t&) {}
inline void pin(int32_t&) {}

}  // namespace finegemm::ptx
