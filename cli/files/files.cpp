// Matrices from files. Layer cli.
#include "cli/files/files.h"

#include <algorithm>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "cli/files/file_region.h"
#include "cli/files/input_file.h"
#include "plan/problem.h"

namespace finegemm::cli {

namespace {

constexpr int64_t kMostElements = int64_t{1} << 40;

bool plausible(int64_t rows, int64_t cols) {
    return rows >= 0 && cols >= 0 && (rows == 0 || cols <= kMostElements / rows);
}

}  // namespace

void reject_file(const std::string& file, const std::string& reason) {
    throw Error(Errc::Io, fmt::format("{}: {}", file, reason));
}

void check_size(const std::string& file, int64_t rows, int64_t cols, DType dtype, uint64_t available) {
    if (!plausible(rows, cols))
        reject_file(file, fmt::format("has shape [{}, {}], which is no size for a matrix", rows, cols));
    const auto wanted = static_cast<uint64_t>(rows * cols * size_of(dtype));
    if (available != wanted)
        reject_file(file, fmt::format("has {} bytes of data, but shape [{}, {}] needs {}; the file is damaged",
                                      available, rows, cols, wanted));
}

void take_type(const std::string& file, FileRegion& region, const FileType& type, std::optional<DType> as) {
    region.dtype = as.value_or(type.dtype);
    if (!type.untyped && region.dtype != type.dtype)
        reject_file(file, fmt::format("has dtype '{}', not {}; leave out what says so", type.name, name_of(*as)));
    if (size_of(region.dtype) != size_of(type.dtype))
        reject_file(file, fmt::format("has dtype '{}' of {} bytes, {} would have {}; leave out what says so", type.name,
                                      size_of(type.dtype), name_of(*as), size_of(*as)));
    if (type.untyped && !as) region.untyped = type.name;
}

HostMatrix make_matrix(DType dtype, int64_t rows, int64_t cols) {
    if (!plausible(rows, cols))
        throw Error(Errc::OutOfMemory, fmt::format("a matrix of {} x {} does not fit into memory", rows, cols));
    return {dtype, rows, cols, std::vector<uint8_t>(static_cast<size_t>(rows * cols * size_of(dtype)))};
}

MatrixName name_of_matrix(const std::string& text) {
    constexpr std::string_view kEnding = ".safetensors";
    const size_t ending = text.rfind(kEnding);
    const size_t end = ending + kEnding.size();
    if (ending != text.npos && (end == text.size() || text[end] == ':'))
        return {text.substr(0, end), text.substr(std::min(end + 1, text.size())), true};
    if (!text.ends_with(".npy"))
        throw Error(Errc::InvalidArgument, fmt::format("{}: must be FILE.npy or FILE.safetensors:TENSOR", text));
    return {text, "", false};
}

HostMatrix read_matrix(const MatrixName& name, std::optional<DType> as) {
    InputFile file(name.path);
    const FileRegion region =
        name.safetensors ? region_in_safetensors(name.path, safetensors_head(file), file.bytes(), name.tensor, as)
                         : region_in_npy(name.path, file.head(1u << 20), file.bytes(), as);
    HostMatrix matrix = make_matrix(region.dtype, region.rows, region.cols);
    matrix.untyped = region.untyped;
    file.read(region.offset, matrix.bytes);
    return matrix;
}

}  // namespace finegemm::cli
