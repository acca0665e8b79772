// finegemm bench: times of many shapes, beside cuBLASLt's. Layer cli.
#include <iostream>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "api/accuracy.h"
#include "api/argument.h"
#include "cli/bench_record.h"
#include "cli/commands.h"
#include "cli/comparison.h"
#include "cli/grouped_session.h"
#include "cli/k_grouped_session.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/shapes.h"
#include "cli/text.h"
#include "peers/nvml.h"

namespace finegemm::cli {

namespace {

struct BenchOptions {
    ShapeOptions shapes;
    GroupOptions groups;
    KGroupOptions k_groups;
    KindOptions kind;
    std::string device = "auto", config, cublaslt, output, commit;
    int repeats = 0;
    bool peers = false, ceilings = false, json = false;
};

/// Measures the shapes: the CPU's one session after the other, or a comparison on a GPU.
class Bench {
public:
    explicit Bench(const BenchOptions& o)
        : options_(o), kind_(o.kind.kind()), target_(choose_target(context_, o.device)) {
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
        const auto [m, n, k] = shape;
        const uint64_t seed = options_.shapes.seed;
        if (const GroupOptions& o = options_.groups; o.count > 0) {
            GroupedSession session(context_, target_, shape, o, seed);
            return measure_alone(session, {.shape = shape, .groups = RowGroups{"grouped", "form", o.form, o.count}});
        }
        if (const KGroupOptions& o = options_.k_groups; o.count > 0) {
            KGroupedSession session(context_, target_, shape, o, seed);
            return measure_alone(session,
                                 {.shape = shape, .groups = RowGroups{"k_grouped", "layout", o.layout, o.count}});
        }
        if (kind_.row_b_scales) {
            Session session(context_, target_, {random_matrix(m, k, seed), {}}, {random_matrix(n, k, seed + 1), {}},
                            kind_);
            return measure_alone(session, {.shape = shape, .kind = kind_});
        }
        if (!target_.gpu) return measure_on_cpu(shape);
        Row row{.shape = shape, .entries = comparison_->of(shape)};
        if (monitor_) row.reading = monitor_->read();
        const GemmShape product{.m = m, .n = n, .k = k};
        row.kernel = options_.config.empty() ? target_.gpu->kernel_for(product) : options_.config;
        return row;
    }

private:
    std::string shapes_text() const {
        const auto& [groups, form] = options_.groups;
        const auto& [k_groups, layout] = options_.k_groups;
        std::string text = text_of(options_.shapes);
        if (groups > 0) text += fmt::format(" --groups {} --form {}", groups, form);
        if (k_groups > 0) text += fmt::format(" --k-groups {} --layout {}", k_groups, layout);
        if (kind_.row_b_scales) text += fmt::format(" --row-b-scales --out-dtype {}", name_of(kind_.out_dtype));
        return text;
    }

    GemmOptions gemm_options() const {
        GemmOptions options;
        options.config = options_.config;
        return options;
    }

    /// Without peers, but checked as a comparison checks: a wrong result has no time. `row`: what is measured.
    template <typename Session>
    Row measure_alone(Session& session, Row row) {
        constexpr int64_t kRowsToCheck = 4;
        if constexpr (requires { session.sizes(); })
            if (row.groups) row.groups->busy = busy_groups(session.sizes());
        row.kernel = "CPU, fast";
        Entry entry{.name = "finegemm", .us = session.time(gemm_options(), options_.repeats)};
        entry.error = accuracy_of(session.fetch(), kRowsToCheck).of_bound;
        if (!(*entry.error <= 1))
            entry.gap = fmt::format("its result is WRONG: {:.3g} times the error bound", *entry.error);
        row.entries.push_back(std::move(entry));
        if (!target_.gpu) return row;
        if (monitor_) row.reading = monitor_->read();
        row.kernel = options_.config.empty() ? target_.gpu->kernel_for(session.shape()) : options_.config;
        target_.gpu->release();
        return row;
    }

    Row measure_on_cpu(const Shape& shape) {
        const auto [m, n, k] = shape;
        Session session(context_, target_, {random_matrix(m, k, 1), {}}, {random_matrix(n, k, 2), {}});
        return {.shape = shape,
                .kernel = "CPU, fast",
                .entries = {{.name = "finegemm", .us = session.time(gemm_options(), options_.repeats)}}};
    }

    BenchOptions options_;
    ProductKind kind_;
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
    const auto [m, n, k] = row.shape;
    const Entry& ours = row.entries[0];
    const double us = ours.us;
    const bool timed = ours.gap.empty();
    const bool of_k = row.groups && row.groups->kind == "k_grouped";
    const GemmShape product{
        .m = m, .n = n, .k = k, .row_b_scales = row.kind.row_b_scales, .out_dtype = row.kind.out_dtype};
    const double bytes = of_k ? traffic_bytes(KGroupedShape{m, n, k, row.groups->count})
                              : traffic_bytes(product, row.groups ? row.groups->busy : 1);
    return fmt::format("{:>7} {:>7} {:>7} {:>10} {:>14} {:>12}{}  {}\n", m, n, k, timed ? time_text(us) : "WRONG",
                       timed ? rate_text(operations(m, n, k) / us, "FLOP/s") : "",
                       timed ? rate_text(bytes / us, "B/s") : "", peers_text(row), row.kernel);
}

void print_head(const Head& head, bool peers) {
    std::cout << fmt::format("{}: {}\n", head.machine, head.method);
    if (peers)
        std::cout << fmt::format(
            "cuBLASLt {}: times with one scale per tensor and with block scales, over FineGEMM's\n", head.cublaslt);
    std::cout << fmt::format("{:>7} {:>7} {:>7} {:>10} {:>14} {:>12}{}  {}\n", "M", "N", "K", "time", "rate", "traffic",
                             peers ? fmt::format(" {:>10} {:>5} {:>10} {:>5}", "tensor", "", "block", "") : "",
                             "kernel");
}

/// Notes below the table: where there is no time, and why.
void print_gaps(const std::vector<Row>& rows) {
    for (const Row& row : rows)
        for (const Entry& entry : row.entries)
            if (!entry.gap.empty()) std::cout << fmt::format("{} {}: {}\n", text_of(row.shape), entry.name, entry.gap);
}

ExitCode run(const BenchOptions& o) {
    Bench bench(o);
    // On a CPU seconds, not hours.
    const std::vector<Shape> small = {{1, 1024, 1024}, {64, 1024, 1024}, {256, 1024, 2048}};
    const auto shapes = shapes_of(o.shapes, bench.gpu() ? dense_table() : small);
    Record record(bench.head(), o.output);
    if (!o.json) print_head(record.head(), o.peers);
    Progress progress;
    for (size_t i = 0; i < shapes.size(); ++i) {
        progress.at(i, shapes.size(), text_of(shapes[i]));
        record.add(bench.measure(shapes[i]));
        progress.pause();
        if (!o.json) std::cout << text_of(record.rows().back()) << std::flush;
    }
    if (o.json) std::cout << record.text();
    else print_gaps(record.rows());
    return record.all_right() ? kOk : kWrongResult;
}

}  // namespace

Run add_bench(CLI::App& app) {
    auto o = std::make_shared<BenchOptions>();
    CLI::App* command = app.add_subcommand("bench", "Time many shapes, beside cuBLASLt where that is asked for");
    add_shape_options(*command, o->shapes, "without any, the table on a GPU and three small ones on a CPU");
    CLI::Option* groups = add_group_options(*command, o->groups);
    CLI::Option* k_groups = add_k_group_options(*command, o->k_groups)->excludes(groups);
    add_kind_options(*command, o->kind, {groups, k_groups});
    command->add_option("--device", o->device, "auto (a GPU when there is one), cpu, cuda or cuda:INDEX")
        ->capture_default_str();
    command->add_option("--config", o->config, "A kernel by name, for all shapes");
    command->add_option("--repeats", o->repeats, "Launches to take the median of; 50 on a GPU, 5 on a CPU")
        ->check(CLI::Range(1, 1'000'000));
    auto* peers = command->add_flag(
        "--peers", o->peers, "Time cuBLASLt too, with one scale per tensor and with block scales, in turn with ours");
    peers->excludes(groups, k_groups, command->get_option("--row-b-scales"));
    command
        ->add_option("--cublaslt", o->cublaslt, "Its library, or a directory with it, to try before the usual places")
        ->needs(peers);
    command->add_flag("--ceilings", o->ceilings,
                      "Measure what bounds every kernel: a copy of 4 GB and, with --peers, cuBLASLt at 8192^3");
    command->add_option("--output", o->output, "Write the record to this file, as JSON; it is whole after each row");
    command->add_option("--commit", o->commit, "What the record calls the sources of this program");
    command->add_flag("--json", o->json, "Print the record instead of a table");
    return [o] { return run(*o); };
}

}  // namespace finegemm::cli
