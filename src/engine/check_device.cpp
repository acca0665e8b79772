// The validation mode on a GPU: copies of what it looks at. Layer engine.
#include "engine/check_device.h"

#include <vector>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "engine/check_values.h"

namespace finegemm {

namespace {

class Copies {
public:
    Copies(const cuda::Driver& driver, Stream stream, const char* what) : driver_(driver), stream_(stream) {
        int capturing = 0;
        driver_.check(driver_.api.StreamIsCapturing(stream, &capturing), "cuStreamIsCapturing");
        if (capturing)
            throw Error(Errc::InvalidArgument,
                        fmt::format("check_values: copies {} to the host, which a capturing stream cannot do; turn it "
                                    "off for calls that are captured into a CUDA graph",
                                    what));
    }

    template <typename T>
    std::vector<T> of(const T* from, int64_t count) const {
        std::vector<T> host(static_cast<size_t>(count));
        driver_.check(driver_.api.MemcpyDtoHAsync(host.data(), reinterpret_cast<cuda::DevicePtr>(from),
                                                  host.size() * sizeof(T), stream_),
                      "cuMemcpyDtoHAsync");
        driver_.check(driver_.api.StreamSynchronize(stream_), "cuStreamSynchronize");
        return host;
    }
    /// From the first element to the last, with what lies between.
    template <typename T>
    std::vector<T> of(const ConstStack& stack) const {
        const ConstMatrix& s = stack.matrix;
        if (s.rows == 0 || s.cols == 0) return {};
        const auto reach = [](int64_t count, int64_t stride) { return count > 1 ? (count - 1) * stride : 0; };
        return of(static_cast<const T*>(s.data),
                  reach(stack.count, stack.stride) + reach(s.rows, s.row_stride) + reach(s.cols, s.col_stride) + 1);
    }

private:
    const cuda::Driver& driver_;
    Stream stream_;
};

}  // namespace

void check_device_values(const cuda::Driver& driver, const Call& call) {
    const Copies copies(driver, call.options.stream, call.grouping == Grouping::None ? "scales" : "groups and scales");
    GemmOptions options = call.options;
    std::vector<int32_t> numbers;
    std::vector<std::vector<int32_t>> of_rows;
    Call on_host(call, options);
    plan::arguments_of<RowIndices>(
        [&](const char*, RowIndices& x) {
            if (!plan::is_given(x, {})) return;
            of_rows.push_back(copies.of(static_cast<const int32_t*>(x.rows.data), x.rows.rows));
            x.rows.data = of_rows.back().data();
        },
        options.epilogue);
    if (call.grouping != Grouping::None && call.groups.device.type == DeviceType::Cuda) {
        numbers = copies.of(call.groups.data, call.groups.size);
        on_host.groups.data = numbers.data();
        check_group_numbers(on_host);
    }
    if (call.a.matrix.cols == 0 || !call.scaled()) return;
    const auto sfa = copies.of<float>(call.sfa), sfb = copies.of<float>(call.sfb);
    on_host.sfa.matrix.data = sfa.data();
    on_host.sfb.matrix.data = sfb.data();
    check_scale_values(on_host);
}

namespace {

template <typename NumberedCall>
void check_copied_numbers(const cuda::Driver& driver, const NumberedCall& call) {
    const Copies copies(driver, call.options.stream, "numbers");
    NumberedCall on_host = call;
    std::vector<std::vector<int32_t>> all;
    std::vector<int64_t> wide;  // of experts
    visit_numbers(on_host, [&](ConstMatrix& numbers) {
        if (numbers.dtype == DType::I64) {
            wide = copies.of<int64_t>({numbers, 1, 0});
            numbers.data = wide.data();
            return;
        }
        all.push_back(copies.of<int32_t>({numbers, 1, 0}));
        numbers.data = all.back().data();
    });
    check_numbers(on_host);
}

}  // namespace

void check_device_numbers(const cuda::Driver& driver, const MqaCall& call) { check_copied_numbers(driver, call); }
void check_device_numbers(const cuda::Driver& driver, const PagedMqaCall& call) { check_copied_numbers(driver, call); }
void check_device_numbers(const cuda::Driver& driver, const RouteCall& call) { check_copied_numbers(driver, call); }
void check_device_numbers(const cuda::Driver& driver, const PermuteCall& call) { check_copied_numbers(driver, call); }
void check_device_numbers(const cuda::Driver& driver, const CombineCall& call) { check_copied_numbers(driver, call); }

}  // namespace finegemm
