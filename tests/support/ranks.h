// Layers of experts over ranks that are threads, and the same on one rank. Layer tests.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <finegemm/core/fp8.h>
#include <finegemm/ep.h>
#include <finegemm/error.h>

#include "support/cpu.h"
#include "support/random.h"

namespace finegemm::test {

inline constexpr uint16_t kUnwritten = 0x5ead;  // bf16

/// Tokens of one rank, and what becomes of them.
struct RankTokens {
    int64_t tokens = 0;
    std::vector<uint16_t> x, out;
    std::vector<int64_t> ids;
    std::vector<float> weights;
    std::vector<int32_t> counts;
    std::string error;
};

/// `experts` on each of `ranks`, whose weights lie behind one another.
struct RanksProblem {
    int64_t ranks, experts, choices, hidden, pairs = 128;
    std::vector<uint8_t> gate_up, down;
    std::vector<float> gate_up_scales, down_scales;
    std::vector<RankTokens> all;

    /// `tokens`: of each rank. `pick`: the id of a choice. `columns`: of a token, from 129 to 256.
    RanksProblem(Random& r, std::vector<int64_t> tokens, int64_t of_each, int64_t k,
                 const std::function<int64_t(int64_t rank)>& pick, int64_t columns = 144)
        : ranks(static_cast<int64_t>(tokens.size())),
          experts(of_each),
          choices(k),
          hidden(columns),
          all(tokens.size()) {
        const auto fill = [&](std::vector<uint8_t>& codes, int64_t size) {
            codes.resize(static_cast<size_t>(size));
            for (uint8_t& code : codes) code = static_cast<uint8_t>(r.any(0, 1) * 0x80 + r.any(0x28, 0x37));
        };
        const auto fill_scales = [&](std::vector<float>& scales, int64_t size) {
            for (int64_t i = 0; i < size; ++i) scales.push_back(0.25f + static_cast<float>(r.any(0, 4)) / 16);
        };
        const int64_t e = ranks * experts;
        fill(gate_up, e * 2 * pairs * hidden), fill(down, e * hidden * pairs);
        fill_scales(gate_up_scales, e * 2 * 2), fill_scales(down_scales, e * 2 * 1);
        for (size_t rank = 0; rank < all.size(); ++rank) {
            RankTokens& t = all[rank];
            t.tokens = tokens[rank];
            for (int64_t i = 0; i < t.tokens * hidden; ++i)
                t.x.push_back(bf16_of_float(static_cast<float>(r.any(-100, 100)) / 32));
            for (int64_t i = 0; i < t.tokens * choices; ++i) {
                t.ids.push_back(pick(static_cast<int64_t>(rank)));
                t.weights.push_back(static_cast<float>(r.any(1, 16)) / 16);
            }
            t.counts.assign(static_cast<size_t>(ranks), -1);
        }
    }

    /// The layer of one rank's tokens with so many experts from `first` on.
    MoeArgs args(RankTokens& t, int64_t first, int64_t count) {
        t.out.assign(static_cast<size_t>(t.tokens * hidden), kUnwritten);
        const auto weight = [&](std::vector<uint8_t>& codes, int64_t rows, int64_t cols) {
            return ConstStack{{codes.data() + first * rows * cols, DType::E4M3, rows, cols, cols}, count, rows * cols};
        };
        const auto scale = [&](std::vector<float>& scales, int64_t rows, int64_t cols) {
            return ConstStack{{scales.data() + first * rows * cols, DType::F32, rows, cols, cols}, count, rows * cols};
        };
        return {.x = {t.x.data(), DType::BF16, t.tokens, hidden, hidden},
                .ids = {t.ids.data(), DType::I64, t.tokens, choices, choices},
                .weights = {t.weights.data(), DType::F32, t.tokens, choices, choices},
                .gate_up = weight(gate_up, 2 * pairs, hidden),
                .gate_up_scales = scale(gate_up_scales, 2, 2),
                .down = weight(down, hidden, pairs),
                .down_scales = scale(down_scales, 2, 1),
                .out = {t.out.data(), DType::BF16, t.tokens, hidden, hidden}};
    }
    MoeArgs args_of_rank(int64_t rank) { return args(all[static_cast<size_t>(rank)], rank * experts, experts); }

    /// What one rank with all experts makes of the tokens of each.
    std::vector<std::vector<uint16_t>> on_one_rank(Context& context, const MoeOptions& options = {}) {
        std::vector<std::vector<uint16_t>> outs;
        for (RankTokens& t : all) {
            moe(context, args(t, 0, ranks * experts), options);
            outs.push_back(t.out);
        }
        return outs;
    }
    /// Calls body(rank) on a thread for each rank; what it throws becomes the rank's error.
    void on_threads(const std::function<void(int64_t rank)>& body) {
        std::vector<std::thread> threads;
        for (int64_t r = 0; r < ranks; ++r)
            threads.emplace_back([&, r] {
                try {
                    body(r);
                } catch (const Error& e) {
                    all[static_cast<size_t>(r)].error = e.what();
                }
            });
        for (std::thread& thread : threads) thread.join();
    }
    void run(Context& context, std::vector<Communicator>& communicators, int64_t capacity,
             const MoeOptions& options = {}) {
        on_threads([&](int64_t r) {
            RankTokens& t = all[static_cast<size_t>(r)];
            ep_moe(context, communicators[static_cast<size_t>(r)], args_of_rank(r),
                   {.capacity = capacity, .counts = {t.counts.data(), DType::I32, 1, ranks, ranks}}, options);
        });
    }
    /// The most choices of one rank's tokens for another rank.
    int64_t most() const {
        int64_t most = 1;
        for (const RankTokens& t : all)
            for (int64_t r = 0; r < ranks; ++r) most = std::max(most, chosen(t, r));
        return most;
    }
    int64_t chosen(const RankTokens& t, int64_t rank) const {
        return std::ranges::count_if(t.ids,
                                     [&](int64_t id) { return id >= rank * experts && id < (rank + 1) * experts; });
    }
};

}  // namespace finegemm::test
