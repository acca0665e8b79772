// Cubins: 64-bit ELF files. Layer jit.
#include "jit/cubin.h"

#include <elf.h>

#include <cstring>
#include <optional>
#include <string>

namespace finegemm::jit {

namespace {

template <typename T>
std::optional<T> read(std::string_view bytes, uint64_t at) {
    if (at > bytes.size() || bytes.size() - at < sizeof(T)) return {};
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

}  // namespace

std::vector<CodeSection> code_sections(std::string_view cubin) {
    const auto header = read<Elf64_Ehdr>(cubin, 0);
    std::vector<CodeSection> found;
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return found;
    for (uint32_t i = 0; i < header->e_shnum; ++i) {
        const auto section = read<Elf64_Shdr>(cubin, header->e_shoff + i * sizeof(Elf64_Shdr));
        const bool code = section && section->sh_type == SHT_PROGBITS && (section->sh_flags & SHF_EXECINSTR) != 0;
        if (code && section->sh_offset <= cubin.size() && section->sh_size <= cubin.size() - section->sh_offset)
            found.push_back({section->sh_offset, section->sh_size});
    }
    return found;
}

int cuda_of(std::string_view cubin) {
    constexpr int kAbiOfCuda13 = 8;
    const auto header = read<Elf64_Ehdr>(cubin, 0);
    return header && header->e_ident[EI_ABIVERSION] >= kAbiOfCuda13 ? 13 : 12;
}

Digest code_digest(std::string_view cubin) {
    std::string code;
    for (const auto& [offset, bytes] : code_sections(cubin)) code += cubin.substr(offset, bytes);
    return digest({code});
}

}  // namespace finegemm::jit
