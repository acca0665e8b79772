// Shapes of products, as the commands that time many of them take them. Layer cli.
#include "cli/bench/shapes.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <random>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <finegemm/error.h>

#include "cli/bench/model_layers.h"
#include "cli/text.h"
#include "plan/fields.h"

namespace finegemm::cli {

namespace {

Shape checked(int64_t m, int64_t n, int64_t k, const std::string& text) {
    for (const int64_t extent : {m, n, k})
        if (extent < 1 || extent > INT32_MAX)
            throw Error(
                Errc::InvalidArgument,
                fmt::format("shape '{}': must be MxNxK, like 128x2112x7168, each from 1 to {}", text, INT32_MAX));
    return {m, n, k};
}

Shape parse(const std::string& text) {
    if (text.starts_with("gemm ")) {
        const GemmShape line = plan::parse_shape(text);
        return {line.m, line.n, line.k, line};
    }
    const size_t first = text.find('x'), second = first == text.npos ? first : text.find('x', first + 1);
    if (second == text.npos) return checked(0, 0, 0, text);
    return checked(number_of(text.substr(0, first)), number_of(text.substr(first + 1, second - first - 1)),
                   number_of(text.substr(second + 1)), text);
}

/// Lines of a log, each with a problem or nothing before a #. Each problem counts once.
std::vector<Shape> read_lines(std::istream& file, const std::string& path) {
    std::vector<Shape> shapes;
    std::set<std::string> known;
    int number = 0;
    for (std::string line; std::getline(file, line);) {
        ++number;
        line.resize(std::min(line.find('#'), line.size()));
        line.resize(line.find_last_not_of(" \t\r") + 1);
        if (line.empty() || !known.insert(line).second) continue;
        try {
            shapes.push_back(parse(line));
        } catch (const Error& e) {
            throw Error(Errc::Io, fmt::format("{}: line {}: {}", path, number, e.what()));
        }
    }
    return shapes;
}

/// [[M, N, K], ...], with lines of problems among them, or what `bench --json` prints: {"rows": [{"shape": [M, N, K]},
/// ...]}; rows of another kind than "dense" are left out.
std::vector<Shape> read_json(std::istream& file, const std::string& path) {
    using nlohmann::json;
    const auto reject = [&](const std::string& what) {
        throw Error(Errc::Io, fmt::format("{}: {}; must be JSON of the form [[M, N, K], ...] or "
                                          "{{\"rows\": [{{\"shape\": [M, N, K]}}, ...]}}, or lines of a log",
                                          path, what));
    };
    std::vector<Shape> shapes;
    size_t rows = 0;  // that were begun
    try {
        const json content = json::parse(file);
        for (const json& row : content.is_object() ? content.at("rows") : content) {
            ++rows;
            if (row.is_string()) {
                shapes.push_back(parse(row.get<std::string>()));
                continue;
            }
            if (row.is_object() && row.value("kind", "dense") != "dense") continue;
            const auto shape = (row.is_object() ? row.at("shape") : row).get<std::array<int64_t, 3>>();
            shapes.push_back(checked(shape[0], shape[1], shape[2], fmt::format("{}", fmt::join(shape, "x"))));
        }
    } catch (const json::parse_error& e) {
        reject(fmt::format("is not JSON at byte {}", e.byte));
    } catch (const json::exception&) {  // of a type or a name that is not there
        reject(rows > 0 ? fmt::format("has another form in row {}", rows) : "has another form");
    }
    return shapes;
}

std::vector<Shape> read_shapes(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw Error(Errc::Io, fmt::format("{}: cannot be read; check the path", path));
    const int first = (file >> std::ws).peek();
    const bool lines = first == '#' || first == 'g' || (first >= '0' && first <= '9');
    file.clear();
    file.seekg(0);
    std::vector<Shape> shapes = lines ? read_lines(file, path) : read_json(file, path);
    if (shapes.empty()) throw Error(Errc::Io, fmt::format("{}: holds no shapes of products", path));
    return shapes;
}

std::vector<Shape> asked_for(const ShapeOptions& o) {
    if (o.table == "models") return models_table(o.seed);
    if (!o.table.empty()) return dense_table();
    if (!o.file.empty()) return read_shapes(o.file);
    std::vector<Shape> shapes;
    std::ranges::transform(o.shapes, std::back_inserter(shapes), parse);
    return shapes;
}

}  // namespace

std::string text_of(const Shape& shape) { return fmt::format("{}x{}x{}", shape.m, shape.n, shape.k); }

void add_shape_options(CLI::App& command, ShapeOptions& o, const std::string& without) {
    auto* shapes =
        command.add_option("--shapes", o.shapes, "MxNxK,... or lines as errors have them; " + without)->delimiter(',');
    auto* table = command
                      .add_option("--table", o.table,
                                  "A built-in list: dense (84 shapes of DeepSeek-V3) or models (417 of many models)")
                      ->check(CLI::IsMember({"dense", "models"}));
    auto* file = command.add_option("--file", o.file,
                                    "Lines of a log, or JSON: a list of shapes, or rows as bench --json prints them");
    shapes->excludes(table)->excludes(file);
    table->excludes(file);
    command.add_option("--seed", o.seed, "What --table models is drawn by")
        ->check(fault_of_seed)
        ->capture_default_str();
}

std::vector<Shape> dense_table() {
    constexpr int64_t kLayers[][2] = {{2112, 7168},  {576, 7168},  {24576, 1536}, {32768, 512},
                                      {7168, 16384}, {4096, 7168}, {7168, 2048}};
    std::vector<Shape> shapes;
    for (const auto& [n, k] : kLayers)
        for (const int64_t m : {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192}) shapes.push_back({m, n, k});
    return shapes;
}

std::vector<Shape> models_table(uint64_t seed) {
    // The standard says what the engine gives, but not what its distributions make of it.
    std::mt19937_64 engine(seed);
    const auto from = [&](int64_t low, int64_t high) {
        return low + static_cast<int64_t>(engine() % static_cast<uint64_t>(high - low + 1));
    };
    const auto rows = [&](int64_t low, int64_t high, int64_t padding) {
        const int64_t m = from(low, high);
        return from(0, 2) == 0 ? m : (m + padding - 1) / padding * padding;
    };
    std::vector<Shape> shapes;
    for (const ModelLayer& layer : model_layers()) {
        shapes.push_back({rows(1, 64, 8), layer.n, layer.k});
        shapes.push_back({rows(65, 512, 32), layer.n, layer.k});
        shapes.push_back({rows(513, 8192, 128), layer.n, layer.k});
    }
    constexpr int kPerKind = 16;
    for (int i = 0; i < kPerKind; ++i) {
        const auto n = [&](int64_t high) { return from(4, high / 16 - 1) * 16; };
        const auto k_tail = [&](int64_t high) { return from(2, high / 128 - 1) * 128 + from(1, 7) * 16; };
        shapes.push_back({rows(1, 64, 8), n(36864) + 8, from(2, 144) * 128});
        shapes.push_back({rows(1, 512, 32), n(36864), k_tail(18432)});
        shapes.push_back({rows(513, 4096, 128), n(8192) + 8, k_tail(8192)});
    }
    return shapes;
}

std::string text_of(const ShapeOptions& o) {
    if (o.table == "models") return fmt::format("--table models --seed {}", o.seed);
    if (!o.table.empty()) return "--table " + o.table;
    if (!o.file.empty()) return "--file";
    return o.shapes.empty() ? "the default" : "--shapes";
}

std::string source_of(const Shape& shape) {
    for (const ModelLayer& layer : model_layers())
        if (layer.n == shape.n && layer.k == shape.k) return layer.models;
    return {};
}

std::vector<Shape> shapes_of(const ShapeOptions& o, const std::vector<Shape>& otherwise,
                             const ProductOptions& product) {
    plan::check_fields(product.fields);
    std::vector<Shape> shapes = asked_for(o);
    if (shapes.empty()) shapes = otherwise;
    for (const Shape& shape : shapes) {
        try {
            plan::check_shape(product.over(shape.line).with(shape.m, shape.n, shape.k));
        } catch (const Error& e) {
            throw Error(e.code(), fmt::format("shape '{}': {}", text_of(shape), e.what()));
        }
    }
    return shapes;
}

}  // namespace finegemm::cli
