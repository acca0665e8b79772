// The product that a command is about: its shape in numbers or as a line of text, and an option for each field. Layer
// cli.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <finegemm/gemm.h>

#include "cli/files/files.h"
#include "plan/elements.h"

namespace finegemm::cli {

/// Options of the fields of GemmShape, and how groups are told and laid out.
struct ProductOptions {
    GemmShape fields{};  // extents apart
    std::string form = "offsets", layout = "columns";
    bool whole_rows = false;  // scales of rows are for all of K
    Epilogue epilogue{};      // without C, which is random where beta is not 0; a matrix that has rows is random, too

    /// The product of these extents.
    GemmShape with(int64_t m, int64_t n, int64_t k) const;
    /// The arguments of a product's epilogue: where its finish is asked for by the field alone, some example.
    Epilogue epilogue_for(const GemmShape& shape) const;
    /// Options of a product that a line says, to which these options add.
    ProductOptions over(const GemmShape& line) const;
    /// Whether scales of rows are so; throws Error(InvalidArgument) where there are none.
    bool has_whole_rows(const GemmShape& shape) const;
    /// All options that are set, as on a command line: " --groups 4 --form masked".
    std::string text() const;
};

/// An option for each field, --row-b-scales for row_b_scales. Whether they belong together check_fields says.
void add_field_options(CLI::App& command, ProductOptions& o);
/// --form and --layout, for commands that make groups.
void add_group_options(CLI::App& command, ProductOptions& o);

/// --alpha, --beta, --bias and what else an epilogue has, for commands that make its matrices.
void add_epilogue_options(CLI::App& command, ProductOptions& o);

/// M N K, or one line like "gemm 64x2112x7168 groups=4", which options then add to. Throws Error(InvalidArgument).
GemmShape parse_product(const std::vector<std::string>& words, const ProductOptions& o);

/// Throws for scales of the operand `name` that are not one for each row and 128 columns, or for each 128x128 block.
void check_scales(const std::string& name, const HostMatrix& s, const HostMatrix& x, bool blocks);

/// What records call a kind of product: "dense", "grouped", "k_grouped", "summed".
const char* kind_of(const GemmShape& shape);

/// Types of elements that may be so, for options.
std::map<std::string, DType> types_by_name(MayHave* may_be = [](const ElementType&) { return true; });

/// The option of a field: "--row-b-scales".
std::string option_of(const std::string& field);

/// Work of a product: operations and bytes, each matrix once, for figures per time. `busy`: groups of rows that have
/// any.
double operations(int64_t m, int64_t n, int64_t k);
double traffic_bytes(const GemmShape& shape, int64_t busy);

}  // namespace finegemm::cli
