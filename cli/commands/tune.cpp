// finegemm tune: which kernel is the fastest for a shape on this GPU, as a table that contexts load. Layer cli.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <finegemm/error.h>

#include "cli/bench/shapes.h"
#include "cli/bench/trial.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/text.h"
#include "workbench/tuner.h"

namespace finegemm::cli {

namespace {

struct TuneOptions {
    ShapeOptions shapes;
    ProductOptions product;
    std::string device = "cuda", output;
    int repeats = 50;
    size_t top = SIZE_MAX;
    bool json = false;
};

constexpr fmt::string_view kTableRow = "{:>7} {:>7} {:>7}  {:<24} {:>10}  {:<24} {:>10} {:>7}\n";

std::vector<TimedKernel> measure(const Target& target, Session& session, const std::vector<std::string>& kernels,
                                 int repeats) {
    std::vector<std::function<void()>> calls;
    for (const std::string& kernel : kernels) calls.push_back(session.call({.config = kernel}));
    const std::vector<double> times = target.gpu->time(repeats, calls);
    std::vector<TimedKernel> timed;
    timed.reserve(kernels.size());
    for (size_t i = 0; i < kernels.size(); ++i) timed.push_back({kernels[i], times[i]});
    return timed;
}

std::string text_of(const Shape& shape, const Tuned& t) {
    return fmt::format(fmt::runtime(kTableRow), shape.m, shape.n, shape.k, t.fastest.name, time_text(t.fastest.us),
                       t.usual.name, time_text(t.usual.us), t.recorded ? fmt::format("{:.1f}%", 100 * t.gain()) : "-");
}

nlohmann::ordered_json json_of(const Shape& shape, const GemmShape& asked, const Tuned& t,
                               const std::vector<TimedKernel>& times) {
    nlohmann::ordered_json us;
    for (const TimedKernel& k : times) us[k.name] = k.us;
    return {{"kind", kind_of(asked)},
            {"shape", {shape.m, shape.n, shape.k}},
            {"problem", text_of(plan::problem_of(asked))},
            {"fastest", t.fastest.name},
            {"usual", t.usual.name},
            {"gain", t.gain()},
            {"recorded", t.recorded},
            {"us", us}};
}

/// A GPU, or an error that says why there is none.
Target choose_gpu(Context& context, const std::string& wish) {
    Target target = choose_target(context, wish);
    if (!target.gpu)
        throw Error(Errc::Unsupported,
                    fmt::format("tune: measures on a GPU, and --device '{}' is none{}; pass cuda or cuda:INDEX", wish,
                                target.why.empty() ? "" : " (" + target.why + ")"));
    return target;
}

/// Calls besides those of gemm and its kind have one kernel, or a planner that reads no table.
void check_has_choice(const std::vector<std::string>& lines) {
    if (const auto other = std::ranges::find_if(lines, is_trial); other != lines.end())
        throw Error(Errc::InvalidArgument,
                    fmt::format("shapes: '{}' has no kernels that a plan table chooses from; leave it out, or time it "
                                "with bench",
                                *other));
}

/// The plan table is written after each shape, so that what was measured stays when the rest is given up.
ExitCode run(const TuneOptions& o, const Front& front) {
    check_has_choice(o.shapes.shapes);
    const auto shapes = shapes_of(o.shapes, dense_table(), o.product);
    Options options = front.options();
    const std::string file = !o.output.empty()             ? o.output
                             : !options.plan_table.empty() ? options.plan_table
                                                           : "plan_table.json";
    options.plan_table.clear();  // calls name their kernels, and a table with kernels that are gone is to be mended
    Context context(options);
    Target target = choose_gpu(context, o.device);
    Tuner tuner(target.gpu->spec(), file);
    tuner.write();  // a file that cannot be written is known before the long work
    ProductOptions product = o.product;
    product.fields.batch_invariant |= options.batch_invariant;

    const std::string machine = target.gpu->name(),
                      method = fmt::format(
                          "kernels in turn, events around each launch, L2 emptied before it; "
                          "median of {}",
                          o.repeats);
    if (!o.json)
        front.out << fmt::format("{}: {}\n", machine, method)
                  << fmt::format(fmt::runtime(kTableRow), "M", "N", "K", "fastest kernel", "time", "usual kernel",
                                 "time", "gain");
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    Progress progress;
    target.poll = progress.polling(front.poll);
    int recorded = 0;
    for (size_t i = 0; i < shapes.size(); ++i) {
        const auto& [m, n, k, line] = shapes[i];
        const ProductOptions how = product.over(line);
        Session session(context, target, how.with(m, n, k), how, o.shapes.seed);
        GemmShape asked = line.m > 0 ? how.with(m, n, k) : session.shape();
        asked.expected_m = how.fields.expected_m;  // as calls say it, whatever is expected here
        const auto kernels = tuner.kernels(asked, o.top);
        progress.at(i, shapes.size(), fmt::format("{}, {} kernels", text_of(shapes[i]), kernels.size()));
        front.poll(0);
        const auto times = measure(target, session, kernels, o.repeats);
        target.gpu->release();
        const Tuned tuned = tuner.record(asked, times);
        tuner.write();
        progress.pause();
        recorded += tuned.recorded;
        if (o.json) rows.push_back(json_of(shapes[i], asked, tuned, times));
        else front.out << text_of(shapes[i], tuned) << std::flush;
    }
    if (o.json) {
        const nlohmann::ordered_json out = {
            {"machine", machine}, {"method", method}, {"plan_table", file}, {"rows", rows}};
        front.out << out.dump(2) << '\n';
    } else {
        front.out << fmt::format("{} of {} shapes have an entry in {}; FINEGEMM_PLAN_TABLE={} makes calls follow it\n",
                                 recorded, shapes.size(), file, file);
    }
    return kOk;
}

}  // namespace

Run add_tune(CLI::App& app) {
    auto o = std::make_shared<TuneOptions>();
    CLI::App* command = app.add_subcommand("tune", "Measure kernels on this GPU, write a plan table of the fastest");
    command->footer(fmt::format(
        "A shape gets an entry where its usual kernel takes more than {:.1f}% longer than the fastest; else an older\n"
        "entry is dropped. FINEGEMM_PLAN_TABLE=FILE makes calls follow the plan table; explain says where they do.",
        100 * Tuner::kLeastGain));
    add_shape_options(*command, o->shapes, "without any, those of --table dense");
    command->add_option("--device", o->device, "cuda (the first GPU) or cuda:INDEX")->capture_default_str();
    command->add_option("--repeats", o->repeats, "Launches of each kernel to take the median of")
        ->check(CLI::Range(1, 1'000'000))
        ->capture_default_str();
    command
        ->add_option("--top", o->top,
                     "Measure only so many kernels, the usual one and the cheapest by the model; without it all")
        ->check(CLI::Range(1, 1000));
    add_field_options(*command, o->product);
    add_group_options(*command, o->product);
    command->add_option("--output", o->output,
                        "The plan table, which keeps its entries for other shapes; without it the file of "
                        "FINEGEMM_PLAN_TABLE, else plan_table.json");
    command->add_flag("--json", o->json, "Print JSON, with the times of all kernels");
    return [o](const Front& front) { return run(*o, front); };
}

}  // namespace finegemm::cli
