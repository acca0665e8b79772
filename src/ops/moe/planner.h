// Launches of a layer of experts on a GPU, and what they take. Layer engine.
#pragma once

#include <string>
#include <vector>

#include "ops/moe/call.h"
#include "plan/plan.h"

namespace finegemm {

/// Choices that one launch routes and permutes by: of more, each of its CTAs counts longer than another launch takes.
inline constexpr int64_t kRoutedTogether = 128;
static_assert(kRoutedTogether <= kFewChoices);

struct MoeLaunch {
    const char* call;    // by its function's name, or those of two
    std::string kernel;  // as logs have it
    std::string line;    // of a product, as `finegemm explain` takes it; else empty
    double us, bytes;    // by prediction
};

struct MoePlan {
    MoeForms forms{};
    double fused_us = 0, apart_us = 0;  // of product and activation in one launch and in two, at full clocks; 0: not to
                                        // be had
    std::vector<MoeLaunch> launches;
    double us() const {
        double sum = 0;
        for (const MoeLaunch& launch : launches) sum += launch.us;
        return sum;
    }
};

/// `is_fp8_faster`: of a product with weights of 4 bits. `is_fused_faster`: of a first product with FP8, than the
/// faster one of those without its activation. `is_storing_sums_faster`: of a second product with FP8, than one whose
/// rows another launch adds up. Each is asked where it has a say.
template <typename IsFp8Faster, typename IsFusedFaster, typename IsStoringSumsFaster>
MoeForms forms_of(const MoeShape& shape, const IsFp8Faster& is_fp8_faster, const IsFusedFaster& is_fused_faster,
                  const IsStoringSumsFaster& is_storing_sums_faster) {
    MoeForms forms = usual_forms(shape);
    const std::optional<bool> rule = fused_by_rule(shape);
    const auto is_four_bit = [&](const GemmShape& product) { return !is_fp8_faster(four_bit_shape(shape, product)); };
    if (!rule) forms.fused = is_fused_faster();
    if (shape.four_bit && !shape.four_bit_alone) {
        forms.gate_up_four_bit = !forms.fused && is_four_bit(gate_up_shape(shape, false));
        forms.down_four_bit = is_four_bit(down_shape(shape, false));
    }
    forms.stores_sums = may_store_sums(shape) && !forms.down_four_bit && is_storing_sums_faster();
    return forms;
}

/// `user`: a table that was loaded for this device, or null.
MoePlan plan_of(const MoeShape& shape, const plan::DeviceSpec& device, const plan::PlanTable* user = nullptr);

/// Whether the product and its activation are expected to take no longer in one launch than in two, the first of which
/// is that of weights of 4 bits where these are there and faster. And whether a second product that stores sums is.
bool is_fused_faster(const MoeShape& shape, const plan::DeviceSpec& device, const plan::PlanTable* user = nullptr);

bool is_storing_sums_faster(const MoeShape& shape, const plan::DeviceSpec& device,
                            const plan::PlanTable* user = nullptr);

}  // namespace finegemm
