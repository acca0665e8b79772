// cuBLASLt, opened at run time. Layer peers.
#include "peers/cublaslt.h"

#include <dlfcn.h>

#include <array>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "cuda/library_paths.h"
#include "cuda/symbols.h"

namespace finegemm::cublaslt {

namespace {

constexpr std::array kNames = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
constexpr size_t kFirstWithBlocks = 12'09'00;  // as cublasLtGetVersion counts

bool resolve_all(void* lib, Api& api) {
    using cuda::resolve;
    return resolve(lib, api.GetVersion, "cublasLtGetVersion") &&
           resolve(lib, api.GetStatusName, "cublasLtGetStatusName") && resolve(lib, api.Create, "cublasLtCreate") &&
           resolve(lib, api.Destroy, "cublasLtDestroy") &&
           resolve(lib, api.MatmulDescCreate, "cublasLtMatmulDescCreate") &&
           resolve(lib, api.MatmulDescDestroy, "cublasLtMatmulDescDestroy") &&
           resolve(lib, api.MatmulDescSetAttribute, "cublasLtMatmulDescSetAttribute") &&
           resolve(lib, api.MatrixLayoutCreate, "cublasLtMatrixLayoutCreate") &&
           resolve(lib, api.MatrixLayoutDestroy, "cublasLtMatrixLayoutDestroy") &&
           resolve(lib, api.MatmulPreferenceCreate, "cublasLtMatmulPreferenceCreate") &&
           resolve(lib, api.MatmulPreferenceDestroy, "cublasLtMatmulPreferenceDestroy") &&
           resolve(lib, api.MatmulPreferenceSetAttribute, "cublasLtMatmulPreferenceSetAttribute") &&
           resolve(lib, api.MatmulAlgoGetHeuristic, "cublasLtMatmulAlgoGetHeuristic") &&
           resolve(lib, api.Matmul, "cublasLtMatmul");
}

/// The descriptors of one product. cuBLASLt counts columns first: what is row-major here is transposed there, so it
/// computes D^T [N, M] = B A^T, with our B as its first operand and our A as its second.
struct Product {
    explicit Product(const Api& entries) : api(entries) {}
    ~Product() {
        if (descriptor) api.MatmulDescDestroy(descriptor);
        for (Layout layout : {first, second, result})
            if (layout) api.MatrixLayoutDestroy(layout);
    }
    Product(const Product&) = delete;
    Product& operator=(const Product&) = delete;

    const Api& api;
    Descriptor descriptor = nullptr;
    Layout first = nullptr, second = nullptr, result = nullptr;
    Algorithm algorithm{};
};

[[noreturn]] void refuse(const std::string& reason) { throw Error(Errc::Unsupported, "cuBLASLt: " + reason); }

void check_block_scales(const GemmArgs& args) {
    const int64_t m = args.a.rows, rows = (args.sfb.cols + kScaleRowMultiple - 1) / kScaleRowMultiple;
    // Its loads of these scales start on 16 bytes in each column of M.
    if (m % kScaleRowMultiple != 0)
        refuse(fmt::format("block scales need M in multiples of {}, M is {}", kScaleRowMultiple, m));
    if (args.sfa.row_stride != 1 || args.sfa.col_stride != m || args.sfb.col_stride != 1 ||
        args.sfb.row_stride != rows * kScaleRowMultiple)
        throw Error(Errc::InvalidArgument,
                    fmt::format("cuBLASLt: scales must have strides (1, {}) for A and ({}, 1) for B, theirs are ({}, "
                                "{}) and ({}, {})",
                                m, rows * kScaleRowMultiple, args.sfa.row_stride, args.sfa.col_stride,
                                args.sfb.row_stride, args.sfb.col_stride));
}

}  // namespace

Library::Library(const Options& options, const std::string& wish) {
    cuda::LibraryPaths paths = cuda::library_paths(options, wish, kNames);
    paths.files.insert(paths.files.end(), kNames.begin(), kNames.end());  // last, the loader's own search
    std::vector<std::string> tried = std::move(paths.without);
    for (const std::string& file : paths.files) {
        void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: it does not survive it
        if (!library) tried.emplace_back(dlerror());
        else if (!resolve_all(library, api_)) tried.push_back(file + ": is not cuBLASLt");
        else if (const int status = api_.Create(&handle_)) {
            tried.push_back(fmt::format("{}: cublasLtCreate failed: {}", file, api_.GetStatusName(status)));
            handle_ = nullptr;
        } else {
            path_ = cuda::file_of(reinterpret_cast<const void*>(api_.GetVersion)).string();
            return;
        }
    }
    throw Error(Errc::Unsupported,
                fmt::format("no cuBLASLt found; `pip install nvidia-cublas` brings it, or name it with --cublaslt. "
                            "Searched:\n  {}",
                            fmt::join(tried, "\n  ")));
}

Library::~Library() { api_.Destroy(handle_); }

std::string Library::version() const {
    const size_t v = api_.GetVersion();
    return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

void Library::check(int status, const char* call) const {
    if (status != 0) refuse(fmt::format("{} failed: {}", call, api_.GetStatusName(status)));
}

std::function<void()> Library::product(Mode mode, const GemmArgs& args, void* workspace) const {
    if (mode == Mode::Block) {
        if (api_.GetVersion() < kFirstWithBlocks)
            refuse(fmt::format("block scales need version 12.9 or later, this is {}", version()));
        check_block_scales(args);
    }
    auto p = std::make_shared<Product>(api_);
    check(api_.MatmulDescCreate(&p->descriptor, kCompute32F, kF32), "cublasLtMatmulDescCreate");
    const auto set = [&](int attribute, auto value) {
        check(api_.MatmulDescSetAttribute(p->descriptor, attribute, &value, sizeof value),
              "cublasLtMatmulDescSetAttribute");
    };
    set(kTransA, int32_t{kTransposed});
    set(kScalePointerA, args.sfb.data);
    set(kScalePointerB, args.sfa.data);
    if (mode == Mode::Block) {
        set(kScaleModeA, kScaleBlock128x128);
        set(kScaleModeB, kScaleVec128);
    } else {
        set(kFastAccumulation, int8_t{1});
    }
    const auto layout = [&](Layout& made, int type, int64_t rows, int64_t cols, int64_t stride) {
        check(api_.MatrixLayoutCreate(&made, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), stride),
              "cublasLtMatrixLayoutCreate");
    };
    layout(p->first, kE4m3, args.b.cols, args.b.rows, args.b.row_stride);
    layout(p->second, kE4m3, args.a.cols, args.a.rows, args.a.row_stride);
    layout(p->result, kBf16, args.d.cols, args.d.rows, args.d.row_stride);

    Preference preference = nullptr;
    check(api_.MatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const std::unique_ptr<PreferenceTag, int (*)(Preference)> owner(preference, api_.MatmulPreferenceDestroy);
    check(api_.MatmulPreferenceSetAttribute(preference, kMaxWorkspaceBytes, &kWorkspaceBytes, sizeof kWorkspaceBytes),
          "cublasLtMatmulPreferenceSetAttribute");
    HeuristicResult best{};
    int found = 0;
    const int status = api_.MatmulAlgoGetHeuristic(handle_, p->descriptor, p->first, p->second, p->result, p->result,
                                                   preference, 1, &best, &found);
    if (status == kNotSupported || (status == 0 && found == 0)) refuse("has no algorithm for this shape");
    check(status ? status : best.state, "cublasLtMatmulAlgoGetHeuristic");
    p->algorithm = best.algorithm;
    return [this, p, args, workspace] {
        const float one = 1, zero = 0;
        check(
            api_.Matmul(handle_, p->descriptor, &one, args.b.data, p->first, args.a.data, p->second, &zero, args.d.data,
                        p->result, args.d.data, p->result, &p->algorithm, workspace, kWorkspaceBytes, nullptr),
            "cublasLtMatmul");
    };
}

}  // namespace finegemm::cublaslt
