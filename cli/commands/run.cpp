// finegemm run: quantise, multiply, compare, report. Layer cli.
#include <algorithm>
#include <iostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <finegemm/error.h>

#include "api/accuracy.h"
#include "api/argument.h"
#include "cli/commands.h"
#include "cli/grouped_session.h"
#include "cli/k_grouped_session.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/text.h"

namespace finegemm::cli {

namespace {

struct RunOptions {
    std::vector<int64_t> shape;
    GroupOptions groups;
    KGroupOptions k_groups;
    KindOptions kind;
    std::string a, b, sfa, sfb, out, device = "auto", numerics = "fast", config;
    int repeats = 5;
    uint64_t seed = 1;
    bool json = false;
};

const std::map<std::string, Numerics> kNumerics = {
    {"fast", Numerics::Fast}, {"exact", Numerics::Exact}, {"hopper", Numerics::Hopper}};

/// The matrix of one side, or nothing for a random one.
std::optional<Operand> read_operand(const char* name, const std::string& values, const std::string& scales) {
    if (values.empty()) {
        if (!scales.empty())
            throw Error(Errc::InvalidArgument,
                        fmt::format("--sf{0}: is for e4m3 codes from a file; give --{0} too", name));
        return {};
    }
    Operand operand{read_matrix(values), {}};
    if (!scales.empty()) operand.scales = read_matrix(scales);
    return operand;
}

struct Problem {
    int64_t m = 256, n = 1024, k = 1024;
};

/// What the files hold goes before what the device takes well; what was asked for must be the same as both.
Problem problem_of(const RunOptions& o, const std::optional<Operand>& a, const std::optional<Operand>& b, bool gpu) {
    Problem p;
    if (gpu) p = {4096, 4096, 7168};
    if (!o.shape.empty()) p = {o.shape[0], o.shape[1], o.shape[2]};
    const auto take = [&](const char* extent, const char* name, int64_t& ours, int64_t theirs) {
        if (!o.shape.empty() && ours != theirs)
            throw Error(Errc::InvalidArgument,
                        fmt::format("{} is {}, but {} has {}; leave the shape out, files have their own", extent, ours,
                                    name, theirs));
        ours = theirs;
    };
    if (b) take("N", "--b", p.n, b->values.rows), take("K", "--b", p.k, b->values.cols);
    if (a) take("M", "--a", p.m, a->values.rows), take("K", "--a", p.k, a->values.cols);
    return p;
}

/// Rows of D whose check on the CPU takes about a second.
int64_t rows_to_check(const Problem& p) {
    constexpr double kOperations = 1e10;
    return static_cast<int64_t>(std::clamp(kOperations / std::max(1.0, operations(1, p.n, p.k)), 4.0, 256.0));
}

struct Report {
    Problem problem;
    std::string device, why, kernel;
    double us = 0;
    int repeats = 0;
    Accuracy accuracy{};
    double bytes = 0;                    // that go over the memory's bus at least
    std::string form{}, layout{};        // of groups; of groups of K
    ProductKind kind{};                  // of one product
    std::vector<int64_t> group_sizes{};  // of a grouped product, in rows or in k

    bool right() const { return accuracy.of_bound <= 1; }
    double flop_per_us() const { return operations(problem.m, problem.n, problem.k) / us; }
    double bytes_per_us() const { return bytes / us; }
};

/// The line of a report that describes the product.
std::string product_text(const Report& r) {
    const auto& [m, n, k] = r.problem;
    const bool of_k = !r.layout.empty();
    std::string text = fmt::format("product  D[{}{}, {}] = A[{}, {}] * B[{}{}, {}]^T in e4m3, scales 1x128{}{}\n",
                                   of_k ? "group, " : "", m, n, m, k, r.form.empty() ? "" : "group, ", n, k,
                                   of_k || r.kind.row_b_scales ? "" : " and 128x128",
                                   r.kind.row_b_scales ? fmt::format(", D in {}", name_of(r.kind.out_dtype)) : "");
    if (r.group_sizes.empty()) return text;
    const auto [least, most] = std::ranges::minmax(r.group_sizes);
    text += fmt::format("groups   {} of {} to {} ", r.group_sizes.size(), least, most);
    return text + (of_k ? fmt::format("k, as {}\n", r.layout) : fmt::format("rows, told by {}\n", r.form));
}

void print_json(const Report& r) {
    nlohmann::ordered_json out = {{"shape", {r.problem.m, r.problem.n, r.problem.k}},
                                  {"device", r.device},
                                  {"kernel", r.kernel},
                                  {"us", r.us},
                                  {"repeats", r.repeats},
                                  {"tflop_per_s", r.flop_per_us() * 1e-6},
                                  {"gb_per_s", r.bytes_per_us() * 1e-3},
                                  {"error",
                                   {{"relative_rms", r.accuracy.relative_rms},
                                    {"worst", r.accuracy.worst},
                                    {"of_bound", r.accuracy.of_bound},
                                    {"rows", r.accuracy.rows},
                                    {"nan", r.accuracy.nan},
                                    {"nan_wrong", r.accuracy.nan_wrong}}},
                                  {"right", r.right()}};
    if (!r.form.empty()) out.update({{"form", r.form}, {"group_sizes", r.group_sizes}});
    if (!r.layout.empty()) out.update({{"layout", r.layout}, {"group_k", r.group_sizes}});
    if (r.kind.row_b_scales) out.update({{"row_b_scales", true}, {"out_dtype", name_of(r.kind.out_dtype)}});
    if (!r.why.empty()) out["why_no_gpu"] = r.why;
    std::cout << out.dump(2) << '\n';
}

/// Number of NaN values and whether they should be; the error is that of the others.
std::string nan_text(const Report& r) {
    const Accuracy& a = r.accuracy;
    if (a.nan == 0 && a.nan_wrong == 0) return {};
    return fmt::format("NaN      {} of {} values, {}\n", a.nan, a.rows * r.problem.n,
                       a.nan_wrong == 0
                           ? "as in the double sums"
                           : fmt::format("not as in the double sums: {} values differ in that", a.nan_wrong));
}

void print_text(const Report& r) {
    const int64_t rows = r.problem.m * (r.layout.empty() ? 1 : static_cast<int64_t>(r.group_sizes.size()));
    std::cout << fmt::format("device   {}\n", r.device);
    if (!r.why.empty()) std::cout << fmt::format("         {}\n", r.why);
    std::cout << product_text(r);
    std::cout << fmt::format("kernel   {}\n", r.kernel);
    std::cout << fmt::format("time     {} (median of {}), {}, {}\n", time_text(r.us), r.repeats,
                             rate_text(r.flop_per_us(), "FLOP/s"), rate_text(r.bytes_per_us(), "B/s"));
    std::cout << fmt::format(
        "error    {:.2e} relative RMS, {:.2e} of the largest value at worst; {} of {} rows, against double sums\n",
        r.accuracy.relative_rms, r.accuracy.worst, r.accuracy.rows, rows);
    std::cout << nan_text(r);
    std::cout << fmt::format("result   {}: {:.1f}% of the error bound at worst\n", r.right() ? "right" : "WRONG",
                             100 * r.accuracy.of_bound);
}

constexpr size_t kSteps = 4;  // of progress

/// A report with the fields that all products have.
Report report_of(const RunOptions& o, const Target& target, const Problem& p) {
    Report report{
        .problem = p, .device = target.name, .why = target.why, .kernel = "CPU, " + o.numerics, .repeats = o.repeats};
    if (target.gpu) report.device += ", " + target.gpu->name();
    return report;
}

GemmOptions gemm_options(const RunOptions& o) {
    GemmOptions options;
    options.numerics = kNumerics.at(o.numerics);
    options.config = o.config;
    return options;
}

Report run_dense(const RunOptions& o, Context& context, const Target& target, Progress& progress) {
    const ProductKind kind = o.kind.kind();
    progress.at(0, kSteps, "matrices");
    std::optional<Operand> a = read_operand("a", o.a, o.sfa), b = read_operand("b", o.b, o.sfb);
    const Problem p = problem_of(o, a, b, target.gpu != nullptr);
    if (!a) a = Operand{random_matrix(p.m, p.k, o.seed), {}};
    if (!b) b = Operand{random_matrix(p.n, p.k, o.seed + 1), {}};

    progress.at(1, kSteps, "quantising");
    Session session(context, target, std::move(*a), std::move(*b), kind);
    progress.at(2, kSteps, "multiplying");
    Report report = report_of(o, target, p);
    report.kind = kind;
    report.bytes = traffic_bytes(session.shape());
    report.us = session.time(gemm_options(o), o.repeats);
    if (target.gpu) report.kernel = o.config.empty() ? target.gpu->kernel_for(session.shape()) : o.config;
    progress.at(3, kSteps, "checking");
    report.accuracy = accuracy_of(session.fetch(), rows_to_check(p));
    if (!o.out.empty()) write_npy(o.out, session.d());
    return report;
}

/// The rest of a run with groups, of rows or of K.
template <typename Session>
Report run_session(const RunOptions& o, const Target& target, const Problem& p, Session& session, Progress& progress) {
    progress.at(2, kSteps, "multiplying");
    Report report = report_of(o, target, p);
    report.group_sizes = session.sizes();
    report.us = session.time(gemm_options(o), o.repeats);
    if (target.gpu) report.kernel = o.config.empty() ? target.gpu->kernel_for(session.shape()) : o.config;
    progress.at(3, kSteps, "checking");
    report.accuracy = accuracy_of(session.fetch(), rows_to_check(p));
    return report;
}

Report run_grouped(const RunOptions& o, Context& context, const Target& target, Progress& progress) {
    const Problem p = problem_of(o, {}, {}, target.gpu != nullptr);
    progress.at(1, kSteps, "quantising");
    GroupedSession session(context, target, {p.m, p.n, p.k}, o.groups, o.seed);
    Report report = run_session(o, target, p, session, progress);
    report.form = o.groups.form;
    report.bytes = traffic_bytes(GemmShape{.m = p.m, .n = p.n, .k = p.k}, busy_groups(session.sizes()));
    return report;
}

Report run_k_grouped(const RunOptions& o, Context& context, const Target& target, Progress& progress) {
    const Problem p = problem_of(o, {}, {}, target.gpu != nullptr);
    progress.at(1, kSteps, "quantising");
    KGroupedSession session(context, target, {p.m, p.n, p.k}, o.k_groups, o.seed);
    Report report = run_session(o, target, p, session, progress);
    report.layout = o.k_groups.layout;
    report.bytes = traffic_bytes(session.shape());
    return report;
}

ExitCode run(const RunOptions& o) {
    Progress progress;
    Context context;
    const Target target = choose_target(context, o.device);
    const auto run_it = o.groups.count > 0 ? run_grouped : o.k_groups.count > 0 ? run_k_grouped : run_dense;
    const Report report = run_it(o, context, target, progress);
    progress.pause();
    o.json ? print_json(report) : print_text(report);
    return report.right() ? kOk : kWrongResult;
}

}  // namespace

Run add_run(CLI::App& app) {
    auto o = std::make_shared<RunOptions>();
    CLI::App* command = app.add_subcommand("run", "Quantise two matrices, multiply them, check the result");
    command->add_option("shape", o->shape, "Without it what the files have, or what suits the device")
        ->expected(3)
        ->option_text("M N K")
        ->check(CLI::Range(int64_t{1}, int64_t{INT32_MAX}));
    CLI::Option* groups = add_group_options(*command, o->groups);
    CLI::Option* k_groups = add_k_group_options(*command, o->k_groups)->excludes(groups);
    add_kind_options(*command, o->kind, {groups, k_groups});
    command
        ->add_option("--a", o->a,
                     "A [M, K]: FILE.npy or FILE.safetensors:TENSOR of f32, f16, bf16 or e4m3; random without it")
        ->excludes(groups, k_groups);
    command->add_option("--b", o->b, "B [N, K], like A")->excludes(groups, k_groups);
    command->add_option("--sfa", o->sfa, "Scales of A, f32 [M, K/128], when its file has e4m3 codes; ones without it")
        ->excludes(groups, k_groups);
    command
        ->add_option("--sfb", o->sfb,
                     "Scales of B, f32 [N/128, K/128], with --row-b-scales [N, K/128], like those of A")
        ->excludes(groups, k_groups);
    command->add_option("--out", o->out, "Write D to this .npy file, as f32")->excludes(groups, k_groups);
    command->add_option("--device", o->device, "auto (a GPU when there is one), cpu, cuda or cuda:INDEX")
        ->capture_default_str();
    command->add_option("--numerics", o->numerics, "On the CPU: fast, exact (double sums) or hopper (the GPU's bits)")
        ->check(CLI::IsMember(kNumerics))
        ->capture_default_str();
    command->add_option("--config", o->config, "A kernel by name, as explain lists them");
    command->add_option("--repeats", o->repeats, "Runs to take the median of")
        ->check(CLI::Range(1, 1'000'000))
        ->capture_default_str();
    command->add_option("--seed", o->seed, "Of the random matrices and groups")
        ->check(fault_of_seed)
        ->capture_default_str();
    command->add_flag("--json", o->json, "Print JSON");
    return [o] { return run(*o); };
}

}  // namespace finegemm::cli
