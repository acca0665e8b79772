// Random changes of scales' layout, with guards around what is written. Layer tests.
#pragma once

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "ops/scale_layout/call.h"

namespace finegemm::test {

/// What a problem may be made with; the rest is random.
struct ScaleLayoutWish {
    int64_t rows = 0, cols = 0;  // of scales that are not packed
    std::optional<ScaleGroupForm> groups{};
    std::optional<ScaleTransform> transform{};
};

/// Elements of a stack in memory of its own: where they lie, and how much that takes.
struct ScaleMemory {
    int64_t row_stride = 0, col_stride = 0, stride = 0, size = 0;

    int64_t at(int64_t matrix, int64_t r, int64_t c) const { return matrix * stride + r * row_stride + c * col_stride; }
};

class ScaleLayoutProblem {
public:
    static constexpr uint32_t kGuard = 0xdeadbeef;
    static constexpr int64_t kMargin = 64;  // words before and behind the output

    explicit ScaleLayoutProblem(std::mt19937& random, const ScaleLayoutWish& wish = {}) {
        const auto any = [&](int64_t least, int64_t most) {
            return std::uniform_int_distribution<int64_t>(least, most)(random);
        };
        const auto extent = [&] { return any(0, 3) == 0 ? any(1, 300) : any(1, 70); };
        transform = wish.transform.value_or(static_cast<ScaleTransform>(any(0, 3)));
        const int64_t forms = transform == ScaleTransform::Pack ? 3 : 1;
        form = wish.groups.value_or(any(0, 1) == 0 ? ScaleGroupForm::None : static_cast<ScaleGroupForm>(any(0, forms)));
        const bool of_k = form == ScaleGroupForm::KSizes || form == ScaleGroupForm::KPrefixSums;
        count = form == ScaleGroupForm::None ? any(1, 3) : 1;
        rows = wish.rows ? wish.rows : extent();
        cols = wish.cols ? wish.cols : extent();
        in_rows = any(0, 3) == 0 ? (rows + 127) / 128 : rows;
        alignment = int64_t{1} << any(0, 7);
        scale_k = any(0, 1) == 0 ? 32 : 128;
        if (form != ScaleGroupForm::None) make_groups(any);
        const int64_t words = (cols + 3) / 4;
        in_cols = transform == ScaleTransform::Unpack ? words : cols;
        out_cols = transform == ScaleTransform::Pack ? of_k ? packed_cols + any(0, 2) : words : cols;
        out_cols = std::max<int64_t>(out_cols, 1);
        in_memory = memory(any, in_rows, in_cols);
        out_memory = memory(any, rows, out_cols);
        power_of_two = transform == ScaleTransform::Round || (transform == ScaleTransform::Pack && any(0, 1) == 1);
        in.resize(static_cast<size_t>(in_memory.size));
        for (uint32_t& x : in) x = any(0, 9) == 0 ? special(any(0, 7)) : static_cast<uint32_t>(random());
    }

    /// Calls `body` with the call; the output is new.
    template <typename Body>
    void run(const Body& body) {
        storage.assign(static_cast<size_t>(out_memory.size + 2 * kMargin + 3), kGuard);
        const auto address = reinterpret_cast<uintptr_t>(storage.data() + kMargin);
        begin = kMargin + static_cast<int64_t>((16 - address % 16) % 16 / 4);
        const ScaleLayoutOptions options{.power_of_two_scales = power_of_two};
        const DType packed = DType::UE8M0x4, from = transform == ScaleTransform::Unpack ? packed : DType::F32;
        const DType to = transform == ScaleTransform::Pack ? packed : DType::F32;
        body(ScaleLayoutCall{
            {{in.data(), from, in_rows, in_cols, in_memory.row_stride, in_memory.col_stride}, count, in_memory.stride},
            {{storage.data() + begin, to, rows, out_cols, out_memory.row_stride, out_memory.col_stride},
             count,
             out_memory.stride},
            {form, numbers.data(), static_cast<int64_t>(numbers.size()), alignment, scale_k, {}},
            options});
        out.assign(storage.begin() + begin, storage.begin() + begin + out_memory.size);
    }

    uint32_t in_at(int64_t matrix, int64_t r, int64_t c) const {
        return in[static_cast<size_t>(in_memory.at(matrix, in_rows == rows ? r : r / 128, c))];
    }
    uint32_t out_at(int64_t matrix, int64_t r, int64_t c) const {
        return out[static_cast<size_t>(out_memory.at(matrix, r, c))];
    }

    /// Does all that is not an element of the output hold the guard's bits?
    bool surroundings_intact() const {
        std::vector<uint32_t> rest = storage;
        for (int64_t g = 0; g < count; ++g)
            for (int64_t r = 0; r < rows; ++r)
                for (int64_t c = 0; c < out_cols; ++c)
                    rest[static_cast<size_t>(begin + out_memory.at(g, r, c))] = kGuard;
        return std::ranges::all_of(rest, [](uint32_t x) { return x == kGuard; });
    }

    std::string name() const {
        return fmt::format("{} matrices of {}x{} to {}x{}, strides {} {} to {} {}, transform {}, groups {} of form {}",
                           count, in_rows, in_cols, rows, out_cols, in_memory.row_stride, in_memory.col_stride,
                           out_memory.row_stride, out_memory.col_stride, static_cast<int>(transform), numbers.size(),
                           static_cast<int>(form));
    }

    ScaleTransform transform = ScaleTransform::Copy;
    ScaleGroupForm form = ScaleGroupForm::None;
    int64_t count = 1, rows = 1, cols = 1, in_rows = 1, in_cols = 1, out_cols = 1;
    int64_t alignment = 1, scale_k = 128;
    bool power_of_two = false;
    ScaleMemory in_memory, out_memory;
    std::vector<int32_t> numbers;
    std::vector<uint32_t> in, out;  // out: from its first element on

private:
    static uint32_t special(int64_t i) {
        constexpr uint32_t kBits[] = {0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00001, 1, 0x007fffff, 0x7f7fffff};
        return kBits[i];
    }

    /// Row-major or MN-major, padded or not; matrices with gaps between them.
    template <typename Any>
    ScaleMemory memory(const Any& any, int64_t r, int64_t c) const {
        const bool mn_major = any(0, 1) == 1;
        const int64_t inner = mn_major ? r : c, outer = mn_major ? c : r, kind = any(0, 2);
        const int64_t pitch = kind == 0 ? inner : kind == 1 ? (inner + 3) / 4 * 4 : inner + any(1, 9);
        const int64_t stride = pitch * outer + 4 * any(0, 2);
        return {mn_major ? 1 : pitch, mn_major ? pitch : 1, stride, stride * count};
    }

    /// Groups that fit the rows, or that have the columns of `cols`, which it sets.
    template <typename Any>
    void make_groups(const Any& any) {
        const int64_t groups = any(1, any(0, 3) == 0 ? 600 : 12);
        int64_t end = 0, scales = 0;
        packed_cols = 0;
        for (int64_t g = 0; g < groups; ++g) {
            const int64_t begin_of = (end + alignment - 1) / alignment * alignment;
            if (form == ScaleGroupForm::Rows) {
                end = std::max(end, std::min(begin_of + any(0, 20), rows));
                numbers.push_back(static_cast<int32_t>(end));
                continue;
            }
            const int64_t k = any(0, 3) == 0 ? 0 : any(1, 20 * scale_k), of_group = (k + scale_k - 1) / scale_k;
            scales += of_group;
            packed_cols += (of_group + 3) / 4;
            end = begin_of + k;
            numbers.push_back(static_cast<int32_t>(form == ScaleGroupForm::KSizes ? k : end));
        }
        if (form != ScaleGroupForm::Rows) cols = std::max<int64_t>(scales, 1);
    }

    std::vector<uint32_t> storage;
    int64_t begin = 0, packed_cols = 0;
};

}  // namespace finegemm::test
