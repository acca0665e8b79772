// Weights and scales as published FP8 checkpoints have them. Layer cli.
#include "cli/files/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <finegemm/error.h>

#include "cli/files/file_region.h"
#include "cli/files/input_file.h"
#include "cli/random.h"
#include "cli/text.h"
#include "workbench/accuracy.h"

namespace finegemm::cli {

namespace {

using nlohmann::json;

/// Scales as their file has them: numbers, and how many of which extents.
struct RawScales {
    std::string dtype;
    std::vector<int64_t> shape;
    std::vector<float> values;
};

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

/// The number that an exponent of ue8m0 is.
float of_e8m0(uint8_t code) {
    return code == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, code - 127);
}

/// A type's width and conversion, by the names of both formats; none for a type that scales have not.
std::optional<DType> float_type(const std::string& name) {
    if (name == "F32" || name == "f32") return DType::F32;
    if (name == "F16" || name == "f16") return DType::F16;
    if (name == "BF16" || name == "bf16") return DType::BF16;
    return {};
}
bool is_e8m0(const std::string& name) { return name == "F8_E8M0" || name == "U8" || name == "e4m3"; }

std::vector<float> floats_of(const std::string& dtype, const std::vector<uint8_t>& bytes) {
    std::vector<float> values;
    if (is_e8m0(dtype)) {
        std::ranges::transform(bytes, std::back_inserter(values), of_e8m0);
        return values;
    }
    const DType type = float_type(dtype).value();
    const auto count = static_cast<int64_t>(bytes.size()) / size_of(type);
    const ConstMatrix row{bytes.data(), type, 1, count, count, 1, {}};
    for (int64_t i = 0; i < count; ++i) values.push_back(element_of(row, 0, i));
    return values;
}

RawScales raw_scales(const std::string& path, const std::string& tensor) {
    InputFile file(path);
    const TensorEntry entry = entry_in_safetensors(path, safetensors_head(file), file.bytes(), tensor);
    const auto type = float_type(entry.dtype);
    if (!type && !is_e8m0(entry.dtype))
        reject_file(path, fmt::format("'{}' has dtype {}, scales must be F32, BF16, F16 or F8_E8M0 (also as U8); "
                                      "convert it",
                                      tensor, entry.dtype));
    uint64_t count = 1;
    for (const int64_t extent : entry.shape) {
        if (extent < 0 || (extent > 0 && count > kMaxHead / static_cast<uint64_t>(extent)))
            reject_file(path,
                        fmt::format("'{}' has shape {}, which is none of scales", tensor, shape_text(entry.shape)));
        count *= static_cast<uint64_t>(extent);
    }
    if (entry.bytes != count * static_cast<uint64_t>(type ? size_of(*type) : 1))
        reject_file(path, fmt::format("'{}' has {} bytes, which shape {} of {} does not need; the file is damaged",
                                      tensor, entry.bytes, shape_text(entry.shape), entry.dtype));
    std::vector<uint8_t> bytes(entry.bytes);
    file.read(entry.offset, bytes);
    return {entry.dtype, entry.shape, floats_of(entry.dtype, bytes)};
}

RawScales raw_scales(const HostMatrix& m) {
    return {name_of(m.dtype), {m.rows, m.cols}, floats_of(name_of(m.dtype), m.bytes)};
}

HostMatrix f32_matrix(int64_t rows, int64_t cols, const auto& value) {
    HostMatrix m = make_matrix(DType::F32, rows, cols);
    auto* to = reinterpret_cast<float*>(m.bytes.data());
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < cols; ++c) *to++ = value(r, c);
    return m;
}

/// A form of scales, in words, and the scales as a product takes them.
struct Form {
    std::string words;
    HostMatrix scales;
};

/// For a matrix of these extents; nothing where the shape is no form.
std::optional<Form> form_of(const RawScales& raw, int64_t rows, int64_t cols) {
    const int64_t row_blocks = blocks_of(rows), col_blocks = blocks_of(cols);
    const auto at = [&](int64_t i) { return raw.values[static_cast<size_t>(i)]; };
    const auto is = [&](std::vector<int64_t> shape) { return raw.shape == shape; };
    if (is({}) || is({1}) || is({1, 1}))
        return Form{"the tensor", f32_matrix(row_blocks, col_blocks, [&](int64_t, int64_t) { return at(0); })};
    if (is({row_blocks, col_blocks}) || is({rows, col_blocks}))
        return Form{raw.shape[0] == row_blocks ? "128x128 blocks" : "1x128 blocks",
                    f32_matrix(raw.shape[0], col_blocks, [&](int64_t r, int64_t c) { return at(r * col_blocks + c); })};
    if (is({rows}) || is({rows, 1}))
        return Form{"rows", f32_matrix(rows, col_blocks, [&](int64_t r, int64_t) { return at(r); })};
    return {};
}

/// Where tensors are: one file, or the shards of a folder.
class Checkpoint {
public:
    explicit Checkpoint(const std::string& path) : path_(path) {
        namespace fs = std::filesystem;
        std::error_code error;
        if (!fs::is_directory(path, error)) return;
        const std::string index = path + "/model.safetensors.index.json";
        if (!fs::exists(index, error)) {
            path_ = path + "/model.safetensors";
            return;
        }
        index_ = index;
        InputFile file(index);
        text_ = file.head(kMaxHead);
    }
    /// The file that has the tensor; empty where none has. An entry of an index is believed.
    std::string file_of(const std::string& tensor) const {
        if (!index_.empty()) {
            const std::string shard = shard_of(index_, text_, tensor);
            return shard.empty() ? "" : std::filesystem::path(index_).parent_path() / shard;
        }
        InputFile file(path_);
        return has_tensor(path_, safetensors_head(file), tensor) ? path_ : "";
    }
    /// The end of an error about what is not there.
    std::string place() const { return index_.empty() ? path_ : index_; }
    bool sharded() const { return !index_.empty(); }

private:
    std::string path_, index_, text_;
};

/// Rows or columns from `first` up to `end`; up to the last where that is not said.
struct Range {
    int64_t first = 0, end = -1;
    int64_t size() const { return end - first; }
};

/// The part of a matrix that its name says: "w[100:300]", "w[100:300,128:]".
struct Part {
    std::string text;
    Range rows, cols;
};

/// Takes the part off a tensor's name.
Part take_part(std::string& tensor) {
    Part part;
    const size_t open = tensor.find('[');
    if (open == tensor.npos || !tensor.ends_with(']')) return part;
    part.text = tensor.substr(open);
    const auto range = [&](std::string_view text) {
        const size_t colon = std::min(text.find(':'), text.size());
        const std::string_view first = text.substr(0, colon), end = text.substr(std::min(colon + 1, text.size()));
        const Range r{first.empty() ? 0 : number_of(first), end.empty() ? -1 : number_of(end)};
        if (colon == text.size() || r.first < 0 || (!end.empty() && r.end < r.first))
            throw Error(Errc::InvalidArgument,
                        fmt::format("{}: must end like [100:300], or [100:300,0:1024] for columns too", tensor));
        return r;
    };
    const std::string inside = part.text.substr(1, part.text.size() - 2);
    const size_t comma = std::min(inside.find(','), inside.size());
    part.rows = range(std::string_view(inside).substr(0, comma));
    if (comma < inside.size()) part.cols = range(std::string_view(inside).substr(comma + 1));
    tensor.resize(open);
    return part;
}

HostMatrix cut(const HostMatrix& m, const Range& rows, const Range& cols) {
    HostMatrix part = make_matrix(m.dtype, rows.size(), cols.size());
    part.untyped = m.untyped;
    const int64_t element = size_of(m.dtype), row_bytes = cols.size() * element;
    for (int64_t r = 0; r < rows.size(); ++r)
        std::copy_n(&m.bytes[static_cast<size_t>(((rows.first + r) * m.cols + cols.first) * element)], row_bytes,
                    &part.bytes[static_cast<size_t>(r * row_bytes)]);
    return part;
}

Range block_range(const Range& x) { return {x.first / kScaleBlock, blocks_of(x.end)}; }

/// A part that begins inside of a block of rows has scales of rows; none begins inside of one of columns.
Weights part_of(Weights all, Part part, const std::string& file) {
    const int64_t rows = all.values.rows, cols = all.values.cols;
    if (part.text.empty()) return all;
    if (part.rows.end < 0) part.rows.end = rows;
    if (part.cols.end < 0) part.cols.end = cols;
    if (part.rows.size() <= 0 || part.rows.end > rows || part.cols.size() <= 0 || part.cols.end > cols)
        reject_file(file, fmt::format("has no part {} of [{}, {}]", part.text, rows, cols));
    if (all.scales && part.cols.first % kScaleBlock != 0)
        reject_file(file, fmt::format("has scales for {} columns each, inside of which no part begins; begin {} at a "
                                      "multiple, and pad what it is multiplied with",
                                      kScaleBlock, part.text));
    if (all.scales) {
        if (part.rows.first % kScaleBlock != 0) all.scales = row_scales(*all.scales, rows);
        all.scales =
            cut(*all.scales, all.scales->rows == rows ? part.rows : block_range(part.rows), block_range(part.cols));
    }
    all.values = cut(all.values, part.rows, part.cols);
    return all;
}

constexpr std::string_view kWeight = ".weight";

std::vector<std::string> names_of_scales(const std::string& weight) {
    std::vector<std::string> names{weight + "_scale_inv", weight + "_scale"};
    if (weight.ends_with(kWeight)) names.push_back(weight.substr(0, weight.size() - kWeight.size()) + ".scale");
    return names;
}

/// Sets scales and words of codes, where their checkpoint has scales for them.
void find_scales(const Checkpoint& checkpoint, const std::string& tensor, Weights& weights) {
    const int64_t rows = weights.values.rows, cols = weights.values.cols;
    for (const std::string& name : names_of_scales(tensor)) {
        const std::string file = checkpoint.file_of(name);
        if (file.empty()) continue;
        const RawScales raw = raw_scales(file, name);
        std::optional<Form> form = form_of(raw, rows, cols);
        if (!form)
            reject_file(file, fmt::format("'{}' has shape {}, must be [], [{}], [{}, 1], [{}, {}] or [{}, {}], for one "
                                          "scale of the tensor, of each row, of each 128x128 block, or of each row and "
                                          "128 columns of '{}' [{}, {}]",
                                          name, shape_text(raw.shape), rows, rows, blocks_of(rows), blocks_of(cols),
                                          rows, blocks_of(cols), tensor, rows, cols));
        weights.scales = std::move(form->scales);
        weights.found = fmt::format("{}, {} {} for {}", name, raw.dtype, shape_text(raw.shape), form->words);
        return;
    }
    weights.found = fmt::format("no {}: scales of 1", fmt::join(names_of_scales(tensor), " or "));
}

}  // namespace

std::string shard_of(const std::string& index_file, std::string_view text, const std::string& tensor) {
    std::string shard;
    try {
        const json index = json::parse(text.begin(), text.end());
        const json& map = index.at("weight_map");
        if (!map.is_object()) reject_file(index_file, "has a weight_map that is no object; the file is damaged");
        if (!map.contains(tensor)) return {};
        shard = map.at(tensor).get<std::string>();
    } catch (const json::parse_error& e) {
        reject_file(index_file, fmt::format("is not JSON at byte {}; the file is damaged", e.byte));
    } catch (const json::exception&) {
        reject_file(index_file, "has no weight_map from names of tensors to files; the file is damaged");
    }
    if (shard.empty() || shard.find('/') != shard.npos || shard.find('\0') != shard.npos || shard == ".." ||
        shard == ".")
        reject_file(index_file, fmt::format("names the shard '{}', must be a file in its folder", shard));
    return shard;
}

MatrixName name_of_weights(const std::string& text) {
    const size_t colon = std::min(text.find(':'), text.size());
    std::error_code error;
    if (!std::filesystem::is_directory(text.substr(0, colon), error)) return name_of_matrix(text);
    return {text.substr(0, colon), text.substr(std::min(colon + 1, text.size())), true};
}

Weights read_weights(const MatrixName& name, std::optional<DType> as) {
    if (!name.safetensors) return {read_matrix(name, as), {}};
    const Checkpoint checkpoint(name.path);
    std::string asked = name.tensor;
    const Part part = take_part(asked);
    MatrixName tensor{"", asked, true};
    for (const std::string& spelt : {asked, asked + std::string(kWeight)}) {
        if (asked.empty() || !tensor.path.empty()) break;
        tensor.path = checkpoint.file_of(spelt);
        if (!tensor.path.empty()) tensor.tensor = spelt;
    }
    if (tensor.path.empty() && checkpoint.sharded())
        reject_file(checkpoint.place(), fmt::format("has no tensor '{}'; look into its weight_map", asked));
    if (tensor.path.empty()) tensor.path = checkpoint.place();  // which then says what it has
    Weights weights{read_matrix(tensor, as), {}};
    if (weights.values.dtype == DType::E4M3) find_scales(checkpoint, tensor.tensor, weights);
    return part_of(std::move(weights), part, tensor.path);
}

HostMatrix read_scales(const MatrixName& name, int64_t rows, int64_t cols) {
    const RawScales raw =
        name.safetensors && !name.tensor.empty() ? raw_scales(name.path, name.tensor) : raw_scales(read_matrix(name));
    if (std::optional<Form> form = form_of(raw, rows, cols)) return std::move(form->scales);
    const int64_t raw_rows = raw.shape.size() == 2 ? raw.shape[0] : 1;
    const int64_t raw_cols = raw_rows > 0 ? static_cast<int64_t>(raw.values.size()) / raw_rows : 0;
    return f32_matrix(raw_rows, raw_cols,
                      [&](int64_t r, int64_t c) { return raw.values[static_cast<size_t>(r * raw_cols + c)]; });
}

HostMatrix row_scales(const HostMatrix& scales, int64_t rows) {
    if (scales.rows == rows) return scales;
    return f32_matrix(rows, scales.cols,
                      [&](int64_t r, int64_t c) { return element_of(scales.view(), r / kScaleBlock, c); });
}

}  // namespace finegemm::cli
