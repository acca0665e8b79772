// Which kernel an indexer's scores take, and why. Layer api.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <finegemm/mqa.h>

#include "ops/mqa/checks.h"
#include "ops/mqa/hopper.h"
#include "ops/mqa/source.h"

namespace finegemm {

namespace {

std::string why_form(const MqaShape& shape, const MqaConfig& c) {
    if (c.form == MqaForm::Abs)
        return "relu is abs, as asked for: (x + |x|) / 2, its linear half as columns of their own";
    if (shape.relu == Relu::Abs && shape.paged)
        return "relu is exact, as keys in pages take memory's time, and columns of the abs form more";
    if (shape.relu == Relu::Abs)
        return fmt::format("relu is exact, as the columns of the abs form take longer than they save with {} heads",
                           shape.heads);
    return "relu is exact, as nothing else is asked for";
}

std::string why_columns(const MqaShape& shape, const MqaConfig& c) {
    const uint32_t queries = c.queries();
    if (!shape.paged)
        return fmt::format("{} queries of {} heads are multiplied at once, {} columns", queries, c.heads, c.columns());
    const auto products = ceil_div(static_cast<uint32_t>(shape.queries), queries);
    return fmt::format("the {} queries of a request take {} products of up to {} queries, {} columns each",
                       shape.queries, products, queries, c.columns());
}

}  // namespace

std::string explain(const MqaShape& shape) {
    check_mqa(shape);
    const MqaConfig c = mqa_config(shape.heads, shape.dim, shape.paged ? MqaKeys::Pages : MqaKeys::Rows, shape.relu);
    const std::string place = shape.paged ? "pages" : "rows";
    const nlohmann::ordered_json out = {
        {"kernel", jit::source_of(c).entry},
        {"why",
         {fmt::format("keys are in {}, H is {} and D {}: each has a kernel of its own; all else is an argument", place,
                      c.heads, c.dim),
          why_form(shape, c), why_columns(shape, c)}},
        {"config",
         {{"heads", c.heads},
          {"dim", c.dim},
          {"keys", place},
          {"relu", c.form == MqaForm::Abs ? "abs" : "exact"},
          {"columns", c.columns()},
          {"tile_keys", kMqaTileKeys},
          {"math_warpgroups", kMqaWarpgroups},
          {"stages", c.stages()},
          {"smem_bytes", mqa_smem(c).total}}}};
    return out.dump(2);
}

}  // namespace finegemm
