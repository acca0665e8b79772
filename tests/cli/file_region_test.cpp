// Headers of matrix files: good, lying, torn. Layer tests.
#include <gtest/gtest.h>

#include <random>

#include <fmt/format.h>

#include "cli/files/file_region.h"
#include "cli/support.h"
#include "support/error_of.h"

namespace finegemm::test {

namespace {

using namespace finegemm::cli;

FileRegion npy_region(const std::string& content) { return region_in_npy("x.npy", content, content.size()); }
FileRegion tensor_region(const std::string& content, const std::string& tensor = "w") {
    return region_in_safetensors("x.safetensors", content, content.size(), tensor);
}

const std::string kNpy = npy("<f4", "3, 5", std::string(60, 'x'));
const std::string kTensors =
    safetensors(R"({"__metadata__":{"format":"pt"},"v":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},)"
                R"("w":{"dtype":"BF16","shape":[3,5],"data_offsets":[16,46]}})",
                std::string(46, 'x'));

/// Whatever `head` is: an Error(Io), or a region inside of the file.
template <typename PlaceIn>
void expect_error_or_inside(const PlaceIn& region_in, const std::string& content) {
    try {
        const FileRegion p = region_in(content);
        ASSERT_GE(p.rows, 0);
        ASSERT_GE(p.cols, 0);
        const auto file_bytes = static_cast<int64_t>(content.size());
        if (p.rows > 0) {
            ASSERT_LE(p.cols, file_bytes / size_of(p.dtype) / p.rows);
        }
        ASSERT_LE(static_cast<int64_t>(p.offset), file_bytes - p.rows * p.cols * size_of(p.dtype));
    } catch (const Error& e) {
        ASSERT_EQ(e.code(), Errc::Io) << e.what();
    }
}

template <typename PlaceIn>
void expect_damage_is_found(const PlaceIn& region_in, const std::string& content, size_t header_bytes) {
    for (size_t n = 0; n < content.size(); ++n) EXPECT_THROW(region_in(content.substr(0, n)), Error) << n << " bytes";
    for (size_t at = 0; at < header_bytes; ++at)
        for (int value = 0; value < 256; ++value) {
            std::string changed = content;
            changed[at] = static_cast<char>(value);
            expect_error_or_inside(region_in, changed);
        }
    std::mt19937 random(11);
    for (int round = 0; round < 20000; ++round) {
        std::string changed = content;
        for (uint32_t edits = 1 + random() % 4; edits > 0; --edits) {
            const size_t at = random() % header_bytes, with = random() % header_bytes;
            if (random() % 2) changed[at] = changed[with];
            else changed.erase(at, random() % 4);
        }
        expect_error_or_inside(region_in, changed);
    }
}

}  // namespace

TEST(Npy, PlaceIsAfterTheHeader) {
    const FileRegion p = npy_region(kNpy);
    EXPECT_EQ(p.dtype, DType::F32);
    EXPECT_EQ(p.rows, 3);
    EXPECT_EQ(p.cols, 5);
    EXPECT_EQ(p.offset + 60, kNpy.size());
}

TEST(Npy, DtypesWithoutANameInNumPyAreTheirBits) {
    const std::pair<const char*, DType> cases[] = {{"<f4", DType::F32},  {"<f2", DType::F16},  {"<u2", DType::BF16},
                                                   {"|V2", DType::BF16}, {"<V2", DType::BF16}, {"|u1", DType::E4M3},
                                                   {"|V1", DType::E4M3}};
    for (const auto& [descr, dtype] : cases)
        EXPECT_EQ(npy_region(npy(descr, "2, 8", std::string(static_cast<size_t>(16 * size_of(dtype)), 'x'))).dtype,
                  dtype)
            << descr;
}

TEST(Npy, OnlyDtypesWithANameAreCertainAndOthersCanBeSaid) {
    const auto region = [](const char* descr, std::optional<DType> as) {
        const size_t width = descr[2] - '0';
        const std::string content = npy(descr, "2, 8", std::string(16 * width, 'x'));
        return region_in_npy("x.npy", content, content.size(), as);
    };
    for (const char* descr : {"<u2", "|V2", "<V2", "|u1", "|V1", "<V1"}) EXPECT_EQ(region(descr, {}).untyped, descr);
    for (const char* descr : {"<f4", "<f2"}) EXPECT_EQ(region(descr, {}).untyped, "");
    EXPECT_EQ(region("<V1", DType::E4M3).untyped, "") << "it was said";
    EXPECT_EQ(region("<u2", DType::F16).dtype, DType::F16);
    EXPECT_EQ(region("<f4", DType::F32).dtype, DType::F32);
    EXPECT_TRUE(contains(error_of([&] { region("<f4", DType::E4M3); }), "has dtype '<f4', not e4m3; leave out"));
    EXPECT_TRUE(
        contains(error_of([&] { region("|V1", DType::BF16); }), "has dtype '|V1' of 1 bytes, bf16 would have 2"));
}

TEST(Npy, VersionTwoHasALongerLength) {
    const std::string header = "{'descr': '<f2', 'fortran_order': False, 'shape': (1, 2), }";
    const auto length = static_cast<uint32_t>(header.size());
    const std::string content =
        std::string("\x93NUMPY\x02\x00", 8) + std::string(reinterpret_cast<const char*>(&length), 4) + header + "abcd";
    EXPECT_EQ(npy_region(content).offset, 12 + header.size());
}

TEST(Npy, SpacesAndATrailingCommaDoNotMatter) {
    const std::string content = npy("{'descr':'<f2','fortran_order':False,'shape':(1,2)}", "abcd");
    EXPECT_EQ(npy_region(content).cols, 2);
}

TEST(Npy, ErrorsNameWhatTheFileHas) {
    const std::pair<std::string, const char*> cases[] = {
        {"not a file of that kind", "is not a .npy file"},
        {npy("<f8", "2, 2", std::string(32, 'x')), "has dtype '<f8', must be float32"},
        {npy(">f4", "2, 2", std::string(16, 'x')), "has dtype '>f4'"},
        {npy("<f4", "4,", std::string(16, 'x')), "must have two dimensions"},
        {npy("<f4", "", std::string(4, 'x')), "has shape (), must have two dimensions"},
        {npy("<f4", "2, 2, 1", std::string(16, 'x')), "has shape (2,2,1), must have two dimensions"},
        {npy("<f4", "-2, -2", std::string(16, 'x')), "must have two dimensions"},
        {npy("<f4", "2, 2", std::string(15, 'x')), "has 15 bytes of data, but shape [2, 2] needs 16"},
        {npy("<f4", "2, 2", std::string(17, 'x')), "has 17 bytes of data, but shape [2, 2] needs 16"},
        {npy("<f4", "4294967296, 4294967296", ""), "which is no size for a matrix"},
        {npy("<f4", "9223372036854775807, 2", ""), "which is no size for a matrix"},
        {npy("<f4", "9223372036854775808, 2", ""), "must have two dimensions"},
        {npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", std::string(16, 'x')),
         "is stored by columns"},
        {npy("{'descr': '<f4', 'shape': (2, 2), }", std::string(16, 'x')), "without 'fortran_order':"},
        {npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 2), }", std::string(16, 'x')),
         "without 'descr':'"},
    };
    for (const auto& [content, text] : cases) {
        const Error e = error_of([&] { npy_region(content); });
        EXPECT_EQ(e.code(), Errc::Io);
        EXPECT_TRUE(contains(e, text)) << e.what() << "\nwanted: " << text;
        EXPECT_TRUE(contains(e, "x.npy: ")) << e.what();
    }
}

TEST(Npy, DamageIsAnErrorAndNeverAPlaceOutsideOfTheFile) { expect_damage_is_found(npy_region, kNpy, kNpy.size() - 60); }

TEST(Safetensors, PlaceIsWhereTheHeaderSays) {
    const FileRegion p = tensor_region(kTensors);
    EXPECT_EQ(p.dtype, DType::BF16);
    EXPECT_EQ(p.rows, 3);
    EXPECT_EQ(p.cols, 5);
    EXPECT_EQ(p.offset + 30, kTensors.size());
}

TEST(Safetensors, ErrorsNameWhatTheFileHas) {
    const auto entry = [](const std::string& fields) {
        return safetensors(R"({"w":{)" + fields + "}}", std::string(16, 'x'));
    };
    const std::pair<std::string, const char*> cases[] = {
        {"short", "is not a .safetensors file"},
        {std::string(8, '\xff') + "{}", "ends inside of its header"},
        {safetensors("{\"w\":", ""), "has a header that is not JSON at byte 14; the file is damaged"},
        {safetensors("[1, 2]", ""), "has a header that is not JSON as tensors have it"},
        {safetensors("{\"w\":1e999}", ""), "has a header that is not JSON as tensors have it"},
        {safetensors(R"({"u":{},"v":{}})", ""), "has no tensor 'w'; it has: u, v"},
        {safetensors(R"({"w":7})", ""), "describes 'w' as 7, must give its dtype, a shape like [2, 3] and"},
        {entry(R"("dtype":"F32","shape":[2,2])"), R"(describes 'w' as {"dtype":"F32","shape":[2,2]}, must give)"},
        {entry(R"("dtype":"F32","shape":"2","data_offsets":[0,16])"), "describes 'w' as {"},
        {entry(R"("dtype":"F64","shape":[1,2],"data_offsets":[0,16])"),
         "has dtype F64, must be F32, F16, BF16 or F8_E4M3"},
        {entry(R"("dtype":"F32","shape":[4],"data_offsets":[0,16])"), "'w' has 1 dimensions, must have two"},
        {entry(R"("dtype":"F32","shape":[2,2],"data_offsets":[0,17])"), "lies outside of the file"},
        {entry(R"("dtype":"F32","shape":[2,2],"data_offsets":[16,0])"), "lies outside of the file"},
        {entry(R"("dtype":"F32","shape":[2,2],"data_offsets":[0])"), "lies outside of the file"},
        {entry(R"("dtype":"F32","shape":[2,2],"data_offsets":[0,18446744073709551615])"), "lies outside of the file"},
        {entry(R"("dtype":"F32","shape":[2,3],"data_offsets":[0,16])"),
         "has 16 bytes of data, but shape [2, 3] needs 24"},
        {entry(R"("dtype":"F32","shape":[-2,-2],"data_offsets":[0,16])"), "which is no size for a matrix"},
        {entry(R"("dtype":"F32","shape":[4294967296,4294967297],"data_offsets":[0,16])"),
         "which is no size for a matrix"},
    };
    for (const auto& [content, text] : cases) {
        const Error e = error_of([&] { tensor_region(content); });
        EXPECT_EQ(e.code(), Errc::Io);
        EXPECT_TRUE(contains(e, text)) << e.what() << "\nwanted: " << text;
        EXPECT_FALSE(contains(e, "json.exception")) << e.what();
    }
}

TEST(Safetensors, BytesAreCodesOnlyWhereItIsSaid) {
    const std::string content =
        safetensors(R"({"w":{"dtype":"U8","shape":[2,8],"data_offsets":[0,16]}})", std::string(16, 'x'));
    const auto region = [&](std::optional<DType> as) {
        return region_in_safetensors("x.safetensors", content, content.size(), "w", as);
    };
    EXPECT_TRUE(contains(error_of([&] { region({}); }), "'w' has dtype U8, must be F32, F16, BF16 or F8_E4M3"));
    EXPECT_EQ(region(DType::E4M3).dtype, DType::E4M3);
    EXPECT_TRUE(contains(error_of([&] { region(DType::F16); }), "has dtype 'U8' of 1 bytes, f16 would have 2"));
}

TEST(Safetensors, WithoutANameItListsTheTensorsButNotTheMetadata) {
    const Error e = error_of([&] { tensor_region(kTensors, ""); });
    EXPECT_TRUE(contains(e, "write FILE:TENSOR with one of: v, w")) << e.what();
    EXPECT_TRUE(contains(error_of([&] { tensor_region(kTensors, "__metadata__"); }), "has no tensor '__metadata__'"));
}

TEST(Safetensors, AListOfManyTensorsIsCut) {
    std::string header = "{";
    for (int i = 0; i < 50; ++i) header += fmt::format("{}\"t{:02}\":{{}}", i ? "," : "", i);
    const Error e = error_of([&] { tensor_region(safetensors(header + "}", "")); });
    EXPECT_TRUE(contains(e, "t19 and 30 more")) << e.what();
}

TEST(Safetensors, DamageIsAnErrorAndNeverAPlaceOutsideOfTheFile) {
    expect_damage_is_found([](const std::string& content) { return tensor_region(content); }, kTensors,
                           kTensors.size() - 46);
}

}  // namespace finegemm::test
