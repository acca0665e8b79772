// finegemm bench: times of many shapes. Layer cli.
#include <iostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/shapes.h"
#include "cli/text.h"

namespace finegemm::cli {

namespace {

struct BenchOptions {
    ShapeOptions shapes;
    std::string device = "auto", config;
    int repeats = 0;
    bool json = false;
};

struct Row {
    Shape shape;
    std::string kernel;
    double us;

    double flop_per_us() const { return operations(shape.m, shape.n, shape.k) / us; }
    double bytes_per_us() const { return traffic_bytes(shape.m, shape.n, shape.k) / us; }
};

Row measure(Context& context, const Target& target, const Shape& shape, const std::string& config, int repeats) {
    const auto [m, n, k] = shape;
    Session session(context, target, {random_matrix(m, k, 1), {}}, {random_matrix(n, k, 2), {}});
    GemmOptions options;
    options.config = config;
    Row row{shape, "CPU, fast", session.time(options, repeats)};
    if (!target.gpu) return row;
    row.kernel = config.empty() ? target.gpu->kernel_for(m, n, k) : config;
    target.gpu->release();
    return row;
}

std::string text_of(const Row& row) {
    const auto [m, n, k] = row.shape;
    return fmt::format("{:>7} {:>7} {:>7} {:>10} {:>14} {:>12}  {}\n", m, n, k, time_text(row.us),
                       rate_text(row.flop_per_us(), "FLOP/s"), rate_text(row.bytes_per_us(), "B/s"), row.kernel);
}

nlohmann::ordered_json json_of(const Row& row) {
    return {{"kind", "dense"},
            {"shape", {row.shape.m, row.shape.n, row.shape.k}},
            {"us", {{"finegemm", row.us}}},
            {"kernel", row.kernel},
            {"tflop_per_s", row.flop_per_us() * 1e-6},
            {"gb_per_s", row.bytes_per_us() * 1e-3}};
}

ExitCode run(const BenchOptions& o) {
    Context context;
    const Target target = choose_target(context, o.device);
    // On a CPU seconds, not hours.
    const std::vector<Shape> small = {{1, 1024, 1024}, {64, 1024, 1024}, {256, 1024, 2048}};
    const auto shapes = shapes_of(o.shapes, target.gpu ? dense_table() : small);
    const int repeats = o.repeats > 0 ? o.repeats : target.gpu ? 50 : 5;
    const char* method = target.gpu ? "events around each launch, L2 emptied before it" : "wall time of each call";
    nlohmann::ordered_json out = {{"machine", target.gpu ? target.gpu->name() : "cpu"},
                                  {"method", fmt::format("{}; median of {}", method, repeats)},
                                  {"rows", nlohmann::ordered_json::array()}};
    if (!o.json)
        std::cout << fmt::format("{}: {}\n{:>7} {:>7} {:>7} {:>10} {:>14} {:>12}  {}\n",
                                 out["machine"].get<std::string>(), out["method"].get<std::string>(), "M", "N", "K",
                                 "time", "rate", "traffic", "kernel");
    Progress progress;
    for (size_t i = 0; i < shapes.size(); ++i) {
        progress.at(i, shapes.size(), text_of(shapes[i]));
        const Row row = measure(context, target, shapes[i], o.config, repeats);
        progress.pause();
        if (o.json) out["rows"].push_back(json_of(row));
        else std::cout << text_of(row) << std::flush;
    }
    if (o.json) std::cout << out.dump(2) << '\n';
    return kOk;
}

}  // namespace

Run add_bench(CLI::App& app) {
    auto o = std::make_shared<BenchOptions>();
    CLI::App* command = app.add_subcommand("bench", "Time many shapes");
    add_shape_options(*command, o->shapes, "without any, the table on a GPU and three small ones on a CPU");
    command->add_option("--device", o->device, "auto (a GPU when there is one), cpu, cuda or cuda:INDEX")
        ->capture_default_str();
    command->add_option("--config", o->config, "A kernel by name, for all shapes");
    command->add_option("--repeats", o->repeats, "Launches to take the median of; 50 on a GPU, 5 on a CPU")
        ->check(CLI::Range(1, 1'000'000));
    command->add_flag("--json", o->json, "Print JSON");
    return [o] { return run(*o); };
}

}  // namespace finegemm::cli
