// cuBLASLt, opened at run time, for front ends that compare with it. Layer peers. Own declarations of the few types and
// entry points that are used; a test holds them against cublasLt.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <finegemm/gemm.h>

namespace finegemm::cublaslt {

/// Two of NVIDIA's ways to scale e4m3 products.
enum class Mode {
    Tensor,  // one scale for each of A and B; sums of a whole tile stay in the tensor core ("fast accumulation")
    Block,   // 1x128 scales for A, 128x128 for B, as ours; since CUDA 12.9
};

// Values of cublasLt.h, cublas_api.h and library_types.h.
inline constexpr int kE4m3 = 28, kBf16 = 14, kF32 = 0;  // cudaDataType
inline constexpr int kCompute32F = 68, kTransposed = 1, kNotSupported = 15;
inline constexpr int kTransA = 3, kScalePointerA = 17, kScalePointerB = 18, kFastAccumulation = 25, kScaleModeA = 31,
                     kScaleModeB = 32;                              // cublasLtMatmulDescAttributes_t
inline constexpr int32_t kScaleVec128 = 4, kScaleBlock128x128 = 5;  // cublasLtMatmulMatrixScale_t
inline constexpr int kMaxWorkspaceBytes = 1;                        // cublasLtMatmulPreferenceAttributes_t

using Handle = struct HandleTag*;
using Descriptor = struct DescriptorTag*;
using Layout = struct LayoutTag*;
using Preference = struct PreferenceTag*;

/// cublasLtMatmulAlgo_t.
struct Algorithm {
    uint64_t data[8];
};

/// cublasLtMatmulHeuristicResult_t.
struct HeuristicResult {
    Algorithm algorithm;
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
};

/// The entry points, named as in cublasLt.h without "cublasLt".
struct Api {
    size_t (*GetVersion)();
    const char* (*GetStatusName)(int);
    int (*Create)(Handle*);
    int (*Destroy)(Handle);
    int (*MatmulDescCreate)(Descriptor*, int compute_type, int scale_type);
    int (*MatmulDescDestroy)(Descriptor);
    int (*MatmulDescSetAttribute)(Descriptor, int attribute, const void* value, size_t bytes);
    int (*MatrixLayoutCreate)(Layout*, int type, uint64_t rows, uint64_t cols, int64_t leading_dimension);
    int (*MatrixLayoutDestroy)(Layout);
    int (*MatmulPreferenceCreate)(Preference*);
    int (*MatmulPreferenceDestroy)(Preference);
    int (*MatmulPreferenceSetAttribute)(Preference, int attribute, const void* value, size_t bytes);
    int (*MatmulAlgoGetHeuristic)(Handle, Descriptor, Layout a, Layout b, Layout c, Layout d, Preference, int wanted,
                                  HeuristicResult*, int* found);
    int (*Matmul)(Handle, Descriptor, const void* alpha, const void* a, Layout, const void* b, Layout, const void* beta,
                  const void* c, Layout, void* d, Layout, const Algorithm*, void* workspace, size_t workspace_bytes,
                  void* stream);
};

/// How scales must lie for Mode::Block: those of A along M, those of B along K in rows of multiples of four.
inline constexpr int64_t kScaleRowMultiple = 4;

/// Memory that a product may use on the device.
inline constexpr size_t kWorkspaceBytes = 32 << 20;

class Library {
public:
    /// `wish`: a file or a directory to look in first. Throws Error(Unsupported) that says where it was looked for.
    /// A GPU's context must be current, here and in all that follows.
    Library(const Options& options, const std::string& wish);
    ~Library();
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;

    const std::string& path() const { return path_; }
    /// "13.0.2"
    std::string version() const;

    /// What queues the product on the default stream, by the algorithm that cuBLASLt's heuristic puts first. All that
    /// `args` points to must outlive it, and this library too. For Mode::Tensor the scales are one value each.
    /// Throws Error(Unsupported) that says why, for what cuBLASLt does not do.
    std::function<void()> product(Mode mode, const GemmArgs& args, void* workspace) const;

private:
    void check(int status, const char* call) const;

    Api api_{};
    std::string path_;
    Handle handle_ = nullptr;
};

}  // namespace finegemm::cublaslt
