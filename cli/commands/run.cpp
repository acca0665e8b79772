// finegemm run: quantise, multiply, compare, report. Layer cli.
#include <algorithm>
#include <map>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <finegemm/error.h>

#include "cli/commands.h"
#include "cli/commands/calls.h"
#include "cli/files/checkpoint.h"
#include "cli/files/output.h"
#include "cli/product.h"
#include "cli/progress.h"
#include "cli/random.h"
#include "cli/session.h"
#include "cli/text.h"
#include "plan/fields.h"
#include "workbench/accuracy.h"

namespace finegemm::cli {

namespace {

struct RunOptions {
    std::vector<std::string> shape;
    ProductOptions product;
    std::string a, b, a_dtype, b_dtype, sfa, sfb, out, device = "auto", numerics = "fast", config;
    int repeats = 5;
    uint64_t seed = 1;
    bool json = false;
};

const std::map<std::string, Numerics> kNumerics = {
    {"fast", Numerics::Fast}, {"exact", Numerics::Exact}, {"hopper", Numerics::Hopper}};

/// One side: its matrix, and what was found beside it in a checkpoint.
struct Side {
    std::optional<Operand> operand;  // none: random
    std::string found{};
};

Side read_side(const char* name, const std::string& values, const std::string& dtype, const std::string& scales,
               bool of_rows) {
    if (values.empty()) {
        if (!scales.empty())
            throw Error(Errc::InvalidArgument,
                        fmt::format("--sf{0}: is for e4m3 codes from a file; give --{0} too", name));
        return {};
    }
    const auto as = dtype.empty() ? std::optional<DType>() : types_by_name().at(dtype);
    Weights weights = read_weights(name_of_weights(values), as);
    Operand operand{std::move(weights.values), std::move(weights.scales)};
    const int64_t rows = operand.values.rows;
    if (operand.scales && of_rows) operand.scales = row_scales(*operand.scales, rows);
    if (scales.empty()) return {std::move(operand), std::move(weights.found)};
    operand.scales = read_scales(name_of_matrix(scales), rows, operand.values.cols);
    return {std::move(operand)};
}

/// What the files hold goes before what the device takes well; what was asked for must be the same as both.
GemmShape shape_of(const RunOptions& o, const std::optional<Operand>& a, const std::optional<Operand>& b, bool gpu) {
    const bool asked = !o.shape.empty();
    GemmShape s = asked ? parse_product(o.shape, o.product)
                  : gpu ? o.product.with(4096, 4096, 7168)
                        : o.product.with(256, 1024, 1024);
    const auto take = [&](const char* extent, const char* name, int64_t& ours, int64_t theirs) {
        if (asked && ours != theirs)
            throw Error(Errc::InvalidArgument,
                        fmt::format("{} is {}, but {} has {}; leave the shape out, files have their own", extent, ours,
                                    name, theirs));
        ours = theirs;
    };
    if (b) take("N", "--b", s.n, b->values.rows), take("K", "--b", s.k, b->values.cols);
    if (a) take("M", "--a", s.m, a->values.rows), take("K", "--a", s.k, a->values.cols);
    plan::check_shape(s);
    return s;
}

/// Rows of D whose check on the CPU takes about a second.
int64_t rows_to_check(const GemmShape& p) {
    constexpr double kOperations = 1e10;
    return static_cast<int64_t>(std::clamp(kOperations / std::max(1.0, operations(1, p.n, p.k)), 4.0, 256.0));
}

/// What the numbers of a file were taken for, as it does not say.
struct Guess {
    const char* name;  // of the option
    std::string untyped, dtype;
};

std::vector<Guess> guesses_of(const std::optional<Operand>& a, const std::optional<Operand>& b) {
    std::vector<Guess> guesses;
    for (const auto& [name, operand] : {std::pair("a", &a), std::pair("b", &b)})
        if (*operand && !(*operand)->values.untyped.empty())
            guesses.push_back({name, (*operand)->values.untyped, name_of((*operand)->values.dtype)});
    return guesses;
}

struct Report {
    GemmShape shape;
    std::string device, why, kernel;
    double us = 0;
    int repeats = 0;
    Accuracy accuracy{};
    double bytes = 0;                    // that go over the memory's bus at least
    std::string form{}, layout{};        // of groups; of groups of K
    std::vector<int64_t> group_sizes{};  // of a grouped product, in rows or in k
    int64_t wrong_operands = 0;          // codes and scales of the GPU that are not the CPU's
    std::optional<double> quantization_error{};
    std::vector<Guess> guesses{};
    std::map<std::string, std::string> found{};  // beside --a and --b in their checkpoints
    ProductOptions product{};

    bool right() const { return accuracy.of_bound <= 1 && wrong_operands == 0; }
    double flop_per_us() const { return operations(shape.m, shape.n, shape.k) / us; }
    double bytes_per_us() const { return bytes / us; }
};

/// Calls visit(argument, value) for those of the product's finish.
template <typename Visit>
void visit_arguments(const Report& r, Finish finish, const Visit& visit) {
    const Epilogue epilogue = r.product.epilogue_for(r.shape);
    plan::epilogue_arguments(
        [&](const plan::EpilogueArgument& x, const auto& value) {
            if (x.finish == finish) visit(x.name, value);
        },
        epilogue);
}

nlohmann::ordered_json arguments_json(const Report& r, Finish finish) {
    nlohmann::ordered_json out;
    visit_arguments(r, finish, [&]<typename T>(const char* name, const T& value) {
        if constexpr (std::is_same_v<T, std::optional<float>>) out[name] = value.value_or(0);
        else if constexpr (std::is_arithmetic_v<T>) out[name] = value;
        else if constexpr (!std::is_same_v<T, ConstStack> && !std::is_same_v<T, Stack>)
            out[name] = plan::is_given(value, {});
    });
    return out;
}

std::string arguments_text(const Report& r, Finish finish) {
    std::vector<std::string> words;
    const nlohmann::ordered_json arguments = arguments_json(r, finish);
    for (const auto& [name, value] : arguments.items())
        if (value.is_number()) words.push_back(fmt::format("{} {}", name, value.get<float>()));
        else if (value.get<bool>()) words.push_back(name);
    return fmt::format("{}", fmt::join(words, ", "));
}

/// The line of a report that describes the product.
std::string product_text(const Report& r) {
    const int64_t m = r.shape.m, n = r.shape.n, k = r.shape.k;
    const bool of_k = !r.layout.empty();
    const ElementType& type = plan::operand_type(r.shape);
    const int64_t width = r.product.whole_rows ? k : r.shape.a_mx ? 32 : 128;
    const std::string scales =
        type.scaled ? fmt::format(", scales 1x{}{}", width,
                                  r.shape.a_mx == r.shape.b_mx && (of_k || r.shape.row_b_scales || r.shape.b_mx) ? ""
                                  : r.shape.b_mx ? " and 1x32"
                                                 : " and 128x128")
                    : "";
    const bool says_d = !type.scaled || r.shape.row_b_scales || r.shape.out_dtype;
    const std::string types =
        fmt::format("{}{}{}{}", type.name, r.shape.dtype_of_b ? " by " + name_of(*r.shape.dtype_of_b) : "", scales,
                    says_d ? ", D in " + name_of(plan::result_type(r.shape)) : "");
    std::string text = fmt::format("product  D[{}{}, {}] = A[{}, {}] * B[{}{}, {}]^T in {}\n", of_k ? "group, " : "", m,
                                   plan::width_of_d(r.product.epilogue_for(r.shape), n), m, k,
                                   r.form.empty() ? "" : "group, ", n, k, types);
    if (r.shape.a_mn_major || r.shape.b_mn_major)
        text += fmt::format("stored   {}\n", !r.shape.a_mn_major  ? "B as [K, N]"
                                             : r.shape.b_mn_major ? "A as [K, M], B as [K, N]"
                                                                  : "A as [K, M]");
    if (const plan::FinishField* finish = plan::find_finish(r.shape))
        text += fmt::format("{:<8} {}\n", facts_of(finish->finish).name, arguments_text(r, finish->finish));
    if (r.group_sizes.empty()) return text;
    const auto [least, most] = std::ranges::minmax(r.group_sizes);
    text += fmt::format("groups   {} of {} to {} ", r.group_sizes.size(), least, most);
    return text + (of_k ? fmt::format("k, as {}\n", r.layout) : fmt::format("rows, told by {}\n", r.form));
}

void print_json(const Front& front, const Report& r) {
    nlohmann::ordered_json out = {{"shape", {r.shape.m, r.shape.n, r.shape.k}},
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
                                    {"nan_wrong", r.accuracy.nan_wrong},
                                    {"inf", r.accuracy.inf},
                                    {"inf_wrong", r.accuracy.inf_wrong},
                                    {"operands_wrong", r.wrong_operands}}},
                                  {"right", r.right()}};
    if (!r.form.empty()) out.update({{"form", r.form}, {"group_sizes", r.group_sizes}});
    if (!r.layout.empty()) out.update({{"layout", r.layout}, {"group_k", r.group_sizes}});
    if (r.shape.dtype) out["dtype"] = name_of(*r.shape.dtype);
    if (r.shape.dtype_of_b) out["dtype_of_b"] = name_of(*r.shape.dtype_of_b);
    if (r.product.whole_rows) out["whole_rows"] = true;
    if (r.shape.row_b_scales) out.update({{"row_b_scales", true}, {"out_dtype", name_of(plan::result_type(r.shape))}});
    for (const auto& [name, is_so] : {std::pair{"a_mx", r.shape.a_mx},
                                      {"b_mx", r.shape.b_mx},
                                      {"a_mn_major", r.shape.a_mn_major},
                                      {"b_mn_major", r.shape.b_mn_major}})
        if (is_so) out[name] = true;
    if (const plan::FinishField* finish = plan::find_finish(r.shape))
        out[facts_of(finish->finish).name] = arguments_json(r, finish->finish);
    for (const auto& [name, found] : r.found)
        if (!found.empty()) out["found"][name] = found;
    for (const Guess& g : r.guesses) out["taken_for"][g.name] = g.dtype;
    if (r.quantization_error) out["error"]["of_quantization"] = *r.quantization_error;
    if (!r.why.empty()) out["why_no_gpu"] = r.why;
    front.out << out.dump(2) << '\n';
}

/// Numbers of values that are not finite, and whether they should be; the error is that of the others.
std::string special_text(const Report& r) {
    const Accuracy& a = r.accuracy;
    std::string text;
    const auto add = [&](const char* what, int64_t count, int64_t wrong, const char* why) {
        if (count == 0 && wrong == 0) return;
        text += fmt::format("{:<8} {} of {} values, {}\n", what, count, a.rows * r.shape.n,
                            wrong == 0 ? why : fmt::format("{} values should not be so, or are not and should", wrong));
    };
    add("NaN", a.nan, a.nan_wrong, "as operands or sums beyond f32 make them");
    add("infinite", a.inf, a.inf_wrong, "as scales or sums beyond the type of D make them");
    return text;
}

void print_text(const Front& front, const Report& r) {
    const int64_t rows = r.shape.m * (r.layout.empty() ? 1 : static_cast<int64_t>(r.group_sizes.size()));
    front.out << fmt::format("device   {}\n", r.device);
    if (!r.why.empty()) front.out << fmt::format("         {}\n", r.why.substr(0, r.why.rfind("; ")));  // no advice
    front.out << product_text(r);
    for (const Guess& g : r.guesses)
        front.out << fmt::format("         --{0} has '{1}', taken for {2}{3}; --{0}-dtype says what it is\n", g.name,
                                 g.untyped, g.dtype, g.dtype == "e4m3" ? " (float8_e4m3fn)" : "");
    for (const auto& [name, found] : r.found)
        if (!found.empty()) front.out << fmt::format("         --{} has {}\n", name, found);
    front.out << fmt::format("kernel   {}\n", r.kernel);
    front.out << fmt::format("time     {} (median of {}), {}, {}\n", time_text(r.us), r.repeats,
                             rate_text(r.flop_per_us(), "FLOP/s"), rate_text(r.bytes_per_us(), "B/s"));
    front.out << fmt::format(
        "error    {:.2e} relative RMS, {:.2e} of the largest value at worst; {} of {} rows, against double sums\n",
        r.accuracy.relative_rms, r.accuracy.worst, r.accuracy.rows, rows);
    if (r.quantization_error)
        front.out << fmt::format("         {:.2e} relative RMS against A * B^T of the values before quantisation\n",
                                 *r.quantization_error);
    front.out << special_text(r);
    if (r.wrong_operands > 0)
        front.out << fmt::format("operands {} codes and scales are not what the CPU quantises\n", r.wrong_operands);
    front.out << fmt::format("result   {}: {:.1f}% of the error bound at worst\n", r.right() ? "right" : "WRONG",
                             100 * r.accuracy.of_bound);
}

constexpr size_t kSteps = 4;  // of progress

GemmOptions gemm_options(const RunOptions& o) {
    GemmOptions options;
    options.numerics = kNumerics.at(o.numerics);
    options.config = o.config;
    return options;
}

Session make_session(const RunOptions& o, Context& context, const Target& target, std::optional<Operand> a,
                     std::optional<Operand> b, const GemmShape& shape) {
    if (!a && !b) return {context, target, shape, o.product, o.seed};
    if (!a) a = Operand{random_matrix(shape.m, shape.k, o.seed), {}};
    if (!b) b = Operand{random_matrix(shape.n, shape.k, o.seed + 1), {}};
    return {context, target, std::move(*a), std::move(*b), shape, o.product, o.seed};
}

Report run_session(const RunOptions& o, Context& context, const Target& target, Progress& progress) {
    progress.at(0, kSteps, "matrices");
    std::optional<OutputFile> out;
    if (!o.out.empty()) out.emplace(o.out);
    auto [a, a_found] = read_side("a", o.a, o.a_dtype, o.sfa, true);
    auto [b, b_found] = read_side("b", o.b, o.b_dtype, o.sfb, o.product.fields.row_b_scales);
    GemmShape shape = shape_of(o, a, b, target.gpu != nullptr);
    const std::vector<Guess> guesses = guesses_of(a, b);
    if (out && pairs_columns(plan::finish_of(shape)))
        throw Error(Errc::InvalidArgument, "--out: is given, but D is codes with scales; leave it out");
    progress.at(1, kSteps, "quantising");
    Session session = make_session(o, context, target, std::move(a), std::move(b), shape);
    shape.row_b_scales = session.shape().row_b_scales;  // scales from a file say it by their shape
    progress.at(2, kSteps, "multiplying");
    Report report{.shape = shape,
                  .device = target.name,
                  .why = target.why,
                  .kernel = "CPU, " + o.numerics,
                  .us = session.time(gemm_options(o), o.repeats),
                  .repeats = o.repeats,
                  .bytes = traffic_bytes(shape, busy_groups(session.sizes())),
                  .form = shape.groups ? o.product.form : "",
                  .layout = shape.k_groups ? o.product.layout : "",
                  .group_sizes = session.sizes(),
                  .guesses = guesses,
                  .found = {{"a", a_found}, {"b", b_found}},
                  .product = o.product};
    if (target.gpu) {
        report.device += ", " + target.gpu->name();
        report.kernel = o.config.empty() ? target.gpu->kernel_for(session.shape()) : o.config;
    }
    progress.at(3, kSteps, "checking");
    const int64_t rows = rows_to_check(shape);
    report.accuracy = accuracy_of(session.fetch(gemm_options(o)), rows);
    report.wrong_operands = session.wrong_operands();
    report.quantization_error = session.error_of_quantization(rows);
    if (out) out->write(session.d());
    return report;
}

/// Options of gemm and its kind, of which other calls have none.
void check_no_options_of_gemm(const RunOptions& o) {
    const auto refuse = [&](const std::string& given) {
        throw Error(Errc::InvalidArgument,
                    fmt::format("{}: is for gemm and its kind, not for '{}'; leave it out", given, o.shape[0]));
    };
    for (const auto& [name, given] : {std::pair("--a", o.a), {"--b", o.b}, {"--out", o.out}, {"--config", o.config}})
        if (!given.empty()) refuse(name);
    if (const std::string given = o.product.text(); !given.empty()) refuse(given.substr(1));
}

ExitCode run(RunOptions o, const Front& front) {
    if (o.shape.size() == 1 && is_trial(o.shape[0])) {
        check_no_options_of_gemm(o);
        return run_call(o.shape[0], {o.device, o.repeats, o.seed, o.json}, front);
    }
    if (o.shape.size() == 1) o.product = o.product.over(plan::parse_shape(o.shape[0]));
    Progress progress;
    Context context(front.options());
    Target target = choose_target(context, o.device);
    target.poll = progress.polling(front.poll);
    const Report report = run_session(o, context, target, progress);
    progress.pause();
    o.json ? print_json(front, report) : print_text(front, report);
    return report.right() ? kOk : kWrongResult;
}

}  // namespace

Run add_run(CLI::App& app) {
    auto o = std::make_shared<RunOptions>();
    CLI::App* command = app.add_subcommand("run", "Quantise two matrices, multiply them, check the result");
    command
        ->add_option(
            "shape", o->shape,
            "M N K, or a line as errors have them: 'gemm 64x2112x7168 groups=4'; without it what the files have, "
            "or what suits the device; or other calls: 'mqa_logits 2048x8192 64x128', "
            "'mqa_topk 2048 of 2048x8192 64x128', 'prenorm_gemm 4096x24x7168 slices=16', "
            "'moe 64x7168x2048 256x8', 'four_bit_gemm 128x4096x7168 mxfp4 groups=8'")
        ->expected(1, 3)
        ->option_text("M N K");
    add_field_options(*command, o->product);
    command->add_flag("--whole-rows", o->product.whole_rows, "Scales of rows are for all of K, not for 128 of it");
    add_group_options(*command, o->product);
    add_epilogue_options(*command, o->product);
    const auto dense_only = [&](const char* name, std::string& to, const char* meaning) {
        CLI::Option* const option = command->add_option(name, to, meaning);
        for (const char* other : {"--groups", "--k-groups", "--summed"}) option->excludes(command->get_option(other));
    };
    dense_only(
        "--a", o->a,
        "A [M, K]: FILE.npy, FILE.safetensors:TENSOR or FOLDER:TENSOR of f32, f16, bf16 or e4m3; random without it");
    dense_only("--b", o->b, "B [N, K], like A");
    for (const auto& [name, of, to] : {std::tuple("--a-dtype", "--a", &o->a_dtype), {"--b-dtype", "--b", &o->b_dtype}})
        command
            ->add_option(name, *to,
                         fmt::format("The type of {}'s numbers, where its file says only how wide they are", of))
            ->check(CLI::IsMember(types_by_name()))
            ->needs(command->get_option(of));
    dense_only("--sfa", o->sfa,
               "Scales of A, [M, K/128], when its file has e4m3 codes; without it those of its checkpoint, or ones");
    dense_only("--sfb", o->sfb, "Scales of B, [N/128, K/128], with --row-b-scales [N, K/128], like those of A");
    dense_only("--out", o->out, "Write D to FILE.npy, bf16 as f32, or to FILE.safetensors:TENSOR");
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
    return [o](const Front& front) { return run(*o, front); };
}

}  // namespace finegemm::cli
