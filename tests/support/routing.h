// Random problems of routing, with guards around what is written. Layer tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <finegemm/core/fp8.h>
#include <fmt/format.h>

#include "ops/routing/call.h"
#include "support/random.h"

namespace finegemm::test {

/// Memory with guards before, behind and between what a view of it has.
template <typename T>
struct Guarded {
    static constexpr size_t kMargin = 64;
    std::vector<T> all;
    T guard;

    Guarded(int64_t elements, T with) : all(static_cast<size_t>(elements) + 2 * kMargin, with), guard(with) {}
    T* data() {
        return all.data() + kMargin + (64 - reinterpret_cast<uintptr_t>(all.data() + kMargin) % 64) % 64 / sizeof(T);
    }
};

/// All, from the first element on and before it.
inline std::vector<int32_t> from(Guarded<int32_t>& x) {
    std::vector<int32_t> all(x.data(), x.all.data() + x.all.size() - 16);
    all.insert(all.end(), x.all.data(), x.data());
    all.resize(x.all.size() - 16, x.guard);
    return all;
}

struct RouteProblem {
    int64_t tokens, k, experts, first, rows, alignment;
    GroupForm form;
    bool wide, permuted;
    std::vector<int64_t> ids;
    int64_t ids_stride, inverse_stride;

    explicit RouteProblem(Random& r, int64_t most_tokens = 90) {
        tokens = r.any(0, 5) == 0 ? r.any(0, 2) : r.any(1, most_tokens);
        k = r.any(1, 16);
        experts = r.one_in(4) ? r.any(1, 1024) : r.any(1, 40);
        first = r.one_in(2) ? 0 : r.any(-5, 3000);
        form = r.one_of({GroupForm::Offsets, GroupForm::Indices, GroupForm::PrefixSums, GroupForm::Masked});
        alignment = form == GroupForm::Indices ? r.one_of({64, 128}) : r.one_of({1, 4, 32, 128});
        wide = r.one_in(2), permuted = !r.one_in(4);
        ids_stride = k + r.one_of({0, 0, 3}), inverse_stride = k + r.one_of({0, 0, 5});
        ids.resize(static_cast<size_t>(tokens * ids_stride), 7);
        const int64_t favourite = first + r.any(0, experts - 1), lonely = r.any(2, 12);
        for (int64_t& id : ids)
            id = r.one_in(lonely) ? r.one_of<int64_t>({-1, first - 1, first + experts, INT32_MAX, INT32_MIN})
                 : r.one_in(4)    ? favourite
                                  : first + r.any(0, experts - 1);
        if (wide && !ids.empty() && r.one_in(2)) ids[0] = first + (int64_t{1} << 32);  // is not `first`
        rows = form == GroupForm::Masked ? r.any(1, 60) : std::max<int64_t>(1, r.one_in(4) ? r.any(1, 200) : most());
    }
    int64_t most() const { return tokens * k + experts * (alignment - 1) + 5; }
    int64_t numbers() const {
        return form == GroupForm::Indices ? rows : form == GroupForm::Offsets ? experts + 1 : experts;
    }
    int64_t permutation_rows() const { return form == GroupForm::Masked ? experts : 1; }

    struct Result {
        std::vector<int32_t> inverse, numbers, permutation;  // with all that surrounds them
        bool operator==(const Result&) const = default;
    };
    /// What `body` writes.
    template <typename Body>
    Result run(const Body& body) const {
        constexpr int32_t kGuard = 0x5eadbeef;
        std::vector<int32_t> narrow(ids.begin(), ids.end());
        Guarded<int32_t> inverse(tokens * inverse_stride, kGuard), of_groups(numbers(), kGuard),
            permutation(permutation_rows() * rows, kGuard);
        RouteArgs args{.ids = {wide ? static_cast<const void*>(ids.data()) : narrow.data(),
                               wide ? DType::I64 : DType::I32, tokens, k, ids_stride},
                       .inverse = {inverse.data(), DType::I32, tokens, k, inverse_stride},
                       .numbers = {of_groups.data(), DType::I32, 1, numbers(), numbers()},
                       .form = form,
                       .experts = experts,
                       .first = first,
                       .rows = rows,
                       .alignment = alignment};
        if (permuted) args.permutation = {permutation.data(), DType::I32, permutation_rows(), rows, rows};
        const RouteOptions options;
        body(RouteCall{args, options});
        return {from(inverse), from(of_groups), from(permutation)};
    }
    std::string name() const {
        return fmt::format("{} tokens, {} choices, {} experts from {}, {} rows, form {}, alignment {}", tokens, k,
                           experts, first, rows, static_cast<int>(form), alignment);
    }
};

/// Rows of tokens and of experts, with an inverse that leaves some choices and some rows out.
struct RowsProblem {
    int64_t tokens, k, cols, stacks, rows, x_stride, q_stride;
    std::vector<int32_t> inverse;
    std::vector<uint16_t> x;  // bf16, or codes two by two
    std::vector<float> x_scales, weights;
    bool mn_major, power_of_two, weighs;

    explicit RowsProblem(Random& r, bool is_wide = false) {
        tokens = r.any(1, 12), k = r.any(1, 16), cols = is_wide ? r.any(60, 200) * 16 : r.any(1, 20) * 16;
        stacks = r.one_in(2) ? 1 : r.any(2, 5);
        rows = tokens * k / stacks + r.any(1, 9);
        x_stride = cols + 16 * r.any(0, 1), q_stride = cols + 16 * r.any(0, 2);
        mn_major = r.one_in(2), power_of_two = r.one_in(3), weighs = !r.one_in(4);
        std::vector<int32_t> free(static_cast<size_t>(stacks * rows));
        for (size_t i = 0; i < free.size(); ++i) free[i] = static_cast<int32_t>(i);
        for (size_t i = free.size(); i > 1; --i)
            std::swap(free[i - 1], free[static_cast<size_t>(r.any(0, static_cast<int64_t>(i) - 1))]);
        for (int64_t i = 0; i < tokens * k; ++i) {
            if (i % 16 == 0) alone_ = r.one_in(4);
            const bool none = alone_ || r.one_in(5) || free.empty();
            inverse.push_back(none ? r.one_of({-1, -1, -7, INT32_MIN, static_cast<int32_t>(stacks * rows), INT32_MAX})
                                   : free.back());
            if (!none) free.pop_back();
        }
        for (int64_t i = 0; i < tokens * x_stride; ++i) x.push_back(element(r));
        for (int64_t i = 0; i < tokens * blocks(); ++i) x_scales.push_back(r.normal(1));
        for (int64_t i = 0; i < tokens * k; ++i) weights.push_back(r.one_in(9) ? 0 : r.normal(1));
    }
    int64_t blocks() const { return (cols + 127) / 128; }
    std::string name() const {
        return fmt::format("{} tokens of {}, {} columns, {} stacks of {} rows, strides {} {}", tokens, k, cols, stacks,
                           rows, x_stride, q_stride);
    }
    ConstMatrix inverse_view() const { return {inverse.data(), DType::I32, tokens, k, k}; }
    ConstMatrix weights_view() const { return {weights.data(), DType::F32, tokens, k, k}; }

    struct Permuted {
        std::vector<uint8_t> q;
        std::vector<uint32_t> scales;
        std::vector<uint16_t> sums;
        bool operator==(const Permuted&) const = default;
    };
    /// x is bf16 and q e4m3, or both are `copied`.
    template <typename Body>
    Permuted permute(bool quantizes, DType copied, int32_t num_sms, const Body& body) const {
        const DType to = quantizes ? DType::E4M3 : copied, type = quantizes ? DType::BF16 : copied;
        const bool scaled = size_of(to) == 1;
        Guarded<uint8_t> q(stacks * rows * q_stride * size_of(to) + 64, 0xa5);
        Guarded<uint32_t> scales(stacks * (rows + 3) * blocks(), 0x5eadbeef);
        const int64_t pitch = rows + 3;
        const PermuteOptions options{.power_of_two_scales = power_of_two, .num_sms = num_sms};
        PermuteQuantizeArgs args{.x = {x.data(), type, tokens, cols, x_stride},
                                 .inverse = inverse_view(),
                                 .q = {{q.data(), to, rows, cols, q_stride}, stacks, rows * q_stride}};
        if (scaled && !quantizes) args.x_scales = {x_scales.data(), DType::F32, tokens, blocks(), 1, tokens};
        if (scaled)
            args.scales = {{scales.data(), DType::F32, rows, blocks(), mn_major ? 1 : blocks(), mn_major ? pitch : 1},
                           stacks,
                           pitch * blocks()};
        Guarded<uint16_t> sums(tokens * q_stride, 0xbeef);
        PermuteCall call{args, options};
        if (weighs && (quantizes || scaled)) call.sums = {sums.data(), DType::BF16, tokens, cols, q_stride};
        body(call);
        Permuted result{q.all, scales.all, sums.all};  // at places that differ by what alignment takes
        std::rotate(result.sums.begin(), result.sums.begin() + (sums.data() - sums.all.data()), result.sums.end());
        std::rotate(result.q.begin(), result.q.begin() + (q.data() - q.all.data()), result.q.end());
        std::rotate(result.scales.begin(), result.scales.begin() + (scales.data() - scales.all.data()),
                    result.scales.end());
        return result;
    }
    /// Experts that choices have at random, and their biases, which are NaN where no row has the expert.
    struct Biases {
        static constexpr int64_t kExperts = 5, kFirst = 3;
        bool wide, weighs;
        int64_t stride;
        std::vector<int64_t> ids;
        std::vector<float> weights;  // NaN of choices without a row
        Guarded<float> floats;
        Guarded<uint16_t> halves;
        RouteOptions options{};
        RouteArgs args{};
        RouteCall route{args, options};

        Biases(Random& r, const RowsProblem& p)
            : wide(r.one_in(2)),
              weighs(r.one_in(2)),
              stride(p.cols + 16 * r.any(0, 1)),
              floats(kExperts * stride, NAN),
              halves(kExperts * stride, 0x7fff) {
            std::vector<bool> used(kExperts);
            for (const int32_t row : p.inverse) {
                const bool has = row >= 0 && row < p.stacks * p.rows;
                weights.push_back(has ? r.normal(1) : NAN);
                ids.push_back(has ? r.any(kFirst, kFirst + kExperts - 1) : r.any(0, kFirst + kExperts));
                if (has) used[static_cast<size_t>(ids.back() - kFirst)] = true;
            }
            for (int64_t e = 0; e < kExperts; ++e)
                for (int64_t c = 0; used[static_cast<size_t>(e)] && c < p.cols; ++c) {
                    const uint16_t bits = element(r);
                    floats.data()[e * stride + c] = float_of_bf16(bits) * 1.0625f;
                    halves.data()[e * stride + c] = bits;
                }
            route.ids = {ids.data(), DType::I64, p.tokens, p.k, p.k};
            route.experts = kExperts, route.first = kFirst, route.rows = 1;
        }
        ConstMatrix view(int64_t cols) {
            if (wide) return {floats.data(), DType::F32, kExperts, cols, stride};
            return {halves.data(), DType::BF16, kExperts, cols, stride};
        }
    };
    /// y is what x would be of as many rows as experts have: elements are drawn from `seed`. Rows that no choice has
    /// are NaN.
    template <typename Body>
    std::vector<uint16_t> combine(uint32_t seed, int32_t num_sms, const Body& body, Biases* biases = nullptr) const {
        Random r(seed);
        std::vector<uint16_t> storage(static_cast<size_t>(stacks * rows * q_stride + 32), 0x7fff);
        uint16_t* const y = storage.data() + (64 - reinterpret_cast<uintptr_t>(storage.data()) % 64) % 64 / 2;
        for (const int32_t row : inverse)
            for (int64_t i = 0; row >= 0 && row < stacks * rows && i < cols; ++i) y[row * q_stride + i] = element(r);
        Guarded<uint16_t> out(tokens * x_stride, 0xbeef);
        const CombineOptions options{.num_sms = num_sms};
        CombineArgs args{.y = {{y, DType::BF16, rows, cols, q_stride}, stacks, rows * q_stride},
                         .inverse = inverse_view(),
                         .out = {out.data(), DType::BF16, tokens, cols, x_stride}};
        if (weighs) args.weights = weights_view();
        CombineCall call{args, options};
        if (biases) call.biases = biases->view(cols), call.route = &biases->route;
        if (biases && biases->weighs)
            call.bias_weights = {biases->weights.data(), DType::F32, tokens, k, k}, call.weights = {};
        body(call);
        std::vector<uint16_t> result = out.all;
        std::rotate(result.begin(), result.begin() + (out.data() - out.all.data()), result.end());
        return result;
    }

private:
    static uint16_t element(Random& r) {
        if (r.one_in(200)) return r.one_of<uint16_t>({0x7fc1, 0x7f80, 0xff80, 0x8000, 0, 1});
        return static_cast<uint16_t>(float_bits(r.normal(1)) >> 16);
    }
    bool alone_ = false;
};

}  // namespace finegemm::test
