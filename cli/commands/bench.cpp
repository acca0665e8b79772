// finegemm bench: times of many shapes, beside cuBLASLt's. Layer cli.
#include <algorithm>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "cli/bench/bench_record.h"
#include "cli/bench/comparison.h"
#include "cli/bench/shapes.h"
#include "cli/commands.h"
#include "cli/commands/calls.h"
#include "cli/commands/ranks.h"
#include "cli/product.h"
#include "cli/progress.h"
#include "cli/random.h"
#include "cli/session.h"
#include "cli/text.h"
#include "peers/nvml.h"
#include "plan/fields.h"
#include "workbench/accuracy.h"

namespace finegemm::cli {

namespace {

struct BenchOptions {
    ShapeOptions shapes;
    ProductOptions product;
    std::string device = "auto", config, cublaslt, output, commit;
    int repeats = 0, ranks = 0;
    bool ep = false, peers = false, ceilings = false, json = false;
};

/// Measures the shapes: the CPU's one session after the other, or a comparison on a GPU.
class Bench {
public:
    Bench(const BenchOptions& o, const Front& front, Progress& progress)
        : options_(o), context_(front.options()), target_(choose_target(context_, o.device)) {
        plan::check_fields(o.product.fields);
        target_.poll = progress.polling(front.poll);
        if (o.repeats == 0) options_.repeats = target_.gpu ? 50 : 5;
        if ((o.peers || o.ceilings) && !target_.gpu)
            throw Error(Errc::Unsupported,
                        fmt::format("--{} needs a GPU and there is none to use{}{}; leave it out to time the CPU",
                                    o.peers ? "peers" : "ceilings", target_.why.empty() ? "" : ": ", target_.why));
        if (!target_.gpu) return;
        if (o.peers)
            target_.gpu->run([&] { cublas_ = std::make_unique<cublaslt::Library>(context_.options(), o.cublaslt); });
        comparison_ = std::make_unique<Comparison>(context_, *target_.gpu,
                                                   ComparisonOptions{o.config, options_.repeats, cublas_.get()});
        try {
            monitor_ = std::make_unique<nvml::Monitor>(target_.gpu->pci_bus_id());
        } catch (const Error& e) {
            no_monitor_ = e.what();
        }
    }

    const Gpu* gpu() const { return target_.gpu.get(); }

    Head head() const {
        if (!target_.gpu)
            return {.machine = "cpu",
                    .method = fmt::format("wall time; median of {}", options_.repeats),
                    .shapes = shapes_text()};
        Head head{
            .machine = target_.gpu->name(),
            .cuda = target_.gpu->cuda_version(),
            .method = fmt::format("finegemm bench: events around each launch, L2 emptied before it{}; median of {}",
                                  cublas_ ? ", implementations in turn on the same operands" : "", options_.repeats),
            .shapes = shapes_text(),
            .without_nvml = no_monitor_,
            .commit = options_.commit,
            .baselines = comparison_->baselines(options_.ceilings)};
        if (cublas_) head.cublaslt = cublas_->version();
        if (monitor_) head.driver = monitor_->driver_version(), head.reading = monitor_->read();
        return head;
    }

    Row measure(const Shape& shape) {
        const auto [m, n, k, line] = shape;
        const ProductOptions how = options_.product.over(line);
        const GemmShape product = how.with(m, n, k), plain{.m = m, .n = n, .k = k};
        if (!target_.gpu || plan::problem_of(product) != plan::problem_of(plain))
            return measure_alone(shape, how, product);
        Row row{.shape = shape, .entries = comparison_->of(shape)};
        if (monitor_) row.reading = monitor_->read();
        row.kernel = options_.config.empty() ? target_.gpu->kernel_for(product) : options_.config;
        return row;
    }

private:
    std::string shapes_text() const { return text_of(options_.shapes) + options_.product.text(); }

    GemmOptions gemm_options() const {
        GemmOptions options;
        options.config = options_.config;
        return options;
    }

    /// Without peers, but checked as a comparison checks: a wrong result has no time.
    Row measure_alone(const Shape& shape, const ProductOptions& how, const GemmShape& product) {
        constexpr int64_t kCheckedRows = 4;
        Session session(context_, target_, product, how, options_.shapes.seed);
        Row row{.shape = shape, .product = how, .busy = busy_groups(session.sizes()), .kernel = "CPU, fast"};
        Entry entry{.name = "finegemm", .us = session.time(gemm_options(), options_.repeats)};
        entry.error = accuracy_of(session.fetch(gemm_options()), kCheckedRows).of_bound;
        if (!(*entry.error <= 1))
            entry.gap = fmt::format("its result is WRONG: {:.3g} times the error bound", *entry.error);
        if (session.wrong_operands() > 0) entry.gap = wrong_operands_text(session.wrong_operands());
        row.entries.push_back(std::move(entry));
        if (!target_.gpu) return row;
        if (monitor_) row.reading = monitor_->read();
        row.kernel = options_.config.empty() ? target_.gpu->kernel_for(session.shape()) : options_.config;
        target_.gpu->release();
        return row;
    }

    BenchOptions options_;
    Context context_;
    Target target_;
    std::unique_ptr<cublaslt::Library> cublas_;
    std::unique_ptr<Comparison> comparison_;
    std::unique_ptr<nvml::Monitor> monitor_;
    std::string no_monitor_;
};

/// Each peer's time, and how many times as long as ours; a gap's dash.
std::string peers_text(const Row& row) {
    std::string text;
    for (size_t i = 1; i < row.entries.size(); ++i) {
        const Entry &ours = row.entries[0], &peer = row.entries[i];
        text += fmt::format(" {:>10}", peer.gap.empty() ? time_text(peer.us) : "-");
        const bool both = ours.gap.empty() && peer.gap.empty();
        text += fmt::format(" {:>5}", both ? fmt::format("{:.2f}", peer.us / ours.us) : "");
    }
    return text;
}

std::string text_of(const Row& row) {
    const auto [m, n, k, line] = row.shape;
    const Entry& ours = row.entries[0];
    const double us = ours.us;
    const bool timed = ours.gap.empty();
    const double bytes = traffic_bytes(row.product.with(m, n, k), row.busy);
    return fmt::format("{:>7} {:>7} {:>7} {:>10} {:>14} {:>12}{}  {}\n", m, n, k, timed ? time_text(us) : "WRONG",
                       timed ? rate_text(operations(m, n, k) / us, "FLOP/s") : "",
                       timed ? rate_text(bytes / us, "B/s") : "", peers_text(row), row.kernel);
}

void print_head(const Front& front, const Head& head, bool peers) {
    front.out << fmt::format("{}: {}\n", head.machine, head.method);
    if (peers)
        front.out << fmt::format(
            "cuBLASLt {}: times with one scale per tensor and with block scales, over FineGEMM's\n", head.cublaslt);
    front.out << fmt::format("{:>7} {:>7} {:>7} {:>10} {:>14} {:>12}{}  {}\n", "M", "N", "K", "time", "rate", "traffic",
                             peers ? fmt::format(" {:>10} {:>5} {:>10} {:>5}", "tensor", "", "block", "") : "",
                             "kernel");
}

/// Notes below the table: where there is no time, and why.
void print_gaps(const Front& front, const std::vector<Row>& rows) {
    for (const Row& row : rows)
        for (const Entry& entry : row.entries)
            if (!entry.gap.empty()) front.out << fmt::format("{} {}: {}\n", text_of(row.shape), entry.name, entry.gap);
}

ExitCode run(const BenchOptions& o, const Front& front) {
    if (o.ep)
        return bench_ranks({o.shapes.shapes, o.device, o.output, o.ranks, o.repeats, o.shapes.seed, o.json}, front);
    if (std::ranges::any_of(o.shapes.shapes, is_trial))
        return bench_calls(o.shapes.shapes, {o.device, o.repeats, o.shapes.seed, o.json}, front);
    Progress progress;
    Bench bench(o, front, progress);
    // On a CPU seconds, not hours.
    const std::vector<Shape> small = {{1, 1024, 1024}, {64, 1024, 1024}, {256, 1024, 2048}};
    const auto shapes = shapes_of(o.shapes, bench.gpu() ? dense_table() : small, o.product);
    Record record(bench.head(), o.output);
    if (!o.json) print_head(front, record.head(), o.peers);
    for (size_t i = 0; i < shapes.size(); ++i) {
        progress.at(i, shapes.size(), text_of(shapes[i]));
        front.poll(0);
        record.add(bench.measure(shapes[i]));
        progress.pause();
        if (!o.json) front.out << text_of(record.rows().back()) << std::flush;
    }
    if (o.json) front.out << record.text();
    else print_gaps(front, record.rows());
    return record.all_right() ? kOk : kWrongResult;
}

/// Behind all options that do not go with them.
void add_ranks_options(CLI::App& command, BenchOptions& o) {
    auto* ep = command.add_flag("--ep", o.ep,
                                "Layers of experts over ranks, 'moe' with the tokens of each and the experts of all: "
                                "the layer, the experts of a rank alone, the messages alone, and what of them shows");
    command.add_option("--ranks", o.ranks, "Of --ep: as many as there are GPUs, on a CPU two")
        ->needs(ep)
        ->check(CLI::Range(1, 64));
    for (const char* other : {"--peers", "--ceilings", "--config", "--table", "--file", "--form", "--layout"})
        ep->excludes(command.get_option(other));
    plan::fields([&](const plan::Field& field, auto&) { ep->excludes(command.get_option(option_of(field.name))); },
                 o.product.fields);
}

}  // namespace

Run add_bench(CLI::App& app) {
    auto o = std::make_shared<BenchOptions>();
    CLI::App* command = app.add_subcommand("bench", "Time many shapes, beside cuBLASLt where that is asked for");
    add_shape_options(*command, o->shapes,
                      "without any, the table on a GPU and three small ones on a CPU; or other calls: "
                      "'mqa_logits 2048x8192 64x128', 'mqa_topk 2048 of 2048x8192 64x128', "
                      "'prenorm_gemm 4096x24x7168', 'moe 64x7168x2048 256x8', "
                      "'four_bit_gemm 128x4096x7168 mxfp4 groups=8'");
    add_field_options(*command, o->product);
    add_group_options(*command, o->product);
    command->add_option("--device", o->device, "auto (a GPU when there is one), cpu, cuda or cuda:INDEX")
        ->capture_default_str();
    command->add_option("--config", o->config, "A kernel by name, for all shapes");
    command->add_option("--repeats", o->repeats, "Launches to take the median of; 50 on a GPU, 5 on a CPU")
        ->check(CLI::Range(1, 1'000'000));
    auto* peers = command->add_flag(
        "--peers", o->peers, "Time cuBLASLt too, with one scale per tensor and with block scales, in turn with ours");
    plan::fields([&](const plan::Field& field, auto&) { peers->excludes(command->get_option(option_of(field.name))); },
                 o->product.fields);
    command
        ->add_option("--cublaslt", o->cublaslt, "Its library, or a directory with it, to try before the usual places")
        ->needs(peers);
    command->add_flag("--ceilings", o->ceilings,
                      "Measure what bounds every kernel: a copy of 4 GB and, with --peers, cuBLASLt at 8192^3");
    add_ranks_options(*command, *o);
    command->add_option("--output", o->output, "Write the record to this file, as JSON; it is whole after each row");
    command->add_option("--commit", o->commit, "What the record calls the sources of this program");
    command->add_flag("--json", o->json, "Print the record instead of a table");
    return [o](const Front& front) { return run(*o, front); };
}

}  // namespace finegemm::cli
