// A layer of experts over ranks through the C ABI. Layer tests.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <finegemm/c_four_bit.h>

#include "api/ep_misuses.h"

namespace finegemm::test {
namespace {

// Programs were compiled with these.
static_assert(sizeof(finegemm_communicator_id) == 128 && sizeof(finegemm_communicator_options) == 24);
static_assert(sizeof(finegemm_ep_options) == 80 && offsetof(finegemm_ep_options, memory) == 72 &&
              offsetof(finegemm_ep_options, counts) == 16);

/// The result of a call's tokens.
std::vector<uint16_t> out_of(MoeCallInC& c) {
    EXPECT_TRUE(c.out.surroundings_intact());
    return {c.out.data(), c.out.data() + c.kTokens * c.kHidden};
}

TEST(EpInC, HasTheBitsOfOneRank) {
    const CContext context;
    MoeCallInC alone;
    alone.args.first = 0;
    ASSERT_EQ(alone.run(context.get()), FINEGEMM_OK) << alone.error.message;
    finegemm_communicator* communicators[2] = {};
    ASSERT_EQ(finegemm_communicators_of_threads(2, nullptr, communicators, nullptr), FINEGEMM_OK);
    MoeCallInC calls[2];  // each with the same tokens, and half of the experts
    const auto run = [&](int rank) {
        MoeCallInC& c = calls[rank];
        c.args.first = 0;
        for (finegemm_stack* w : {&c.args.gate_up, &c.args.gate_up_scales, &c.args.down, &c.args.down_scales}) {
            w->count = 2;
            auto* const bytes = static_cast<char*>(w->matrix.data);
            w->matrix.data = bytes + rank * 2 * w->stride * (w->matrix.dtype == FINEGEMM_F32 ? 4 : 1);
        }
        EXPECT_EQ(finegemm_ep_moe(context.get(), communicators[rank], &c.args, nullptr, &c.options, &c.error),
                  FINEGEMM_OK)
            << c.error.message;
        finegemm_moe_shape most{};
        most.struct_size = sizeof most;
        most.tokens = c.kTokens, most.choices = static_cast<int32_t>(c.args.ids.cols), most.hidden = c.kHidden;
        most.intermediate = c.args.down.matrix.cols, most.experts = 2;
        finegemm_ep_options how{};
        how.struct_size = sizeof how, how.capacity = c.kTokens * most.choices;
        EXPECT_EQ(finegemm_peer_memory_create(communicators[rank], &most, &how.memory, &c.error), FINEGEMM_OK)
            << c.error.message;
        EXPECT_EQ(finegemm_peer_memory_is_reached(how.memory), 1);
        EXPECT_GT(finegemm_peer_memory_bytes(how.memory), 0);
        const std::vector<uint16_t> by_messages = out_of(c);
        std::memset(c.args.out.data, 0x7f, c.kHidden * 2);
        EXPECT_EQ(finegemm_ep_moe(context.get(), communicators[rank], &c.args, &how, &c.options, &c.error), FINEGEMM_OK)
            << c.error.message;
        EXPECT_EQ(out_of(c), by_messages);
        finegemm_peer_memory_destroy(how.memory);
        EXPECT_EQ(finegemm_communicator_wait(communicators[rank], nullptr, &c.error), FINEGEMM_OK);
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    for (MoeCallInC& c : calls) EXPECT_EQ(out_of(c), out_of(alone));
    finegemm_communicator_destroy(communicators[1]);
    EXPECT_EQ(finegemm_ep_moe(context.get(), communicators[0], &calls[0].args, nullptr, nullptr, &calls[0].error),
              FINEGEMM_PEER);
    EXPECT_TRUE(std::string(calls[0].error.message).starts_with("rank 1 has left")) << calls[0].error.message;
    finegemm_communicator_destroy(communicators[0]);
}

/// Weights of 4 bits of all experts: codes of any bits, with a scale for each 32 of them.
struct Packed {
    std::vector<uint8_t> bytes;
    finegemm_four_bit_weights weights{};
    int64_t of_one = 0;

    Packed(int64_t rows, int64_t cols) {
        EXPECT_EQ(finegemm_four_bit_bytes(FINEGEMM_MXFP4, rows, cols, &of_one, nullptr), FINEGEMM_OK);
        bytes.resize(static_cast<size_t>(MoeCallInC::kExperts * of_one));
        std::minstd_rand random(static_cast<uint32_t>(rows));
        for (int64_t e = 0; e < MoeCallInC::kExperts; ++e) {
            Buffer<uint8_t> codes{DType::E4M3, rows, cols / 2}, exponents{DType::E4M3, rows, cols / 32};
            for (int64_t i = 0; i < rows * cols / 2; ++i) codes.data()[i] = static_cast<uint8_t>(random() >> 8);
            for (int64_t i = 0; i < rows * cols / 32; ++i)
                exponents.data()[i] = static_cast<uint8_t>(122 + (random() >> 8) % 3);
            finegemm_four_bit_source source{};
            source.format = FINEGEMM_MXFP4;
            source.codes = c_matrix(ConstMatrix(codes.view()));
            source.scales = c_matrix(ConstMatrix(exponents.view()));
            EXPECT_EQ(finegemm_pack_four_bit(&source, bytes.data() + e * of_one, nullptr), FINEGEMM_OK);
        }
        weights.data = bytes.data(), weights.format = FINEGEMM_MXFP4, weights.device_type = FINEGEMM_CPU;
        weights.groups = MoeCallInC::kExperts, weights.rows = rows, weights.cols = cols;
    }
    finegemm_four_bit_weights half(int rank) const {
        finegemm_four_bit_weights w = weights;
        w.data = bytes.data() + rank * 2 * of_one, w.groups = 2;
        return w;
    }
};

TEST(EpInC, HasTheBitsOfOneRankWithWeightsOf4Bits) {
    const CContext context;
    MoeCallInC alone;
    alone.args.first = 0;
    constexpr int64_t kHidden = MoeCallInC::kHidden, kPairs = MoeCallInC::kPairs;
    const Packed gate_up(2 * kPairs, kHidden), down(kHidden, kPairs);
    for (finegemm_stack* w :
         {&alone.args.gate_up, &alone.args.gate_up_scales, &alone.args.down, &alone.args.down_scales})
        *w = {};
    ASSERT_EQ(finegemm_four_bit_moe(context.get(), &alone.args, &gate_up.weights, &down.weights, &alone.options,
                                    &alone.error),
              FINEGEMM_OK)
        << alone.error.message;
    finegemm_communicator* communicators[2] = {};
    ASSERT_EQ(finegemm_communicators_of_threads(2, nullptr, communicators, nullptr), FINEGEMM_OK);
    MoeCallInC calls[2];
    const auto run = [&](int rank) {
        MoeCallInC& c = calls[rank];
        c.args.first = 0;
        c.args.gate_up = c.args.gate_up_scales = c.args.down = c.args.down_scales = {};
        const finegemm_four_bit_weights of_gate_up = gate_up.half(rank), of_down = down.half(rank);
        for (const int64_t capacity : {int64_t{0}, c.kTokens * c.kChoices}) {
            finegemm_ep_options how{};
            how.struct_size = sizeof how, how.capacity = capacity;
            std::memset(c.args.out.data, 0x7f, c.kHidden * 2);
            EXPECT_EQ(finegemm_ep_four_bit_moe(context.get(), communicators[rank], &c.args, &of_gate_up, &of_down, &how,
                                               &c.options, &c.error),
                      FINEGEMM_OK)
                << c.error.message;
            EXPECT_EQ(out_of(c), out_of(alone)) << capacity;
        }
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    MoeCallInC& c = calls[0];
    const finegemm_four_bit_weights half = gate_up.half(0);
    EXPECT_EQ(
        finegemm_ep_four_bit_moe(context.get(), communicators[0], &c.args, &half, nullptr, nullptr, nullptr, &c.error),
        FINEGEMM_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(c.error.message), "down: is null; pass its address");
    for (finegemm_communicator* one : communicators) finegemm_communicator_destroy(one);
}

TEST(EpInC, TellsTheMemoryOfACallWithACapacity) {
    finegemm_moe_shape shape{};
    shape.struct_size = sizeof shape;
    shape.tokens = 64, shape.choices = 8, shape.hidden = 7168, shape.intermediate = 2048, shape.experts = 32;
    int64_t few = 0, many = 0;
    finegemm_error error{};
    EXPECT_EQ(finegemm_ep_moe_workspace_bytes(&shape, 2, 64, &few, &error), FINEGEMM_OK) << error.message;
    EXPECT_EQ(finegemm_ep_moe_workspace_bytes(&shape, 2, 128, &many, &error), FINEGEMM_OK);
    EXPECT_GT(few, 2 * 64 * 2 * (7168 + 4 * 56 + 2 * 7168)) << "rows there and back, at both ends";
    EXPECT_GT(many, few);
    EXPECT_EQ(finegemm_ep_moe_workspace_bytes(&shape, 2, 0, &few, &error), FINEGEMM_INVALID_ARGUMENT);
    EXPECT_EQ(finegemm_ep_moe_workspace_bytes(&shape, 64, 8, &few, &error), FINEGEMM_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.message).find("must be at most 1024"), std::string::npos) << error.message;
}

}  // namespace
}  // namespace finegemm::test
