// Which kernel a selection takes, and why. Layer api.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <finegemm/topk.h>

#include "api/explained_device.h"
#include "ops/topk/checks.h"
#include "ops/topk/hopper.h"
#include "ops/topk/source.h"
#include "ops/topk/steps.h"

namespace finegemm {

namespace {

std::string why_ctas(int64_t rows, int64_t columns, const TopkConfig& c, uint32_t sms) {
    const int64_t held = c.held_columns();
    if (c.few)
        return fmt::format("{} few for {} SMs: a cluster of {}, which keeps {} columns, has each",
                           rows == 1 ? "1 row is" : fmt::format("{} rows are", rows), sms, c.ctas, held);
    const std::string of = c.ctas == 1 ? "a CTA" : fmt::format("a cluster of {}", c.ctas);
    std::string why = fmt::format("{} keeps {} columns in shared memory", of, held);
    if (columns <= held) why += ", which is all of a row";
    else why += fmt::format("; of {} it looks at a sample, and then lists what may be selected", columns);
    if (c.ctas == 1) return why;
    if (columns > int64_t{c.ctas} / 2 * kTopkMostColumns)
        return why + fmt::format("; fewer CTAs would take more than {} of them each", kTopkMostColumns);
    return why + fmt::format("; fewer CTAs for each of {} rows would leave some of {} SMs idle", rows, sms);
}

std::string why_steps(const TopkShape& shape, const TopkSteps& steps) {
    if (shape.logits) return "logits of all queries are asked for: one launch computes them, one selects";
    return fmt::format(
        "logits of {} queries at once take {:.4g} MiB: of {} queries that is {} {}, each of two launches", steps.rows,
        static_cast<double>(steps.bytes) / (1 << 20), shape.rows(), steps.count, steps.count == 1 ? "step" : "steps");
}

}  // namespace

std::string explain(const TopkShape& shape, const std::string& device) {
    check_topk(shape);
    const plan::DeviceSpec spec = explained_device(device);
    const auto limit = static_cast<uint32_t>(shape.num_sms);
    const uint32_t sms = limit > 0 ? std::min(limit, spec.sms) : spec.sms;
    const TopkSteps steps = shape.of_numbers() ? TopkSteps{1, shape.rows(), 0} : steps_of(shape);
    const TopkConfig c = topk_config(steps.rows, shape.keys, sms);
    nlohmann::ordered_json out = {{"device", spec.name},
                                  {"kernel", jit::source_of(c).entry},
                                  {"why", nlohmann::ordered_json::array({why_ctas(steps.rows, shape.keys, c, sms)})},
                                  {"config",
                                   {{"cluster", c.ctas},
                                    {"threads", TopkConfig::threads()},
                                    {"held_columns", c.held_columns()},
                                    {"smem_bytes", c.smem_bytes()}}}};
    if (shape.of_numbers()) return out.dump(2);
    out["logits"] = nlohmann::ordered_json::parse(explain(logits_shape(shape)));
    out["steps"] = {{"count", steps.count}, {"rows", steps.rows}, {"bytes", steps.bytes}};
    out["why"].push_back(why_steps(shape, steps));
    out["why"].push_back("logits are of " + out["logits"]["kernel"].get<std::string>());
    return out.dump(2);
}

}  // namespace finegemm
