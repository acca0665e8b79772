// K-blocks of a CPU tile, decoded. Layer engine. Included once for each instruction set, by what Highway compiles so.
#if defined(FINEGEMM_CPU_PANELS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FINEGEMM_CPU_PANELS_H
#undef FINEGEMM_CPU_PANELS_H
#else
#define FINEGEMM_CPU_PANELS_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include <finegemm/gemm/mx_scale.h>

#include "engine/any_address.h"
#include "ops/gemm/call.h"
#include "ops/gemm/cpu_tiles.h"
#include "plan/elements.h"

HWY_BEFORE_NAMESPACE();
namespace finegemm::HWY_NAMESPACE {

constexpr int64_t kBlock = kScaleBlock;
constexpr int64_t kPitch = kCpuTileCols + 16;  // of rows of B: with a power of two they would share a few sets of L1

struct Range {
    int64_t begin, size;
};

Range block_range(const CpuTile& t, int64_t kb) {
    return {kb * kBlock, std::min<int64_t>(kBlock, t.args.a.cols - kb * kBlock)};
}
template <typename Code>
const Code* codes(const ConstMatrix& x, int64_t row) {
    return static_cast<const Code*>(x.data) + row * x.row_stride;
}
/// The scale of a part of a k-block, of which MX scales alone have several.
float scale_at(const ConstMatrix& s, int64_t row, int64_t kb, uint32_t part = 0) {
    const auto scale = load<float>(s.data, row * s.row_stride + kb * s.col_stride);
    return is_mx(s) ? float_of_bits(mx_scale_bits(float_bits(scale), part)) : scale;
}

/// The values of all codes, as type T.
template <typename T, typename Decode>
struct Table {
    T of[256];
    constexpr Table() : of{} {
        for (int c = 0; c < 256; ++c) of[c] = static_cast<T>(Decode()(static_cast<uint8_t>(c)));
    }
};
template <typename T, typename Decode>
constexpr Table<T, Decode> kTable;

/// One k-block of the tile, decoded: A by rows, B transposed, the code of zero behind the end of K.
template <typename T>
struct Panels {
    struct Free {
        void operator()(T* memory) const { std::free(memory); }
    };
    using Memory = std::unique_ptr<T[], Free>;
    Memory a, b;

    explicit Panels(int64_t rows) : a(allocate(rows * kBlock)), b(allocate(int64_t{kBlock} * kPitch)) {}

    /// Aligned to two lines of the cache; the count is a multiple of a block.
    static Memory allocate(int64_t count) {
        Memory memory(static_cast<T*>(std::aligned_alloc(kBlock, static_cast<size_t>(count) * sizeof(T))));
        if (!memory) throw std::bad_alloc();
        return memory;
    }

    template <typename Decode>
    void load_a(const CpuTile& t, int64_t kb) {
        using Code = typename Decode::Code;
        const auto [begin, size] = block_range(t, kb);
        const ConstMatrix& of_a = t.args.a;
        for (int64_t r = 0; r < t.rows; ++r) {
            if (of_a.col_stride == 1) decode<Decode, 1>(codes<Code>(of_a, t.row + r) + begin, size, &a[r * kBlock]);
            std::fill_n(&a[r * kBlock + size], kBlock - size, value<Decode>(0));
        }
        if (of_a.col_stride != 1) decode_columns<Decode, kBlock, 1>(of_a, t.row, t.rows, begin, size, a.get());
    }
    template <typename Decode>
    void load_b(const CpuTile& t, int64_t kb) {
        using Code = typename Decode::Code;
        const auto [begin, size] = block_range(t, kb);
        const ConstMatrix& of_b = t.args.b;
        if (size < kBlock || t.cols < kCpuTileCols) std::fill_n(b.get(), kBlock * kPitch, value<Decode>(0));
        if (of_b.col_stride != 1) return decode_columns<Decode, 1, kPitch>(of_b, t.col, t.cols, begin, size, b.get());
        for (int64_t c = 0; c < t.cols; ++c) {
            const Code* from = codes<Code>(t.args.b, t.col + c) + begin;
            // 128 rows are too many streams for the hardware to see the next block coming.
            const int64_t end = std::min(2 * kBlock, t.args.b.cols - begin);
            for (int64_t line = kBlock; line < end; line += 64 / int64_t{sizeof(Code)}) hwy::Prefetch(from + line);
            decode<Decode, kPitch>(from, size, &b[c]);
        }
    }

private:
    /// Columns of K, which are those of memory of an MN-major operand.
    template <typename Decode, int64_t RowStep, int64_t KStep>
    static void decode_columns(const ConstMatrix& x, int64_t row, int64_t rows, int64_t begin, int64_t size, T* to) {
        using Code = typename Decode::Code;
        for (int64_t k = 0; k < size; ++k) {
            const Code* from = codes<Code>(x, row) + (begin + k) * x.col_stride;
            for (int64_t r = 0; r < rows; ++r) to[r * RowStep + k * KStep] = value<Decode>(from[r * x.row_stride]);
        }
    }
    template <typename Decode, int64_t Step>
    static void decode(const typename Decode::Code* HWY_RESTRICT from, int64_t size, T* HWY_RESTRICT to) {
        constexpr int64_t kUnit = 16 / sizeof(typename Decode::Code);  // K is a multiple of it
        for (int64_t k = 0; k < size; k += kUnit)
            for (int64_t i = k; i < k + kUnit; ++i) to[i * Step] = value<Decode>(from[i]);
    }
    template <typename Decode>
    static T value(typename Decode::Code code) {
        if constexpr (sizeof(code) == 1) return kTable<T, Decode>.of[code];
        else return static_cast<T>(Decode()(code));
    }
};

template <typename Type>
struct ToFloat {
    using Code = Type::Code;
    constexpr float operator()(Code c) const { return Type::value(c); }
};

}  // namespace finegemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
