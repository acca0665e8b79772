// finegemm explain: which kernel a shape takes, and why no other. Layer cli.
#include <algorithm>
#include <iostream>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <finegemm/gemm.h>
#include <finegemm/grouped.h>
#include <finegemm/k_grouped.h>

#include "cli/commands.h"
#include "cli/shapes.h"

namespace finegemm::cli {

namespace {

struct ExplainOptions {
    int64_t m = 0, n = 0, k = 0;
    std::optional<int64_t> groups, k_groups;
    int64_t expected_m = 0, alignment = 0;
    KindOptions kind;
    std::string device = "auto", table;
    int num_sms = 0;
    bool batch_invariant = false, accumulate = false;
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

void print_row(const nlohmann::json& row, size_t width, const std::string& verdict) {
    const auto name = row.at("name").get<std::string>();
    if (row.contains("rejected")) {
        std::cout << fmt::format("{:<{}} {}\n", name, width, verdict);
        return;
    }
    const auto us = [&](const char* field) { return fmt::format("{:.2f}", number(row, field)); };
    std::cout << fmt::format(fmt::runtime(kColumns), name, width, us("us"), us("launch_us"), us("compute_us"),
                             us("memory_us"), row.at("tiles").get<int64_t>(), row.at("ctas").get<int64_t>(), verdict);
}

void print_chosen(const nlohmann::json& chosen) {
    const auto& c = chosen.at("config");
    const auto field = [&](const char* name) { return c.at(name).get<int64_t>(); };
    const std::string cluster = field("cluster") == 1 ? "no cluster"
                                                      : fmt::format("clusters of {} ({})", field("cluster"),
                                                                    c.at("cluster_use").get<std::string>());
    std::cout << fmt::format("chosen by the {}\n", chosen.at("source").get<std::string>());
    std::cout << fmt::format("tiles of {} x {}, {} stages, math warpgroups: {}, {}, CTAs on an SM: {}\n",
                             field("tile_m"), field("tile_n"), field("stages"), field("math_warpgroups"), cluster,
                             field("ctas_per_sm"));
    const auto& plan = chosen.at("plan");
    const auto word = [&](const char* name) { return plan.at(name).get<std::string>(); };
    std::cout << fmt::format("producers: {}, scales: {}, promotion: {}, block products in flight: {}, store: {}\n",
                             word("producers"), word("scales"), word("promotion"),
                             plan.at("blocks_in_flight").get<int64_t>(), word("store"));
    std::cout << "predicted times in us; compute and memory overlap in part\n";
}

std::string account_of(const ExplainOptions& o) {
    const std::string device = o.device == "auto" ? "" : o.device;
    if (o.k_groups)
        return explain(KGroupedShape{.m = o.m,
                                     .n = o.n,
                                     .k = o.k,
                                     .groups = *o.k_groups,
                                     .batch_invariant = o.batch_invariant,
                                     .num_sms = o.num_sms,
                                     .accumulate = o.accumulate},
                       device, o.table);
    if (o.groups)
        return explain(GroupedShape{.m = o.m,
                                    .n = o.n,
                                    .k = o.k,
                                    .groups = *o.groups,
                                    .expected_m = o.expected_m,
                                    .alignment = o.alignment,
                                    .num_sms = o.num_sms},
                       device, o.table);
    const auto [row_b_scales, out_dtype] = o.kind.kind();
    return explain(GemmShape{.m = o.m,
                             .n = o.n,
                             .k = o.k,
                             .row_b_scales = row_b_scales,
                             .out_dtype = out_dtype,
                             .batch_invariant = o.batch_invariant,
                             .num_sms = o.num_sms,
                             .accumulate = o.accumulate},
                   device, o.table);
}

/// Differences from a GEMM with scales of blocks of B and D in bf16.
std::string kind_text(const ExplainOptions& o) {
    if (o.groups) return fmt::format(" in {} groups", *o.groups);
    const std::string_view added = o.accumulate ? ", which is added to" : "";
    if (o.k_groups) return fmt::format(" in {} groups of K{}", *o.k_groups, o.accumulate ? ", added to D" : "");
    return o.kind.row_b_scales ? fmt::format(" with scales of rows of B and D in {}{}", o.kind.out_dtype, added) : "";
}

ExitCode run(const ExplainOptions& o) {
    const std::string text = account_of(o);
    if (o.json) {
        std::cout << text << '\n';
        return kOk;
    }
    const auto out = nlohmann::json::parse(text);
    const auto& chosen = out.at("chosen");
    const std::string sms = o.num_sms > 0 ? fmt::format("{} SMs of ", o.num_sms) : "";
    std::cout << fmt::format("{} x {} x {}{} on {}{}: {}\n", o.m, o.n, o.k, kind_text(o), sms,
                             out.at("device").get<std::string>(),
                             chosen.is_null() ? "no kernel can take it" : chosen.at("name").get<std::string>());
    if (!chosen.is_null()) print_chosen(chosen);
    const size_t width = width_of(out.at("candidates"));
    std::cout << '\n'
              << fmt::format(fmt::runtime(kColumns), "kernel", width, "total", "launch", "compute", "memory", "tiles",
                             "CTAs", "than chosen");
    for (const auto& row : out.at("candidates")) print_row(row, width, verdict(row, chosen));
    return kOk;
}

}  // namespace

Run add_explain(CLI::App& app) {
    auto o = std::make_shared<ExplainOptions>();
    CLI::App* command = app.add_subcommand("explain", "Say which kernel a shape takes, and why no other");
    command->add_option("M", o->m, "Rows of A and D")->required();
    command->add_option("N", o->n, "Rows of B, columns of D")->required();
    command->add_option("K", o->k, "Columns of A and B")->required();
    auto* groups = command->add_option("--groups", o->groups,
                                       "Explain the grouped GEMM of so many groups, which have M rows together");
    command->add_option("--expected-m", o->expected_m, "Rows of a group to choose by; M over the groups without it")
        ->needs(groups);
    command->add_option("--alignment", o->alignment, "Of groups that row indices tell, which bounds tiles")
        ->needs(groups);
    auto* k_groups = command
                         ->add_option("--k-groups", o->k_groups,
                                      "Explain the K-grouped GEMM of so many groups, which have K together")
                         ->excludes(groups);
    add_kind_options(*command, o->kind, {groups, k_groups});
    command->add_option("--device", o->device, "auto (the GPU present, else h200), h200, h100, gh200, h800 or h20")
        ->capture_default_str();
    command->add_option("--plan-table", o->table,
                        "A file of tune; without it, and with --device auto, that of "
                        "FINEGEMM_PLAN_TABLE");
    command->add_option("--num-sms", o->num_sms, "SMs that may be used at most; 0: all")->capture_default_str();
    command->add_flag("--batch-invariant", o->batch_invariant,
                      "Rows of the result may not depend on M; with --device "
                      "auto, FINEGEMM_BATCH_INVARIANT=1 asks for it, too");
    command->add_flag("--accumulate", o->accumulate, "D, of f32, is added to, not overwritten")->excludes(groups);
    command->add_flag("--json", o->json, "Print JSON");
    return [o] { return run(*o); };
}

}  // namespace finegemm::cli
