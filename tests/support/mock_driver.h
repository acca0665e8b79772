// The mock of the CUDA driver and how tests steer it. Layer tests.
// The mock is a library of its own, opened as a driver is; memory of its GPUs is the host's.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <finegemm/four_bit/four_bit.h>
#include <finegemm/gemm/add_pieces.h>
#include <finegemm/gemm/group_list.h>
#include <finegemm/gemm/params.h>
#include <finegemm/mqa/mqa.h>
#include <finegemm/mqa/schedule.h>
#include <finegemm/prenorm/prenorm.h>
#include <finegemm/quantize/columns.h>
#include <finegemm/quantize/reencode.h>
#include <finegemm/quantize/swiglu.h>
#include <finegemm/routing/peers.h>
#include <finegemm/routing/slots.h>
#include <finegemm/scale_layout/scale_layout.h>
#include <finegemm/topk/topk.h>

namespace finegemm::mock {

struct Gpu {
    std::string name = "NVIDIA H200";
    int major = 9, minor = 0, sms = 132, smem_bytes = 232448, l2_bytes = 50 << 20;
    int clock_khz = 1980000, memory_khz = 3201000, bus_bits = 6144;
    int retains = 0;  // of its primary context
};

struct Launch {
    std::string entry;
    int gpu;
    uint32_t grid, block, cluster, smem_bytes;
    bool programmatic;  // it may overlap with the kernel before it
    void* stream;
    SegmentedParams gemm;                      // of a kernel "FineGEMM_*", also of the next ones
    QuantizeParams quantize{};                 // of a kernel "FineGEMM_quantize_*"
    QuantizeColumnsParams quantize_columns{};  // of a kernel "FineGEMM_quantize_columns_*"
    ReencodeParams reencode{};                 // of a kernel "FineGEMM_reencode_*"
    ScaleLayoutParams scale_layout{};          // of a kernel "FineGEMM_scale_layout_*"
    MqaParams mqa{};                           // of a kernel "FineGEMM_*mqa_logits_*"
    MqaScheduleParams mqa_schedule{};          // of a kernel "FineGEMM_paged_mqa_schedule"
    PrenormParams prenorm{};                   // of a kernel "FineGEMM_prenorm_*"
    SwigluParams swiglu{};                     // of a kernel "FineGEMM_swiglu_quantize_*"
    RouteParams route{};                       // of a kernel "FineGEMM_routing_route*"
    SlotsParams slots{};                       // of a kernel "FineGEMM_ep_slots"
    PullParams pull{};                         // "FineGEMM_ep_pull"
    PushParams push{};                         // "FineGEMM_ep_push"
    PermuteParams permute{};                   // of a kernel "FineGEMM_routing_permute*"
    CombineParams combine{};                   // of a kernel "FineGEMM_routing_combine"
    TopkParams topk{};                         // of a kernel "FineGEMM_topk_*"
    FourBitParams four_bit{};                  // of a kernel "FineGEMM_four_bit_*"
    GroupedParams grouped;                     // of a kernel "FineGEMM_*_grouped"
    CountedChoices choices{};                  // of a kernel "FineGEMM_*_grouped_choices"
    const uint32_t* stored = nullptr;          // of a kernel "FineGEMM_*_grouped_reports"
    KGroupedParams k_grouped;                  // of a kernel "FineGEMM_*_kgrouped*"
    SummedParams summed;                       // of a kernel "FineGEMM_*_summed"
    AddPiecesParams add_pieces;                // of a kernel "FineGEMM_add_pieces_*"
    GroupListParams group_list;                // of a kernel "FineGEMM_group_list"
    AffineParams affine;                       // of a kernel "FineGEMM_*_affine"
    DColumns heads;                            // of a kernel "FineGEMM_*_head_gaps"
    IndexedParams indexed;                     // of a kernel "FineGEMM_*_indexed"
};

/// What a tensor map describes, as the mock's encoding keeps it.
struct Description {
    const void* data;
    uint64_t cols, rows, row_stride_bytes;
    uint32_t box_cols, box_rows;
    int32_t type, swizzle;
    uint64_t count = 0, stride_bytes = 0;  // of a stack; 0: there is none
    uint32_t box_count = 1;
    bool operator==(const Description&) const = default;
};
static_assert(sizeof(Description) <= sizeof(TensorMap));

inline Description description_of(const TensorMap& map) {
    Description d;
    std::memcpy(static_cast<void*>(&d), &map, sizeof d);
    return d;
}

/// How much a miss brings to L2: CUtensorMapL2promotion. Not part of a description.
inline constexpr size_t kPromotionAt = sizeof(TensorMap) - sizeof(int32_t);
static_assert(sizeof(Description) <= kPromotionAt);
inline int32_t l2_promotion_of(const TensorMap& map) {
    int32_t l2;
    std::memcpy(&l2, reinterpret_cast<const uint8_t*>(&map) + kPromotionAt, sizeof l2);
    return l2;
}
inline constexpr int32_t kPromotes128 = 2, kPromotes256 = 3;

/// Bytes of an element, which is a byte, a float or one of the two-byte types.
inline uint32_t element_bytes(const Description& d) { return d.type == 0 ? 1 : d.type == 7 ? 4 : 2; }
inline uint32_t box_bytes(const Description& d) { return d.box_count * d.box_rows * d.box_cols * element_bytes(d); }

struct Failure {
    int code = 0;
    int after = 0;  // calls that succeed before
};

/// All of the driver's state. Tests set it before they call, and look at it when the calls have returned.
struct State {
    std::mutex mutex;
    std::atomic<bool> recording{true};  // off: nothing is logged, and nothing fails on request
    std::vector<Gpu> gpus{Gpu{}};
    int version = 12040;
    std::set<std::string> missing;            // entry points that the driver does not have
    std::map<std::string, Failure> failures;  // by entry point
    bool stub = false;
    bool capturing = false;   // a stream of the process is, in the strictest mode
    bool peer_access = true;  // between GPUs
    int resident_ctas = 2, resident_clusters = 60;
    std::vector<std::string> resolved;  // entry points that were asked for
    std::vector<std::string> calls;
    std::vector<Launch> launches;
    int libraries = 0;  // loaded now
    int events = 0, allocations = 0, pools = 0, streams = 0, graphs = 0,
        opened = 0;                           // alive now
    double clock_us = 0;                      // of the GPUs: what events record
    std::map<std::string, double> kernel_us;  // what a launch of this entry takes; others take a millisecond

    long count(const std::string& call) const {
        long n = 0;
        for (const std::string& c : calls) n += c == call;
        return n;
    }
};

/// The opened mock, as new. `path`: FINEGEMM_MOCK_DRIVER.
class Driver {
public:
    explicit Driver(const char* path) : library_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
        function<void()>("mock_reset")();
    }

    State& state() const { return *function<State*()>("mock_state")(); }
    State* operator->() const { return &state(); }
    /// Contexts on the calling thread's stack.
    size_t context_depth() const { return function<size_t()>("mock_context_depth")(); }
    /// Also while other threads call.
    void fail(const std::string& call, int code, int after = 0) const {
        const std::scoped_lock lock(state().mutex);
        state().failures[call] = {code, after};
    }

    template <typename F>
    F* function(const char* name) const {
        return reinterpret_cast<F*>(dlsym(library_, name));
    }

private:
    void* library_;
};

}  // namespace finegemm::mock
