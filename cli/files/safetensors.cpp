// Reading the header of a .safetensors file: a length, then JSON. Layer cli.
#include <algorithm>
#include <cstring>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/files/file_region.h"

namespace finegemm::cli {

namespace {

using nlohmann::json;

FileType type_of(const std::string& file, const std::string& tensor, const std::string& name, bool said) {
    if (name == "F32") return {name, DType::F32};
    if (name == "F16") return {name, DType::F16};
    if (name == "BF16") return {name, DType::BF16};
    if (name == "F8_E4M3") return {name, DType::E4M3};
    if (said && (name == "U8" || name == "I8")) return {name, DType::E4M3, true};
    if (said && (name == "U16" || name == "I16")) return {name, DType::BF16, true};
    reject_file(file, fmt::format("'{}' has dtype {}, must be F32, F16, BF16 or F8_E4M3", tensor, name));
}

[[noreturn]] void reject_tensor(const std::string& file, const json& header, const std::string& tensor) {
    constexpr size_t kShown = 20;
    std::vector<std::string> names;
    for (const auto& [key, value] : header.items())
        if (key != "__metadata__") names.push_back(key);
    const size_t more = names.size() - std::min(names.size(), kShown);
    names.resize(names.size() - more);
    const std::string list =
        fmt::format("{}{}", fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
    if (tensor.empty())
        reject_file(file, fmt::format("needs the name of a tensor; write FILE:TENSOR with one of: {}", list));
    reject_file(file, fmt::format("has no tensor '{}'; it has: {}", tensor, list));
}

/// The header from byte 8 on.
json header_of(const std::string& file, std::string_view text) {
    try {
        json header = json::parse(text.begin(), text.end());
        if (header.is_object()) return header;
    } catch (const json::parse_error& e) {
        reject_file(file, fmt::format("has a header that is not JSON at byte {}; the file is damaged", 8 + e.byte));
    } catch (const json::exception&) {}  // a number that is too large
    reject_file(file, "has a header that is not JSON as tensors have it; the file is damaged");
}

/// The header of a file that begins with `head`. `data`: where the tensors begin.
json header_in(const std::string& file, std::string_view head, uint64_t& data) {
    uint64_t length = 0;
    if (head.size() < 8) reject_file(file, "is not a .safetensors file");
    std::memcpy(&length, head.data(), 8);
    if (length > head.size() - 8) reject_file(file, "ends inside of its header, or is no .safetensors file");
    data = 8 + length;
    return header_of(file, head.substr(8, length));
}

bool has(const json& header, const std::string& tensor) {
    return !tensor.empty() && tensor != "__metadata__" && header.contains(tensor);
}

}  // namespace

bool has_tensor(const std::string& file, std::string_view head, const std::string& tensor) {
    uint64_t data = 0;
    return has(header_in(file, head, data), tensor);
}

TensorEntry entry_in_safetensors(const std::string& file, std::string_view head, uint64_t file_bytes,
                                 const std::string& tensor) {
    uint64_t data = 0;
    const json header = header_in(file, head, data);
    if (!has(header, tensor)) reject_tensor(file, header, tensor);
    const json& entry = header.at(tensor);
    try {
        const auto offsets = entry.at("data_offsets").get<std::vector<uint64_t>>();
        if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > file_bytes - data)
            reject_file(file, fmt::format("'{}' lies outside of the file; the file is damaged", tensor));
        return {entry.at("dtype").get<std::string>(), entry.at("shape").get<std::vector<int64_t>>(), data + offsets[0],
                offsets[1] - offsets[0]};
    } catch (const json::exception&) {
        reject_file(file, fmt::format("describes '{}' as {:.80}, must give its dtype, a shape like [2, 3] and "
                                      "data_offsets like [0, 24]; the file is damaged",
                                      tensor, entry.dump()));
    }
}

FileRegion region_in_safetensors(const std::string& file, std::string_view head, uint64_t file_bytes,
                                 const std::string& tensor, std::optional<DType> as) {
    const TensorEntry entry = entry_in_safetensors(file, head, file_bytes, tensor);
    if (entry.shape.size() != 2)
        reject_file(file, fmt::format("'{}' has {} dimensions, must have two", tensor, entry.shape.size()));
    FileRegion region{.rows = entry.shape[0], .cols = entry.shape[1], .offset = entry.offset};
    take_type(file, region, type_of(file, tensor, entry.dtype, as.has_value()), as);
    check_size(file, region.rows, region.cols, region.dtype, entry.bytes);
    return region;
}

}  // namespace finegemm::cli
