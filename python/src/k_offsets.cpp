// Groups of K as Python gives them: offsets or sizes. Layer: front end.
#include "k_offsets.h"

#include <algorithm>
#include <cstdint>

#include <finegemm/error.h>
#include <fmt/format.h>

#include "arguments.h"

namespace finegemm::python {

namespace {

constexpr int64_t kScaleBlock = 128;

/// A vector of int32, or a list or tuple of ints, which are copied to `room`.
Numbers numbers_or_list(Tensors& tensors, const char* name, PyObject* x, std::vector<int32_t>& room) {
    if (!PyList_Check(x) && !PyTuple_Check(x)) return tensors.numbers(name, x);
    const Py_ssize_t size = PySequence_Size(x);
    for (Py_ssize_t i = 0; i < size; ++i) room.push_back(integer32(name, Object(PySequence_GetItem(x, i)).get()));
    return {room.data(), static_cast<int64_t>(room.size()), Device{}};
}

}  // namespace

Numbers k_offsets_of(Tensors& tensors, PyObject* offsets, std::vector<int32_t>& room) {
    const Numbers numbers = numbers_or_list(tensors, "offsets", offsets, room);
    if (numbers.size < 2)
        throw Error(Errc::InvalidArgument,
                    fmt::format("offsets: has length {}, must have at least 2: the begin of each group and the end of "
                                "the last one; pass as many, or pass sizes",
                                numbers.size));
    return numbers;
}

Numbers k_offsets_of_sizes(Tensors& tensors, PyObject* sizes, std::vector<int32_t>& room) {
    std::vector<int32_t> list;
    const Numbers numbers = numbers_or_list(tensors, "sizes", sizes, list);
    if (numbers.device.type != DeviceType::Cpu)
        throw Error(Errc::InvalidArgument,
                    "sizes: are on a GPU, must be on the CPU, where they are added up; pass their sums as offsets");
    int64_t end = 0;
    room = {0};
    for (int64_t i = 0; i < numbers.size; ++i) {
        const int32_t size = numbers.data[i];
        if (size < 0 || size % kScaleBlock != 0)
            throw Error(
                Errc::InvalidArgument,
                fmt::format("sizes: [{}] is {}, must be a multiple of {} and not negative; pad groups with zeros", i,
                            size, kScaleBlock));
        end += size;
        room.push_back(static_cast<int32_t>(std::min<int64_t>(end, INT32_MAX)));
    }
    if (end > INT32_MAX)
        throw Error(Errc::InvalidArgument,
                    fmt::format("sizes: add up to {}, must add up to K, which is at most {}; use several calls", end,
                                INT32_MAX));
    return {room.data(), static_cast<int64_t>(room.size()), Device{}};
}

void check_sum_of_sizes(int64_t sum, int64_t k) {
    if (sum != k)
        throw Error(
            Errc::InvalidArgument,
            fmt::format("sizes: add up to {}, must add up to K = {}; look at what computed them, or pass offsets "
                        "where k of no group is between",
                        sum, k));
}

}  // namespace finegemm::python
