// finegemm explain: which kernel a shape takes, and why no other. Layer cli.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <finegemm/gemm.h>

#include "cli/commands.h"
#include "cli/commands/calls.h"
#include "cli/product.h"
#include "plan/fields.h"

namespace finegemm::cli {

namespace {

struct ExplainOptions {
    std::vector<std::string> shape;
    ProductOptions product;
    std::string device = "auto", table;
    bool json = false;
};

constexpr fmt::string_view kColumns = "{:<{}} {:>9} {:>9} {:>9} {:>9} {:>7} {:>7}  {}\n";

/// Width of the column of names.
size_t width_of(const nlohmann::json& candidates) {
    size_t width = 24;
    for (const auto& row : candidates) width = std::max(width, row.at("name").get<std::string>().size());
    return width;
}

double number(const nlohmann::json& row, const char* name) { return row.at(name).get<double>(); }

/// Why a candidate is not taken, or that it is.
std::string verdict(const nlohmann::json& row, const nlohmann::json& chosen) {
    if (row.contains("rejected")) return "rejected: " + row.at("rejected").get<std::string>();
    if (row.at("name") == chosen.at("name")) return "chosen";
    return fmt::format("{:+.1f}%", 100 * (number(row, "us") / number(chosen, "us") - 1));
}

void print_row(const Front& front, const nlohmann::json& row, size_t width, const std::string& verdict) {
    const auto name = row.at("name").get<std::string>();
    if (row.contains("rejected")) {
        front.out << fmt::format("{:<{}} {}\n", name, width, verdict);
        return;
    }
    const auto us = [&](const char* field) { return fmt::format("{:.2f}", number(row, field)); };
    front.out << fmt::format(fmt::runtime(kColumns), name, width, us("us"), us("launch_us"), us("compute_us"),
                             us("memory_us"), row.at("tiles").get<int64_t>(), row.at("ctas").get<int64_t>(), verdict);
}

void print_chosen(const Front& front, const nlohmann::json& chosen) {
    const auto& c = chosen.at("config");
    const auto field = [&](const char* name) { return c.at(name).get<int64_t>(); };
    const std::string cluster = field("cluster") == 1 ? "no cluster"
                                                      : fmt::format("clusters of {} ({})", field("cluster"),
                                                                    c.at("cluster_use").get<std::string>());
    front.out << fmt::format("chosen by the {}\n", chosen.at("source").get<std::string>());
    front.out << fmt::format("tiles of {} x {}, {} stages, math warpgroups: {}, {}, CTAs on an SM: {}\n",
                             field("tile_m"), field("tile_n"), field("stages"), field("math_warpgroups"), cluster,
                             field("ctas_per_sm"));
    const auto& plan = chosen.at("plan");
    const auto word = [&](const char* name) { return plan.at(name).get<std::string>(); };
    front.out << fmt::format("producers: {}, scales: {}, promotion: {}, block products in flight: {}, store: {}\n",
                             word("producers"), word("scales"), word("promotion"),
                             plan.at("blocks_in_flight").get<int64_t>(), word("store"));
    front.out << "predicted times in us; compute and memory overlap in part\n";
}

/// Differences from a GEMM with scales of blocks of B and D in bf16.
std::string kind_text(const GemmShape& s) {
    if (const plan::FinishField* finish = plan::find_finish(s)) {
        GemmShape product = s;
        product.*finish->asked = false;
        return kind_text(product) + finish->phrase;
    }
    if (const ElementType& type = plan::operand_type(s); !type.scaled)
        return fmt::format(" in {}{}", type.name,
                           s.groups     ? fmt::format(" in {} groups", *s.groups)
                           : s.k_groups ? fmt::format(" in {} groups of K", *s.k_groups)
                           : s.summed   ? fmt::format(", summed over {} matrices", *s.summed)
                                        : "");
    if (s.groups) return fmt::format(" in {} groups", *s.groups);
    if (s.k_groups) return fmt::format(" in {} groups of K{}", *s.k_groups, s.accumulate ? ", added to D" : "");
    if (s.b_mx) return s.a_mx ? " with MX scales" : " with MX scales of B";
    if (!s.row_b_scales) return {};
    return fmt::format(" with scales of rows of B and D in {}{}", name_of(plan::result_type(s)),
                       s.accumulate ? ", which is added to" : "");
}

ExitCode run(const ExplainOptions& o, const Front& front) {
    const std::string device = o.device == "auto" ? "" : o.device;
    if (o.shape.size() == 1 && is_trial(o.shape[0])) return explain_call(o.shape[0], device, o.json, front);
    const GemmShape shape = parse_product(o.shape, o.product);
    const std::string text = explain(shape, device, o.table);
    if (o.json) {
        front.out << text << '\n';
        return kOk;
    }
    const auto out = nlohmann::json::parse(text);
    const auto& chosen = out.at("chosen");
    const std::string sms = shape.num_sms > 0 ? fmt::format("{} SMs of ", shape.num_sms) : "";
    front.out << fmt::format("{} x {} x {}{} on {}{}: {}\n", shape.m, shape.n, shape.k, kind_text(shape), sms,
                             out.at("device").get<std::string>(),
                             chosen.is_null() ? "no kernel can take it" : chosen.at("name").get<std::string>());
    if (!chosen.is_null()) print_chosen(front, chosen);
    if (const auto other = out.value("reencoded", nlohmann::json()); !other.is_null())
        front.out << fmt::format(
            "re-encoded with a scale for each 128 of K (docs/mxfp8.md): {}, {:.2f}, behind {:.2f}{}\n",
            other.at("name").get<std::string>(), number(other, "us"), number(other, "before_us"),
            other.at("taken").get<bool>() ? ": which calls take" : "");
    const size_t width = width_of(out.at("candidates"));
    front.out << '\n'
              << fmt::format(fmt::runtime(kColumns), "kernel", width, "total", "launch", "compute", "memory", "tiles",
                             "CTAs", "than chosen");
    for (const auto& row : out.at("candidates")) print_row(front, row, width, verdict(row, chosen));
    return kOk;
}

}  // namespace

Run add_explain(CLI::App& app) {
    auto o = std::make_shared<ExplainOptions>();
    CLI::App* command = app.add_subcommand("explain", "Say which kernel a shape takes, and why no other");
    command
        ->add_option("shape", o->shape,
                     "M N K, or a line as errors have them: 'gemm 64x2112x7168 groups=4', or of another call: "
                     "'mqa_logits 2048x8192 64x128', 'mqa_topk 2048 of 2048x8192 64x128', "
                     "'prenorm_gemm 4096x24x7168', 'moe 64x7168x2048 256x8', "
                     "'four_bit_gemm 128x4096x7168 mxfp4 groups=8'")
        ->required()
        ->expected(1, 3)
        ->option_text("M N K");
    add_field_options(*command, o->product);
    command->add_option("--device", o->device, "auto (the GPU present, else h200), h200, h100, gh200, h800 or h20")
        ->capture_default_str();
    command->add_option("--plan-table", o->table,
                        "A file of tune; without it, and with --device auto, that of "
                        "FINEGEMM_PLAN_TABLE");
    command->add_flag("--json", o->json, "Print JSON");
    return [o](const Front& front) { return run(*o, front); };
}

}  // namespace finegemm::cli
