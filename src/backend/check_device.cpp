// The validation mode on a GPU: copies of what it looks at. Layer backend.
#include "backend/check_device.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "backend/check_groups.h"
#include "backend/check_scales.h"

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
    /// From the first scale to the last, with what lies between.
    std::vector<float> of(const ConstStack& scales) const {
        const ConstMatrix& s = scales.matrix;
        const auto reach = [](int64_t count, int64_t stride) { return count > 1 ? (count - 1) * stride : 0; };
        return of(static_cast<const float*>(s.data),
                  reach(scales.count, scales.stride) + reach(s.rows, s.row_stride) + reach(s.cols, s.col_stride) + 1);
    }

private:
    const cuda::Driver& driver_;
    Stream stream_;
};

}  // namespace

void check_device_scales(const cuda::Driver& driver, const GemmArgs& args, Stream stream) {
    const Copies copies(driver, stream, "scales");
    for (const auto& [name, s] : {std::pair{"sfa", args.sfa}, std::pair{"sfb", args.sfb}}) {
        if (s.rows == 0 || s.cols == 0) continue;
        check_scales_host(name, copies.of(ConstStack{s}).data(), s.rows, s.cols, s.row_stride, s.col_stride);
    }
}

void check_device_groups(const cuda::Driver& driver, const GroupedGemmArgs& args, Stream stream) {
    const Copies copies(driver, stream, "groups and scales");
    GroupedGemmArgs on_host = args;
    const std::vector<int32_t> numbers = copies.of(args.groups.data, args.groups.size);
    on_host.groups.data = numbers.data();
    check_group_numbers(on_host);
    const std::vector<float> sfa = copies.of(args.sfa), sfb = copies.of(args.sfb);
    on_host.sfa.matrix.data = sfa.data();
    on_host.sfb.matrix.data = sfb.data();
    check_group_scales(on_host);
}

void check_device_k_groups(const cuda::Driver& driver, const KGroupedGemmArgs& args, Stream stream) {
    const Copies copies(driver, stream, "groups and scales");
    KGroupedGemmArgs on_host = args;
    std::vector<int32_t> offsets;
    if (args.offsets_device.type == DeviceType::Cuda) {
        offsets = copies.of(args.offsets, args.groups + 1);
        on_host.offsets = offsets.data();
        check_k_offsets(on_host);
    }
    if (args.a.cols == 0) return;
    const std::vector<float> sfa = copies.of(ConstStack{args.sfa}), sfb = copies.of(ConstStack{args.sfb});
    on_host.sfa.data = sfa.data();
    on_host.sfb.data = sfb.data();
    check_k_group_scales(on_host);
}

}  // namespace finegemm
