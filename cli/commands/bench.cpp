// finegemm bench: times of many shapes. Layer cli.
#include <fstream>
#include <iostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <finegemm/error.h>

#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/text.h"

namespace finegemm::cli {

namespace {

struct Shape {
    int64_t m, n, k;
};

struct BenchOptions {
    std::vector<std::string> shapes;
    std::string table, file, device = "auto", config;
    int repeats = 0;
    bool json = false;
};

Shape checked(int64_t m, int64_t n, int64_t k, const std::string& text) {
    for (const int64_t extent : {m, n, k})
        if (extent < 1 || extent > INT32_MAX)
            throw Error(
                Errc::InvalidArgument,
                fmt::format("shape '{}': must be MxNxK, like 128x2112x7168, each from 1 to {}", text, INT32_MAX));
    return {m, n, k};
}

Shape parse(const std::string& text) {
    const size_t first = text.find('x'), second = first == text.npos ? first : text.find('x', first + 1);
    if (second == text.npos) return checked(0, 0, 0, text);
    return checked(number_of(text.substr(0, first)), number_of(text.substr(first + 1, second - first - 1)),
                   number_of(text.substr(second + 1)), text);
}

/// Layers of DeepSeek-V3, for which others have published figures.
std::vector<Shape> dense_table() {
    constexpr int64_t kLayers[][2] = {{2112, 7168},  {576, 7168},  {24576, 1536}, {32768, 512},
                                      {7168, 16384}, {4096, 7168}, {7168, 2048}};
    std::vector<Shape> shapes;
    for (const auto& [n, k] : kLayers)
        for (const int64_t m : {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192}) shapes.push_back({m, n, k});
    return shapes;
}

/// [[M, N, K], ...], or what `bench --json` prints: {"rows": [{"shape": [M, N, K]}, ...]}; rows of another kind than
/// "dense" are left out.
std::vector<Shape> read_shapes(const std::string& path) {
    using nlohmann::json;
    std::ifstream file(path);
    if (!file) throw Error(Errc::Io, fmt::format("{}: cannot be read; check the path", path));
    std::vector<Shape> shapes;
    try {
        const json content = json::parse(file);
        for (const json& row : content.is_object() ? content.at("rows") : content) {
            if (row.is_object() && row.value("kind", "dense") != "dense") continue;
            const auto shape = (row.is_object() ? row.at("shape") : row).get<std::array<int64_t, 3>>();
            shapes.push_back(checked(shape[0], shape[1], shape[2], fmt::format("{}", fmt::join(shape, "x"))));
        }
    } catch (const json::exception& e) {
        throw Error(
            Errc::Io,
            fmt::format(
                "{}: must be JSON of the form [[M, N, K], ...] or {{\"rows\": [{{\"shape\": [M, N, K]}}]}} ({})", path,
                e.what()));
    }
    if (shapes.empty()) throw Error(Errc::Io, fmt::format("{}: holds no dense shapes", path));
    return shapes;
}

std::vector<Shape> shapes_of(const BenchOptions& o, bool gpu) {
    std::vector<Shape> shapes;
    for (const std::string& text : o.shapes) shapes.push_back(parse(text));
    if (!o.file.empty()) shapes = read_shapes(o.file);
    if (!shapes.empty()) return shapes;
    if (!o.table.empty() || gpu) return dense_table();
    return {{1, 1024, 1024}, {64, 1024, 1024}, {256, 1024, 2048}};  // seconds, not hours
}

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
    const auto shapes = shapes_of(o, target.gpu != nullptr);
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
        progress.at(i, shapes.size(), fmt::format("{}x{}x{}", shapes[i].m, shapes[i].n, shapes[i].k));
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
    auto* shapes = command
                       ->add_option("--shapes", o->shapes,
                                    "MxNxK,...; without any, the table on a GPU and three small ones on a CPU")
                       ->delimiter(',');
    auto* table =
        command->add_option("--table", o->table, "A built-in list of shapes: dense")->check(CLI::IsMember({"dense"}));
    auto* file =
        command->add_option("--file", o->file, "JSON with a list of shapes, or with rows as --json prints them");
    shapes->excludes(table)->excludes(file);
    table->excludes(file);
    command->add_option("--device", o->device, "auto (a GPU when there is one), cpu, cuda or cuda:INDEX")
        ->capture_default_str();
    command->add_option("--config", o->config, "A kernel by name, for all shapes");
    command->add_option("--repeats", o->repeats, "Launches to take the median of; 50 on a GPU, 5 on a CPU")
        ->check(CLI::Range(1, 1'000'000));
    command->add_flag("--json", o->json, "Print JSON");
    return [o] { return run(*o); };
}

}  // namespace finegemm::cli
