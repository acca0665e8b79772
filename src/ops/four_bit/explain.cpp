// Which kernel a product with weights of 4 bits takes, and why. Layer api.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <finegemm/four_bit.h>

#include "api/explained_device.h"
#include "ops/four_bit/checks.h"
#include "ops/four_bit/planner.h"
#include "ops/four_bit/source.h"

namespace finegemm {

namespace {

std::string why_form(const FourBitShape& shape, double four_bit_us, double fp8_us) {
    if (!shape.fp8) return "fp8 is not given: weights of 4 bits are multiplied, however many rows there are";
    return fmt::format("weights of 4 bits are expected to take {:.1f} us, those of FP8 {:.1f} us", four_bit_us, fp8_us);
}

std::string why_rows(const FourBitShape& shape, const plan::Problem& fp8, uint32_t tile_rows) {
    if (!shape.groups) return fmt::format("{} rows are one group", shape.m);
    const auto [groups, rows] = fp8.busy_groups();
    return fmt::format("{:.0f} groups are expected to have {:.1f} rows each; for each {} of them B is read once",
                       groups, rows, tile_rows);
}

}  // namespace

std::string explain(const FourBitShape& shape, const std::string& device) {
    check_four_bit(shape);
    const plan::DeviceSpec spec = explained_device(device);
    const plan::Problem fp8 = plan::problem_of(fp8_shape(shape));
    const FourBitCost cost = four_bit_cost(fp8, spec);
    const FourBitConfig config{codes_of(shape.format), cost.rows};
    const std::string name = jit::source_of(config).entry;
    nlohmann::ordered_json forms = {{{"form", name_of(shape.format)}, {"kernel", name}, {"us", cost.us}}};
    double us = cost.us, fp8_us = 0;
    std::string kernel = name;
    if (shape.fp8) {
        const auto [chosen, chosen_us] = fp8_cost(fp8, spec);
        fp8_us = chosen_us;
        forms.push_back(
            {{"form", "fp8"}, {"kernel", plan::name_of(chosen)}, {"us", fp8_us}, {"line", plan::text_of(fp8)}});
        if (fp8_us < us) us = fp8_us, kernel = plan::name_of(chosen);
    }
    const nlohmann::ordered_json out = {
        {"device", spec.name},
        {"kernel", kernel},
        {"us", us},
        {"why", {why_form(shape, cost.us, fp8_us), why_rows(shape, fp8, config.tile_rows())}},
        {"config",
         {{"rows", config.tile_rows()},
          {"cols", config.cols()},
          {"tiles", cost.tiles},
          {"ctas", cost.ctas},
          {"stages", config.stages()},
          {"smem_bytes", config.smem_bytes()}}},
        {"forms", forms}};
    return out.dump(2);
}

}  // namespace finegemm
