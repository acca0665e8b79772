// Random choices of tests. Layer tests.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>

namespace finegemm::test {

class Random {
public:
    explicit Random(uint32_t seed) : engine_(seed) {}
    int64_t any(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(engine_); }
    bool one_in(int64_t n) { return any(1, n) == 1; }
    template <typename T>
    T one_of(std::initializer_list<T> all) {
        return all.begin()[any(0, static_cast<int64_t>(all.size()) - 1)];
    }
    float normal(float deviation) { return std::normal_distribution<float>(0, deviation)(engine_); }

private:
    std::mt19937 engine_;
};

}  // namespace finegemm::test
