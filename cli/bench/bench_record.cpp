// The record of finegemm bench, as JSON. Layer cli.
#include "cli/bench/bench_record.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plan/fields.h"
#include "workbench/whole_file.h"

namespace finegemm::cli {

namespace {

using Json = nlohmann::ordered_json;

/// Nobody measures to more digits.
double rounded(double x, double to) { return std::round(x * to) / to; }

Json json_of(const nvml::Reading& r) {
    const auto value = [](const auto& x) { return x ? Json(*x) : Json(nullptr); };
    return {{"power_w", value(r.power_w)}, {"power_limit_w", value(r.power_limit_w)},
            {"sm_mhz", value(r.sm_mhz)},   {"memory_mhz", value(r.memory_mhz)},
            {"celsius", value(r.celsius)}, {"slowed_by", r.slowed_by}};
}

Json json_of(const Head& h) {
    Json machine = {{"name", h.machine}}, out;
    if (!h.driver.empty()) machine["driver_version"] = h.driver;
    if (!h.cuda.empty()) machine["cuda"] = h.cuda;
    if (h.reading) machine["before"] = json_of(*h.reading);
    if (!h.without_nvml.empty()) machine["note"] = h.without_nvml;
    out["machine"] = machine;
    out["finegemm"] = FINEGEMM_VERSION;
    if (!h.cublaslt.empty()) out["cublaslt"] = h.cublaslt;
    if (!h.commit.empty()) out["commit"] = h.commit;
    out["method"] = h.method;
    out["shapes"] = h.shapes;
    if (!h.baselines) return out;
    const Baselines& b = *h.baselines;
    out["baselines_us"] = {{"no launch", rounded(b.nothing, 100)},
                           {"quantise 128 numbers", rounded(b.small_kernel, 100)}};
    // The names that bench/gpu_speed.py gives them too.
    if (b.cublas_tensor > 0)
        out["ceilings_us"][fmt::format("cublas_tensor fp8 {}^3", kCeilingExtent)] = rounded(b.cublas_tensor, 10);
    if (b.copy > 0) out["ceilings_us"]["read+write of 4 GB each"] = rounded(b.copy, 10);
    return out;
}

Json json_of(const Row& row) {
    const auto [m, n, k, line] = row.shape;
    const GemmShape& asked = row.product.fields;
    GemmShape problem = asked;
    problem.m = m, problem.n = n, problem.k = k;
    Json out = {{"problem", text_of(plan::problem_of(problem))}, {"kind", kind_of(asked)}, {"shape", {m, n, k}}};
    if (asked.groups) out.update({{"groups", *asked.groups}, {"busy_groups", row.busy}, {"form", row.product.form}});
    if (asked.k_groups)
        out.update({{"groups", *asked.k_groups}, {"busy_groups", row.busy}, {"layout", row.product.layout}});
    for (const auto& [name, is_so] : {std::pair{"a_mx", asked.a_mx},
                                      {"b_mx", asked.b_mx},
                                      {"a_mn_major", asked.a_mn_major},
                                      {"b_mn_major", asked.b_mn_major}})
        if (is_so) out[name] = true;
    if (asked.row_b_scales) out.update({{"row_b_scales", true}, {"out_dtype", name_of(plan::result_type(asked))}});
    if (asked.accumulate) out["accumulate"] = true;
    out["us"] = Json::object();
    for (const Entry& e : row.entries) {
        if (e.error) out["error"][e.name] = rounded(*e.error, 1e6);
        if (!e.gap.empty()) {
            out["gaps"][e.name] = e.gap;
            continue;
        }
        out["us"][e.name] = rounded(e.us, 100);
        if (e.spread) out["spread"][e.name] = rounded(*e.spread, 1e4);
    }
    out["kernel"] = row.kernel;
    if (const std::string source = source_of(row.shape); !source.empty()) out["source"] = source;
    if (row.reading) out["after"] = json_of(*row.reading);
    return out;
}

}  // namespace

Record::Record(Head head, std::string file) : head_(std::move(head)), file_(std::move(file)) { write(); }

void Record::add(Row row) {
    rows_.push_back(std::move(row));
    write();
}

bool Record::all_right() const {
    return std::ranges::all_of(rows_, [](const Row& row) { return row.entries.front().gap.empty(); });
}

std::string Record::text() const {
    std::string text = json_of(head_).dump(1);
    text.resize(text.rfind('\n'));  // the brace comes after the rows
    text += ",\n \"rows\": [";
    for (const Row& row : rows_) text += (&row == rows_.data() ? "\n  " : ",\n  ") + json_of(row).dump();
    return text + "\n ]\n}\n";
}

void Record::write() const {
    if (!file_.empty()) write_whole(file_, text());
}

}  // namespace finegemm::cli
