// The functions that the Python package calls. Layer: front end.
#include <algorithm>
#include <cstdint>
#include <new>
#include <optional>
#include <string>

#include <finegemm/context.h>
#include <finegemm/error.h>
#include <finegemm/gemm.h>
#include <finegemm/quantize.h>
#include <fmt/format.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include "matrix.h"

namespace finegemm::python {

namespace {

namespace ffi = tvm::ffi;

class ContextObject : public ffi::Object {
public:
    explicit ContextObject(Options options) : context(std::move(options)) {}
    Context context;
    static constexpr bool _type_mutable = true;
    TVM_FFI_DECLARE_OBJECT_INFO_FINAL("finegemm.Context", ContextObject, ffi::Object);
};

class ContextRef : public ffi::ObjectRef {
public:
    explicit ContextRef(ffi::ObjectPtr<ContextObject> object) : ffi::ObjectRef(ffi::UnsafeInit{}) {
        data_ = std::move(object);
    }
    TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(ContextRef, ffi::ObjectRef, ContextObject);
};

/// The names of the Python exceptions: python/finegemm/errors.py registers one for each.
const char* kind_of(Errc code) {
    switch (code) {
        case Errc::InvalidArgument: return "finegemm.InvalidArgument";
        case Errc::Unsupported: return "finegemm.Unsupported";
        case Errc::Driver: return "finegemm.Driver";
        case Errc::Compile: return "finegemm.Compile";
        case Errc::Io: return "finegemm.Io";
        case Errc::OutOfMemory: return "finegemm.OutOfMemory";
        case Errc::Internal: return "finegemm.Internal";
    }
    return "finegemm.Internal";
}

template <typename Body>
auto translated(Body&& body) {
    try {
        return body();
    } catch (const Error& e) {
        throw ffi::Error(kind_of(e.code()), e.what(), "");
    } catch (const std::bad_alloc&) {
        throw ffi::Error(kind_of(Errc::OutOfMemory), "the host has no memory left", "");
    }
}

/// The stream that was given, else the one on which the producer of `d` works now.
Stream stream_for(const Matrix& d, const ffi::Optional<int64_t>& given) {
    if (d.device.type != DeviceType::Cuda) return nullptr;
    if (given.has_value()) return reinterpret_cast<Stream>(given.value());
    return TVMFFIEnvGetStream(kDLCUDA, d.device.index);
}

Numerics numerics_named(const std::string& name) {
    if (name == "fast") return Numerics::Fast;
    if (name == "exact") return Numerics::Exact;
    if (name == "hopper") return Numerics::Hopper;
    throw Error(Errc::InvalidArgument, fmt::format("numerics: '{}' is none of 'fast', 'exact' and 'hopper'", name));
}

Compiler compiler_named(const std::string& name) {
    if (name == "nvrtc") return Compiler::Nvrtc;
    if (name == "nvcc") return Compiler::Nvcc;
    throw Error(Errc::InvalidArgument, fmt::format("compiler: '{}' is neither 'nvrtc' nor 'nvcc'", name));
}

void set_option(Options& o, const std::string& name, const ffi::Any& value) {
    const auto text = [&] { return std::string(value.cast<ffi::String>()); };
    if (name == "cache_dir") o.cache_dir = text();
    else if (name == "cache_limit_bytes") o.cache_limit_bytes = value.cast<int64_t>();
    else if (name == "driver_path") o.driver_path = text();
    else if (name == "nvrtc_path") o.nvrtc_path = text();
    else if (name == "nvcc_path") o.nvcc_path = text();
    else if (name == "cuda_home") o.cuda_home = text();
    else if (name == "python_prefix") o.python_prefix = text();
    else if (name == "compiler") o.compiler = compiler_named(text());
    else if (name == "use_pack") o.use_pack = value.cast<bool>();
    else if (name == "dump_dir") o.dump_dir = text();
    else if (name == "cpu_threads") o.cpu_threads = value.cast<int32_t>();
    else if (name == "check_values") o.check_values = value.cast<bool>();
    else if (name == "batch_invariant") o.batch_invariant = value.cast<bool>();
    else if (name == "plan_table") o.plan_table = text();
    else throw Error(Errc::InvalidArgument, fmt::format("Context: '{}' is not an option", name));
}

/// Options of the environment, with those of `overrides` in their place.
ContextRef make_context(const ffi::Map<ffi::String, ffi::Any>& overrides) {
    return translated([&] {
        Options options = Options::from_environment();
        for (const auto& [name, value] : overrides) set_option(options, name, value);
        return ContextRef(ffi::make_object<ContextObject>(std::move(options)));
    });
}

std::optional<bool> choice(const ffi::Optional<bool>& given) {
    return given.has_value() ? std::optional(given.value()) : std::nullopt;
}

void gemm_into(const ContextRef& context, const ffi::TensorView& a, const ffi::TensorView& sfa,
               const ffi::TensorView& b, const ffi::TensorView& sfb, const ffi::TensorView& d,
               const std::string& numerics, const ffi::Optional<ffi::String>& config,
               const ffi::Optional<bool>& check_values, const ffi::Optional<bool>& batch_invariant, int64_t num_sms,
               bool pdl, const ffi::Optional<int64_t>& stream) {
    translated([&] {
        const GemmArgs args{.a = matrix("a", a),
                            .sfa = matrix("sfa", sfa),
                            .b = matrix("b", b),
                            .sfb = matrix("sfb", sfb),
                            .d = matrix("d", d)};
        gemm(context->context, args,
             {.stream = stream_for(args.d, stream),
              .numerics = numerics_named(numerics),
              .check_values = choice(check_values),
              .batch_invariant = choice(batch_invariant),
              .num_sms = static_cast<int32_t>(std::clamp<int64_t>(num_sms, INT32_MIN, INT32_MAX)),
              .pdl = pdl,
              .config = config.has_value() ? std::string(config.value()) : std::string()});
    });
}

template <auto Quantize>
void quantize_into(const ContextRef& context, const ffi::TensorView& x, const ffi::TensorView& q,
                   const ffi::TensorView& scales, bool power_of_two_scales, const ffi::Optional<int64_t>& stream) {
    translated([&] {
        const Matrix out = matrix("q", q);
        Quantize(context->context, matrix("x", x), out, matrix("scales", scales),
                 QuantizeOptions{.power_of_two_scales = power_of_two_scales, .stream = stream_for(out, stream)});
    });
}

std::string explain_text(int64_t m, int64_t n, int64_t k, const std::string& device, bool batch_invariant,
                         const std::string& plan_table) {
    return translated([&] { return explain(m, n, k, device, batch_invariant, plan_table); });
}

TVM_FFI_STATIC_INIT_BLOCK() { ffi::reflection::ObjectDef<ContextObject>(); }

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(context, make_context)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(gemm, gemm_into)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(quantize_rows, quantize_into<quantize_rows>)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(quantize_blocks, quantize_into<quantize_blocks>)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(explain, explain_text)

}  // namespace finegemm::python
