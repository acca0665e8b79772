// Reading the header of a .npy file. Layer cli.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "cli/files/file_region.h"
#include "cli/text.h"

namespace finegemm::cli {

namespace {

/// The header: a Python dictionary, here without its spaces. `data` becomes the offset of what follows it.
std::string header_of(const std::string& file, std::string_view head, uint64_t& data) {
    if (head.size() < 12 || !head.starts_with("\x93NUMPY")) reject_file(file, "is not a .npy file");
    const bool wide = head[6] >= 2;  // from version 2 on the header's length has 32 bits
    uint32_t length = 0;
    std::memcpy(&length, &head[8], wide ? 4 : 2);
    const size_t begin = wide ? 12 : 10;
    if (length > head.size() - begin) reject_file(file, "ends inside of its header; the file is damaged");
    data = begin + length;
    std::string header(head.substr(begin, length));
    std::erase(header, ' ');
    return header;
}

/// The text between `key` and the next `end`.
std::string_view field(const std::string& file, std::string_view header, std::string_view key, char end) {
    const size_t at = header.find(key);
    const size_t begin = at + key.size();
    const size_t stop = at == header.npos ? at : header.find(end, begin);
    if (stop == header.npos) reject_file(file, fmt::format("has a header without {}; the file is damaged", key));
    return header.substr(begin, stop - begin);
}

FileType type_of(const std::string& file, std::string_view descr) {
    const std::string name(descr);
    if (descr == "<f4") return {name, DType::F32};
    if (descr == "<f2") return {name, DType::F16};
    if (descr == "<u2" || descr == "|V2" || descr == "<V2") return {name, DType::BF16, true};
    if (descr == "|u1" || descr == "|V1" || descr == "<V1") return {name, DType::E4M3, true};
    reject_file(
        file,
        fmt::format("has dtype '{}', must be float32, float16, bfloat16 (as uint16) or e4m3 (as uint8); convert it",
                    descr));
}

}  // namespace

FileRegion region_in_npy(const std::string& file, std::string_view head, uint64_t file_bytes, std::optional<DType> as) {
    FileRegion region;
    const std::string header = header_of(file, head, region.offset);
    take_type(file, region, type_of(file, field(file, header, "'descr':'", '\'')), as);
    if (field(file, header, "'fortran_order':", ',') != "False")
        reject_file(file, "is stored by columns; save it with numpy.ascontiguousarray");
    const std::string_view shape = field(file, header, "'shape':(", ')');
    const size_t comma = shape.find(',');
    region.rows = number_of(shape.substr(0, comma));
    region.cols = comma == shape.npos ? -1 : number_of(shape.substr(comma + 1));
    if (region.rows < 0 || region.cols < 0)
        reject_file(file, fmt::format("has shape ({}), must have two dimensions; reshape it", shape));
    check_size(file, region.rows, region.cols, region.dtype, file_bytes - std::min(file_bytes, region.offset));
    return region;
}

}  // namespace finegemm::cli
