// Matrices to files. Layer cli.
#include "cli/files/output.h"

#include <bit>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <finegemm/error.h>

#include "cli/files/file_region.h"
#include "workbench/accuracy.h"

namespace finegemm::cli {

namespace {

constexpr size_t kDataAlignment = 64;  // of the data in the file, from which it may be mapped

bool same_values(const ConstMatrix& x, const ConstMatrix& y) {
    if (x.rows != y.rows || x.cols != y.cols) return false;
    const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };  // NaN is equal to itself
    for (int64_t r = 0; r < x.rows; ++r)
        for (int64_t c = 0; c < x.cols; ++c)
            if (bits(element_of(x, r, c)) != bits(element_of(y, r, c))) return false;
    return true;
}

HostMatrix as_f32(const HostMatrix& m) {
    HostMatrix wide = make_matrix(DType::F32, m.rows, m.cols);
    auto* to = reinterpret_cast<float*>(wide.bytes.data());
    for (int64_t r = 0; r < m.rows; ++r)
        for (int64_t c = 0; c < m.cols; ++c) *to++ = element_of(m.view(), r, c);
    return wide;
}

/// Spaces, which both formats allow behind a header, up to the data, of which `tail` belong to the header.
std::string padded(std::string header, size_t before, const char* tail) {
    const size_t used = before + header.size() + std::strlen(tail);
    return header + std::string((kDataAlignment - used % kDataAlignment) % kDataAlignment, ' ') + tail;
}

std::string npy_head(const HostMatrix& m) {
    const char* descr = m.dtype == DType::F32 ? "<f4" : m.dtype == DType::F16 ? "<f2" : "|u1";
    const std::string magic("\x93NUMPY\x01\x00", 8);
    const std::string header =
        padded(fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}, {}), }}", descr, m.rows, m.cols),
               magic.size() + sizeof(uint16_t), "\n");
    const auto length = static_cast<uint16_t>(header.size());
    return magic + std::string(reinterpret_cast<const char*>(&length), sizeof length) + header;
}

std::string safetensors_head(const HostMatrix& m, const std::string& tensor) {
    const char* dtype = m.dtype == DType::F32    ? "F32"
                        : m.dtype == DType::F16  ? "F16"
                        : m.dtype == DType::BF16 ? "BF16"
                                                 : "F8_E4M3";
    const nlohmann::json entry = {{"dtype", dtype}, {"shape", {m.rows, m.cols}}, {"data_offsets", {0, m.bytes.size()}}};
    const std::string header = padded(nlohmann::json{{tensor, entry}}.dump(), sizeof(uint64_t), "");
    const uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header;
}

bool is_tensor_name(const std::string& name) {
    try {
        return name != "__metadata__" && !nlohmann::json(name).dump().empty();
    } catch (const nlohmann::json::exception&) {  // not UTF-8
        return false;
    }
}

MatrixName checked(const std::string& text) {
    MatrixName name = name_of_matrix(text);
    if (name.safetensors && name.tensor.empty()) name.tensor = "d";
    if (!is_tensor_name(name.tensor))
        throw Error(
            Errc::InvalidArgument,
            fmt::format("{}: no tensor can have this name, must be UTF-8 and not __metadata__; choose another", text));
    return name;
}

}  // namespace

OutputFile::OutputFile(const std::string& name) : name_(checked(name)), file_(name_.path) {}

void OutputFile::write(const HostMatrix& matrix) {
    const bool widen = !name_.safetensors && matrix.dtype == DType::BF16;
    const HostMatrix wide = widen ? as_f32(matrix) : HostMatrix{};
    const HostMatrix& stored = widen ? wide : matrix;
    file_.content() << (name_.safetensors ? safetensors_head(stored, name_.tensor) : npy_head(stored));
    file_.content().write(reinterpret_cast<const char*>(stored.bytes.data()),
                          static_cast<std::streamsize>(stored.bytes.size()));
    file_.publish();
    if (!same_values(read_matrix(name_).view(), matrix.view()))
        reject_file(name_.path, "has other values than were written to it; is another program writing there?");
}

}  // namespace finegemm::cli
