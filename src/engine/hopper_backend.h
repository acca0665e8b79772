// HopperBackend: the state that calls on a GPU share. Layer engine.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <shared_mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "cuda/graph.h"
#include "cuda/kernel.h"
#include "cuda/memory_pool.h"
#include "engine/hopper.h"
#include "engine/polled_provider.h"
#include "ops/ep/hopper.h"
#include "ops/four_bit/hopper.h"
#include "ops/gemm/epilogue_key.h"
#include "ops/gemm/hopper.h"
#include "ops/mqa/hopper.h"
#include "ops/prenorm/hopper.h"
#include "ops/quantize/hopper.h"
#include "ops/routing/hopper.h"
#include "ops/scale_layout/hopper.h"
#include "ops/swiglu/hopper.h"
#include "ops/topk/hopper.h"
#include "plan/table.h"

namespace finegemm {

/// A hash of plain values by their bytes, for what is kept on the hot path.
struct BytesHash {
    /// Not noexcept: libstdc++ then keeps each key's hash beside it instead of hashing neighbours at every look-up.
    template <typename T>
        requires std::has_unique_object_representations_v<T>
    size_t operator()(const T& value) const {
        return XXH3_64bits(&value, sizeof value);
    }
};

/// A GEMM kernel on the device.
struct GemmKernel {
    GemmConfig config;
    cuda::Kernel kernel;
    Computing computing;  // by the name that it is asked for by, whatever layout of scales it is for
};

/// All that the launch of a call depends on: calls that agree share its parameters, tensor maps included. Offsets on
/// the host are not part of it: what depends on them is kept for those of the last call.
struct CallKey {
    struct Operand {
        const void* data;
        int64_t stride, stack_stride;  // from row to row; of an MN-major A or B from column to column
    } a, b, d;
    struct Scales {
        Operand scales;
        int64_t col_stride;
    } sfa, sfb;
    int64_t m, n, k;
    const int32_t* numbers;  // of groups, on the device
    int64_t group_count, alignment, expected_m;
    int32_t num_sms;
    uint8_t grouping, form;  // and four and five bits up: MX scales of A and of B; the form of groups of rows, the
                             // layout of those of K
    uint8_t dtypes;          // of A, and four bits up of D
    uint8_t flags;  // bits: row_b_scales, batch_invariant, accumulate, prefetch_weights, MN-major A and B, whether one
                    // of A and B is e4m3 and the other e5m2, and stores_sums
    const GemmKernel* named;  // null: the planner's choice
    struct Choices {          // that a kernel counts, or where it reports rows; none: zeros
        const void* ids;
        int64_t row_stride, first;
        uint32_t count, k_and_wide;  // wide: the lowest bit
        const void* stored;
    } choices;
    EpilogueKey epilogue;
    int64_t d_height;  // behind what is hashed: it differs from m only where an epilogue has numbers of rows
    /// As bytes: member by member takes ten times as many branches.
    bool operator==(const CallKey& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }
};

/// Most calls count no choices and have no epilogue, and XXH3 takes half as long for what has at most 240 bytes.
struct CallKeyHash {
    size_t operator()(const CallKey& key) const {
        constexpr size_t kBefore = offsetof(CallKey, choices);
        static_assert(kBefore <= 240 && std::has_unique_object_representations_v<CallKey>);
        size_t hash = XXH3_64bits(&key, kBefore);
        if (key.choices.ids || key.choices.stored) hash ^= BytesHash()(key.choices);
        if (!(key.epilogue == kNoEpilogueKey)) hash ^= BytesHash()(key.epilogue);
        return hash;
    }
};

/// The parameters of a launch for groups of K whose offsets the host knows.
struct HostGroups {
    std::vector<int32_t> offsets;
    KGroupedParams params;
    std::vector<GroupListParams> lists;                  // none: params have all groups
    std::shared_ptr<const cuda::Graph> graph = nullptr;  // of the launches
};

/// A kernel, its grid and its parameters.
struct Launch {
    const GemmKernel* kernel;
    uint32_t grid;
    LaunchParams params;
    std::shared_ptr<HostGroups> of_host = nullptr;       // for the offsets of the last call
    std::shared_ptr<const cuda::Graph> graph = nullptr;  // of a sum: its kernels, and its memory
};

/// The kernels of an operation that have been loaded.
template <typename Config>
struct KernelsOf {
    std::array<std::unique_ptr<const cuda::Kernel>, Config::kCount> slots;
};

/// Launches of an operation that are worth keeping, and the kernel of each.
template <typename OperationLaunch>
struct KeptLaunch {
    const cuda::Kernel* kernel;
    OperationLaunch launch;
};
template <typename Key, typename OperationLaunch>
using KeptLaunches = std::unordered_map<Key, std::shared_ptr<const KeptLaunch<OperationLaunch>>, BytesHash>;

class HopperBackend final : public Backend {
public:
    HopperBackend(const Options& options, int index, KernelProvider provider);

    const Computing& gemm(const Call& call) override;
    void check_values(const Call& call) override;
    void run(const Operation& operation) override;
    std::vector<plan::Problem> problems() const override;

private:
    CallKey key_of(const Call& call) const;
    std::shared_ptr<Launch> find_launch(CallKey& key, const std::string& config) const;
    std::shared_ptr<Launch> make_launch(CallKey& key, const Call& call);
    std::shared_ptr<HostGroups> host_groups_of(Launch& launch, const Call& call, bool& again);
    void launch_of_host(Launch& launch, const Call& call);
    void launch_listed(const Launch& launch, const Call& call, const HostGroups& groups, cuda::StreamHandle stream);
    void start_again(const GemmOptions& options, std::shared_ptr<const cuda::Graph>& kept, const auto& start);
    const Computing& zero(const Call& call) const;
    cuda::MemoryPool& memory();
    void sum(Launch& launch, const Call& call, bool again);
    /// What planning says of a problem, once for all calls.
    using Answers = std::unordered_map<plan::Problem, bool, plan::ProblemHash>;
    template <typename Find>
    bool answer_of(Answers& known, const plan::Problem& problem, const Find& find) {
        {
            const std::shared_lock lock(mutex_);
            if (const auto found = known.find(problem); found != known.end()) return found->second;
        }
        const bool answer = find();
        const std::unique_lock lock(mutex_);
        if (known.size() >= kMaxKept) known.clear();
        return known.try_emplace(problem, answer).first->second;
    }
    bool is_fused_faster(const MoeShape& shape);
    bool is_storing_sums_faster(const MoeShape& shape);
    bool is_fp8_faster(const FourBitShape& shape);
    bool takes_reencoded(const Call& call);
    void run_four_bit(const FourBitCall& call);
    void run_moe(const MoeCall& call);
    void run_ep_moe(const EpMoeCall& call);
    template <typename LogitsTopkCall>
    void run_topk(const LogitsTopkCall& call);
    template <typename OperationCall>
    void start(const OperationCall& call);

    const GemmKernel& chosen(const plan::Problem& problem, const Poll& poll);
    const GemmKernel& named(const plan::Problem& problem, const std::string& name, const Poll& poll);
    const GemmKernel& loaded(const GemmConfig& config, const Poll& poll);
    uint32_t clusters_for(const GemmKernel& kernel, const plan::Problem& problem) const;
    template <typename Config>
    const cuda::Kernel& kernel_of(const Config& config, const Poll& poll);
    auto kept_launch(const auto& call);

    bool batch_invariant_;  // of calls that do not say
    PolledProvider provider_;
    std::shared_ptr<const cuda::Driver> driver_;
    cuda::Device device_;  // before the kernels, which refer to it
    plan::DeviceSpec spec_;
    plan::PlanTable table_;  // of the user; goes before the planner's own choice

    // Kernels are few and stay, so pointers to them are good without the lock. Shapes and pointers change without end
    // in some programs: what is kept of them is dropped all at once when it is too much.
    static constexpr size_t kMaxKept = 4096;
    mutable std::shared_mutex mutex_;
    std::unordered_map<std::string, std::unique_ptr<const GemmKernel>> kernels_;  // by plan's name
    std::unique_ptr<cuda::MemoryPool> memory_;                                    // likewise
    std::tuple<KernelsOf<AddPiecesConfig>, KernelsOf<GroupListConfig>, KernelsOf<QuantizeConfig>,
               KernelsOf<QuantizeColumnsConfig>, KernelsOf<ReencodeConfig>, KernelsOf<ScaleLayoutConfig>,
               KernelsOf<MqaConfig>, KernelsOf<MqaScheduleConfig>, KernelsOf<PrenormKernel>, KernelsOf<SwigluConfig>,
               KernelsOf<RouteConfig>, KernelsOf<SlotsConfig>, KernelsOf<PeersConfig>, KernelsOf<PermuteConfig>,
               KernelsOf<CombineConfig>, KernelsOf<TopkConfig>, KernelsOf<FourBitConfig>>
        operations_;
    std::unordered_map<plan::Problem, const GemmKernel*, plan::ProblemHash> choices_;
    /// Is a layer's first product faster with its activation? Also beside weights of 4 bits.
    Answers fused_[2];
    Answers stores_sums_;  // is a layer faster whose second product stores sums?
    Answers fp8_;          // is FP8 faster than weights of 4 bits?
    Answers reencoded_;    // are products with MX scales faster with operands that are re-encoded in the call?
    std::unordered_map<CallKey, std::shared_ptr<Launch>, CallKeyHash> launches_;
    std::tuple<KeptLaunches<MqaCallKey, MqaLaunch>, KeptLaunches<PrenormCallKey, PrenormLaunch>,
               KeptLaunches<FourBitCallKey, FourBitLaunch>>
        kept_;
};

}  // namespace finegemm
