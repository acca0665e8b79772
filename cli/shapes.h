// Shapes of products, as the commands that time many of them take them. Layer cli.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace finegemm::cli {

struct Shape {
    int64_t m, n, k;
};

/// "128x2112x7168"
std::string text_of(const Shape& shape);

/// What --shapes, --table and --file say; at most one of them is given.
struct ShapeOptions {
    std::vector<std::string> shapes;
    std::string table, file;
};
/// `without`: what the help says of a call that gives none of them.
void add_shape_options(CLI::App& command, ShapeOptions& o, const std::string& without);

/// Layers of DeepSeek-V3, for which others have published figures.
std::vector<Shape> dense_table();

/// Those that were asked for, or `otherwise`. Throws Error(InvalidArgument) for a text that is no shape, Error(Io) for
/// a file without shapes.
std::vector<Shape> shapes_of(const ShapeOptions& o, const std::vector<Shape>& otherwise);

}  // namespace finegemm::cli
