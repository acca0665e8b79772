// Cubins: where machine code lies, and what its digest depends on.
#include "jit/cubin.h"

#include <elf.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace finegemm::jit {
namespace {

struct Section {
    uint64_t flags;
    std::string bytes;
};

std::string elf_of(const std::vector<Section>& sections) {
    Elf64_Ehdr header{};
    header.e_ident[0] = 0x7f, header.e_ident[1] = 'E', header.e_ident[2] = 'L', header.e_ident[3] = 'F';
    header.e_shnum = static_cast<uint16_t>(sections.size());
    std::string contents, table;
    for (const Section& s : sections) {
        Elf64_Shdr entry{};
        entry.sh_type = SHT_PROGBITS;
        entry.sh_flags = s.flags;
        entry.sh_offset = sizeof header + contents.size();
        entry.sh_size = s.bytes.size();
        contents += s.bytes;
        table.append(reinterpret_cast<const char*>(&entry), sizeof entry);
    }
    header.e_shoff = sizeof header + contents.size();
    return std::string(reinterpret_cast<const char*>(&header), sizeof header) + contents + table;
}

const Section kCode{SHF_EXECINSTR, "instructions"}, kNotes{0, "notes"};

TEST(CodeSections, AreTheExecutableOnes) {
    const std::string cubin = elf_of({kNotes, kCode, kNotes, {SHF_EXECINSTR, "more"}});
    const auto found = code_sections(cubin);
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(cubin.substr(found[0].offset, found[0].bytes), "instructions");
    EXPECT_EQ(cubin.substr(found[1].offset, found[1].bytes), "more");
}

TEST(CodeSections, OfWhatIsNoCubinOrIsCutShortAreNone) {
    EXPECT_TRUE(code_sections("").empty());
    EXPECT_TRUE(code_sections("no cubin, but long enough to hold the header of an ELF file, as one sees").empty());
    const std::string whole = elf_of({kCode});
    for (size_t length = 0; length < whole.size(); ++length)
        EXPECT_TRUE(code_sections(std::string_view(whole).substr(0, length)).empty()) << length;
}

TEST(CodeDigest, ChangesWithInstructionsOnly) {
    const Digest digest = code_digest(elf_of({kCode}));
    EXPECT_EQ(code_digest(elf_of({kNotes, kCode, kNotes})), digest);
    EXPECT_NE(code_digest(elf_of({{SHF_EXECINSTR, "Instructions"}})), digest);
    EXPECT_NE(code_digest(elf_of({kCode, kCode})), digest);
}

}  // namespace
}  // namespace finegemm::jit
