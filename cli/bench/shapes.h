// Shapes of products, as the commands that time many of them take them. Layer cli.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/product.h"

namespace finegemm::cli {

struct Shape {
    int64_t m, n, k;
    GemmShape line{};  // of a shape that was given as the line of a problem: its fields
};

/// "128x2112x7168"
std::string text_of(const Shape& shape);

/// Options --shapes, each MxNxK or the line of a problem, --table and --file; at most one of them is given.
struct ShapeOptions {
    std::vector<std::string> shapes;
    std::string table, file;
    uint64_t seed = 1;  // of the table "models"
};
/// `without`: what the help says of a call that gives none of them.
void add_shape_options(CLI::App& command, ShapeOptions& o, const std::string& without);

/// Layers of DeepSeek-V3, for which others have published figures.
std::vector<Shape> dense_table();

/// Shapes that servers of published models meet: for each of their layers (cli/model_layers.h) an M of a decoding step,
/// of a larger batch and of a prompt, and after them N that are 8 more than a multiple of 16, and K with a last block
/// of scales that is not full. A third of all M may be any number, odd ones too; the others are what servers pad to. At
/// least 300; the same on every machine for the same seed.
std::vector<Shape> models_table(uint64_t seed);

/// The shapes that `shapes_of` gives, in words: "--table models --seed 1".
std::string text_of(const ShapeOptions& o);

/// The models with a layer of this N and K; empty when none is known.
std::string source_of(const Shape& shape);

/// The shapes that were asked for, or `otherwise`. Throws Error(InvalidArgument) for a text that is no shape and for a
/// shape of which there is no such product, Error(Io) for a file without shapes.
std::vector<Shape> shapes_of(const ShapeOptions& o, const std::vector<Shape>& otherwise, const ProductOptions& product);

}  // namespace finegemm::cli
