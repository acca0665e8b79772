// The table of types of elements: its rows agree with themselves and with what kernels have. Layer tests.
#include "plan/elements.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "plan/plan.h"

namespace finegemm {
namespace {

TEST(ElementTypes, AreToldApartByEveryName) {
    std::set<std::string_view> names, array_names, enumerators;
    for (const ElementType& x : kElementTypes) {
        EXPECT_TRUE(names.insert(x.name).second && array_names.insert(x.array_name).second &&
                    enumerators.insert(x.enumerator).second)
            << x.name;
        EXPECT_EQ(find_type(x.dtype), &x) << x.name;
        EXPECT_TRUE(!x.operand || &type_of(*x.operand) == &x) << x.name;
        EXPECT_TRUE(!x.operand || bytes_of(*x.operand) == size_of(x.dtype)) << x.name;
        EXPECT_TRUE(!x.output || &type_of(*x.output) == &x) << x.name;
    }
    EXPECT_EQ(find_type(DType{}), nullptr);
    EXPECT_EQ(name_of(DType{99}), "unknown (99)");
}

TEST(ElementTypes, ThatMayBeMultipliedHaveKernelsForEachTypeOfD) {
    for (const ElementType& of : kElementTypes)
        for (const DType d : of.results) {
            if (!is_unscaled(of) || !find_type(d)) continue;
            const Operand operand = unscaled(*of.operand), mn_major = unscaled(*of.operand, Major::MN);
            const auto expect = [&](Grouping grouping, const Operand& a, const Operand& b) {
                EXPECT_FALSE(plan::candidates({grouping, a, b, find_type(d)->output.value()}).empty())
                    << of.name << ", D in " << name_of(d);
            };
            for (const Grouping grouping : {Grouping::None, Grouping::Rows, Grouping::K})
                expect(grouping, operand, operand);
            for (const Grouping grouping : {Grouping::None, Grouping::Rows}) expect(grouping, operand, mn_major);
            for (const Grouping grouping : {Grouping::None, Grouping::K}) expect(grouping, mn_major, mn_major);
            expect(Grouping::None, mn_major, operand);
        }
}

/// Numbers of many magnitudes, those that lie between two codes among them.
std::vector<double> numbers() {
    std::vector<double> all = {0,           1,     1 + 0x1p-9, 1 + 0x1p-8, 1 + 0x1p-12,
                               1 + 0x1p-11, 65504, 0x1p-25,    0x1p-24,    0x1p-134};
    std::mt19937 random(1);
    std::uniform_real_distribution<> digits(1, 2);
    for (int exponent = -140; exponent < 120; ++exponent) all.push_back(std::ldexp(digits(random), exponent));
    return all;
}

TEST(ElementTypes, RoundWithinTheirBound) {
    for (const ElementType& x : kElementTypes) {
        if (!is_output(x)) continue;
        visit_codes(x.dtype, [&]<typename Type>(Type) {
            if constexpr (requires { Type::rounded(0.0); }) {
                const auto value = [](double from) { return static_cast<double>(Type::value(Type::rounded(from))); };
                for (const double positive : numbers())
                    for (const double number : {positive, -positive}) {
                        if (positive >= x.rounding.overflow) continue;
                        EXPECT_LE(std::abs(value(number) - number),
                                  std::max(positive * x.rounding.relative, x.rounding.smallest))
                            << x.name << ", " << number;
                    }
                EXPECT_TRUE(std::isinf(value(x.rounding.overflow))) << x.name;
                EXPECT_TRUE(std::isfinite(value(std::nextafter(x.rounding.overflow, 0)))) << x.name;
                EXPECT_TRUE(std::isnan(value(std::nan("")))) << x.name;
                EXPECT_EQ(Type::value(Type::magnitude(Type::rounded(-3.0))), 3) << x.name;
            } else {
                FAIL() << x.name << " is a type of D, but nothing rounds to it";
            }
        });
    }
}

TEST(ElementTypes, AreListedAsAlternatives) {
    EXPECT_EQ(names_of([](const ElementType& x) { return x.dtype == DType::E4M3; }), "e4m3");
    EXPECT_EQ(names_of(is_scaled, &ElementType::array_name), "float8_e4m3fn, float8_e5m2 or int8");
    EXPECT_EQ(names_of([](const ElementType&) { return true; }), "e4m3, bf16, f16, f32, e5m2 or i8");
}

}  // namespace
}  // namespace finegemm
