// A layer of experts over ranks in C: right, and wrong for misuse_test.cpp. Layer tests.
#pragma once

#include <string>

#include <finegemm/c_ep.h>

#include "api/moe_misuses.h"

namespace finegemm::test {

/// The layer of MoeCallInC on one rank, which has all of its experts.
struct EpCallInC {
    MoeCallInC moe;
    finegemm_communicator* communicator = nullptr;
    finegemm_communicator_options communicator_options{};
    finegemm_ep_options how{};
    int32_t ranks = 1;
    finegemm_matrix counts{};
    int32_t of_ranks[2] = {};

    EpCallInC() {
        moe.args.first = 0;
        communicator_options.struct_size = sizeof communicator_options;
        how.struct_size = sizeof how;
        how.capacity = 9;
        counts = {of_ranks, FINEGEMM_I32, FINEGEMM_CPU, 0, 0, 1, 1, 1, 1};
    }
    ~EpCallInC() { finegemm_communicator_destroy(communicator); }
    EpCallInC(const EpCallInC&) = delete;
    EpCallInC& operator=(const EpCallInC&) = delete;

    int32_t run(finegemm_context* context) {
        finegemm_communicator* made[64] = {};
        const int32_t code = finegemm_communicators_of_threads(ranks, &communicator_options, made, &moe.error);
        if (code != FINEGEMM_OK) return code;
        communicator = made[0];
        for (int32_t r = 1; r < ranks; ++r) finegemm_communicator_destroy(made[r]);
        return finegemm_ep_moe(context, communicator, &moe.args, &how, &moe.options, &moe.error);
    }
};

struct EpMisuse {
    const char* name;
    void (*spoil)(EpCallInC&);
};

inline const EpMisuse kEp[] = {
    {"no rank", [](EpCallInC& c) { c.ranks = 0; }},
    {"a time-out of -1 s", [](EpCallInC& c) { c.communicator_options.timeout_s = -1; }},
    {"options of a communicator have a reserved field", [](EpCallInC& c) { c.communicator_options.reserved = 1; }},
    {"x is f32", [](EpCallInC& c) { c.moe.args.x.dtype = FINEGEMM_F32; }},
    {"first is 4", [](EpCallInC& c) { c.moe.args.first = 4; }},
    {"rows are 5", [](EpCallInC& c) { c.moe.options.rows = 5; }},
    {"weights come first", [](EpCallInC& c) { c.moe.options.weights_first = 1; }},
    {"64 ranks of 17 experts",
     [](EpCallInC& c) {
         c.ranks = 64;
         for (finegemm_stack* w :
              {&c.moe.args.gate_up, &c.moe.args.gate_up_scales, &c.moe.args.down, &c.moe.args.down_scales})
             w->count = 17, w->stride = 0;
     }},
    {"a capacity of -1", [](EpCallInC& c) { c.how.capacity = -1; }},
    {"a capacity of 2^24", [](EpCallInC& c) { c.how.capacity = 1 << 24; }},
    {"counts are f32", [](EpCallInC& c) { c.how.counts = c.counts, c.how.counts.dtype = FINEGEMM_F32; }},
    {"counts are of two ranks", [](EpCallInC& c) { c.how.counts = c.counts, c.how.counts.cols = 2; }},
    {"workspace has 100 bytes",
     [](EpCallInC& c) { c.moe.args.workspace = c.moe.out.data(), c.moe.args.workspace_bytes = 100; }},
    {"workspace is x",
     [](EpCallInC& c) { c.moe.args.workspace = c.moe.x.data(), c.moe.args.workspace_bytes = 1 << 20; }},
    {"a workspace without a capacity",
     [](EpCallInC& c) {
         c.how.capacity = 0, c.moe.args.workspace = c.moe.out.data(), c.moe.args.workspace_bytes = 100;
     }},
    {"more choices than a rank has places",
     [](EpCallInC& c) {
         for (int64_t t = 0; t < 5; ++t) c.moe.ids.at(t, 1) = 2;
         c.how.capacity = 2, c.moe.options.check_values = FINEGEMM_ON;
     }},
    {"a bias", [](EpCallInC& c) { c.moe.add_biases(); }},
    {"how has a reserved field", [](EpCallInC& c) { c.how.reserved = 1; }},
};

/// What the library says to each, by name.
template <typename Sentences>
Sentences ep_misuses() {
    Sentences said;
    const CContext context;
    for (const EpMisuse& m : kEp) {
        EpCallInC call;
        m.spoil(call);
        const int32_t code = call.run(context.get());
        said[std::string("ep: ") + m.name] = {code, call.moe.error.message};
    }
    return said;
}

}  // namespace finegemm::test
