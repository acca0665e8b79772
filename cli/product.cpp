// The product that a command is about. Layer cli.
#include "cli/product.h"

#include <algorithm>

#include <finegemm/error.h>
#include <fmt/format.h>

#include "cli/random.h"
#include "cli/text.h"
#include "plan/fields.h"

namespace finegemm::cli {

namespace {

const std::map<std::string, KLayout> kLayouts = {{"columns", KLayout::Columns}, {"blocks", KLayout::Blocks}};

void add(CLI::App& command, const plan::Field& field, bool& to) {
    command.add_flag(option_of(field.name), to, field.meaning);
}
template <typename Number>
void add(CLI::App& command, const plan::Field& field, Number& to) {
    command.add_option(option_of(field.name), to, field.meaning);
}
void add(CLI::App& command, const plan::Field& field, std::optional<DType>& to) {
    const auto types = types_by_name(field.may_be);
    const auto set = [&to, types](const std::string& text) { to = types.at(text); };
    command.add_option_function<std::string>(option_of(field.name), set, field.meaning)->check(CLI::IsMember(types));
}

// An option for an argument of an epilogue: a value, or a random matrix.
template <typename Number>
void add(CLI::App& command, const plan::EpilogueArgument& x, Number& to) {
    command.add_option(option_of(x.name), to, x.meaning)->capture_default_str();
}
void add(CLI::App& command, const plan::EpilogueArgument& x, bool& to) {
    command.add_flag(option_of(x.name), to, x.meaning);
}
void add(CLI::App& command, const plan::EpilogueArgument& x, std::optional<float>& to) {
    command.add_option(option_of(x.name), to, x.meaning)->default_str("0");
}
void add(CLI::App& command, const plan::EpilogueArgument& x, ConstMatrix& to) {
    command.add_flag_function(option_of(x.name), [&to](int64_t count) { to.rows = count > 0; }, x.meaning);
}
void add(CLI::App& command, const plan::EpilogueArgument& x, RowNumbers& to) {
    command.add_flag_function(option_of(x.name), [&to](int64_t count) { to.rows.matrix.rows = count > 0; }, x.meaning);
}
void add(CLI::App& command, const plan::EpilogueArgument& x, RowIndices& to) {
    command.add_flag_function(option_of(x.name), [&to](int64_t count) { to.rows.rows = count > 0; }, x.meaning);
}
void add(CLI::App&, const plan::EpilogueArgument&, ConstStack&) {}  // random where its factor is not 0
void add(CLI::App&, const plan::EpilogueArgument&, Stack&) {}       // there where D has scales

/// What was asked for of the fields of a product.
void take_fields(const GemmShape& from, GemmShape& to) {
    plan::fields(
        [](const plan::Field&, const auto& given, auto& member) {
            if (plan::is_set(given)) member = given;
        },
        from, to);
}

}  // namespace

const char* kind_of(const GemmShape& shape) {
    return shape.groups ? "grouped" : shape.k_groups ? "k_grouped" : shape.summed ? "summed" : "dense";
}

std::map<std::string, DType> types_by_name(MayHave* may_be) {
    std::map<std::string, DType> types;
    for (const ElementType& x : kElementTypes)
        if (may_be(x)) types.emplace(x.name, x.dtype);
    return types;
}

std::string option_of(const std::string& field) {
    std::string option = "--" + field;
    std::ranges::replace(option, '_', '-');
    return option;
}

GemmShape ProductOptions::with(int64_t m, int64_t n, int64_t k) const {
    GemmShape shape = fields;
    plan::ask_for(epilogue, shape);
    shape.m = m, shape.n = n, shape.k = k;
    return shape;
}

Epilogue ProductOptions::epilogue_for(const GemmShape& shape) const {
    Epilogue all = epilogue;
    const plan::FinishField* finish = plan::find_finish(shape);
    if (finish && !plan::first_given(all)) finish->example(all, shape.n);
    return all;
}

ProductOptions ProductOptions::over(const GemmShape& line) const {
    ProductOptions all = *this;
    all.fields = line;
    take_fields(fields, all.fields);
    if (line.alignment > 0 && form != "prefix_sums") all.form = "indices";  // one of the two that have one
    return all;
}

bool ProductOptions::has_whole_rows(const GemmShape& shape) const {
    const bool scaled = plan::operand_type(shape).scaled;
    if (whole_rows && (!scaled || shape.b_mx || shape.k_groups))
        throw Error(Errc::InvalidArgument, fmt::format("--whole-rows: is set, but {}; leave it out",
                                                       shape.k_groups ? "groups of K have scales for 128 of K each"
                                                       : scaled       ? "MX has scales for 32 of K"
                                                                      : "A and B have no scales"));
    return whole_rows;
}

std::string ProductOptions::text() const {
    std::string text;
    plan::fields(
        [&]<typename T>(const plan::Field& field, const T& value) {
            if (!plan::is_set(value)) return;
            text += ' ' + option_of(field.name);
            if constexpr (!std::is_same_v<T, bool>) text += ' ' + plan::value_text(value);
        },
        fields);
    if (whole_rows) text += " --whole-rows";
    if (fields.groups) text += " --form " + form;
    if (fields.k_groups) text += " --layout " + layout;
    return text;
}

void add_field_options(CLI::App& command, ProductOptions& o) {
    plan::fields([&](const plan::Field& field, auto& member) { add(command, field, member); }, o.fields);
}

void add_group_options(CLI::App& command, ProductOptions& o) {
    command
        .add_option("--form", o.form, "How the groups' rows are told: offsets, indices, prefix-sums, masked or whole")
        ->check(CLI::IsMember(kForms))
        ->capture_default_str()
        ->needs(command.get_option("--groups"));
    command
        .add_option("--layout", o.layout,
                    "How the groups' parts of A and B lie: columns (sizes on the device) or "
                    "blocks (sizes on the host)")
        ->check(CLI::IsMember(kLayouts))
        ->capture_default_str()
        ->needs(command.get_option("--k-groups"));
}

void add_epilogue_options(CLI::App& command, ProductOptions& o) {
    plan::epilogue_arguments([&](const plan::EpilogueArgument& x, auto& to) { add(command, x, to); }, o.epilogue);
}

GemmShape parse_product(const std::vector<std::string>& words, const ProductOptions& o) {
    GemmShape shape;
    if (words.size() == 1) {
        shape = plan::parse_shape(words[0]);
    } else {
        std::vector<int64_t> extents;
        std::ranges::transform(words, std::back_inserter(extents), number_of);
        if (extents.size() != 3 || std::ranges::min(extents) < 0)
            throw Error(Errc::InvalidArgument,
                        fmt::format("shape: is '{}', must be M N K, or one line like 'gemm 64x2112x7168 groups=4'; "
                                    "quote the line",
                                    fmt::join(words, " ")));
        shape.m = extents[0], shape.n = extents[1], shape.k = extents[2];
    }
    take_fields(o.fields, shape);
    plan::ask_for(o.epilogue, shape);
    return shape;
}

/// Scales of the operand `name`: one for each row and 128 columns, or for each 128x128 block.
void check_scales(const std::string& name, const HostMatrix& s, const HostMatrix& x, bool blocks) {
    const auto reject = [&](const std::string& why) {
        throw Error(Errc::InvalidArgument, fmt::format("--sf{}: {}", name.substr(2), why));
    };
    if (s.dtype != DType::F32) reject(fmt::format("has dtype {}, must be f32; convert it", name_of(s.dtype)));
    const int64_t rows = blocks ? blocks_of(x.rows) : x.rows, cols = blocks_of(x.cols);
    if (s.rows == rows && s.cols == cols) return;
    const std::string by_rows =
        blocks ? fmt::format("128x128 block of {}, or [{}, {}], one for each row and 128 columns", name, x.rows, cols)
               : fmt::format("row and 128 columns of {}", name);
    reject(fmt::format("has shape [{}, {}], must be [{}, {}], one for each {}; {}", s.rows, s.cols, rows, cols, by_rows,
                       s.rows == cols && s.cols == rows ? "transpose it" : "check that it belongs there"));
}

double operations(int64_t m, int64_t n, int64_t k) {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

double traffic_bytes(const GemmShape& s, int64_t busy) {
    const bool row_b_scales = s.row_b_scales || s.b_mx || s.k_groups;
    const int64_t b_count = s.groups ? busy : 1, d_count = s.k_groups.value_or(1);
    const ElementType& operands = plan::operand_type(s);
    const int64_t d_row = pairs_columns(plan::finish_of(s)) ? s.n / 2 : s.n * size_of(plan::result_type(s));
    const int64_t scale_rows = operands.scaled ? s.m + b_count * (row_b_scales ? s.n : blocks_of(s.n)) : 0;
    return static_cast<double>((s.m + b_count * s.n) * s.k * size_of(operands.dtype) + d_count * s.m * d_row +
                               scale_rows * blocks_of(s.k) * size_of(DType::F32));
}

}  // namespace finegemm::cli
