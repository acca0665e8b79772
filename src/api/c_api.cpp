// The C ABI over the C++ one. Layer api.
#include <finegemm/c_api.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include <finegemm/error.h>
#include <finegemm/gemm.h>
#include <finegemm/quantize.h>

struct finegemm_context {
    finegemm::Context context;
};

namespace {

using namespace finegemm;

int32_t report(finegemm_error* error, int32_t code, std::string_view message) {
    if (error) {
        error->code = code;
        const size_t length = std::min(message.size(), sizeof error->message - 1);
        std::memcpy(error->message, message.data(), length);
        error->message[length] = '\0';
    }
    return code;
}

/// Runs `body`; what it throws becomes a code and a message.
template <typename Body>
int32_t guarded(finegemm_error* error, const Body& body) noexcept {
    try {
        body();
        return report(error, FINEGEMM_OK, "");
    } catch (const Error& e) {
        return report(error, static_cast<int32_t>(e.code()), e.what());
    } catch (const std::bad_alloc&) {
        return report(error, FINEGEMM_OUT_OF_MEMORY, "out of host memory");
    } catch (const std::exception& e) {
        return report(error, FINEGEMM_INTERNAL, e.what());
    } catch (...) {
        return report(error, FINEGEMM_INTERNAL, "unknown exception");
    }
}

void require(const void* pointer, const char* name) {
    if (!pointer) throw Error(Errc::InvalidArgument, std::string(name) + ": is null; pass its address");
}

Matrix to_matrix(const finegemm_matrix& x) {
    return {x.data, static_cast<DType>(x.dtype), x.rows, x.cols, x.row_stride, x.col_stride,
            {static_cast<DeviceType>(x.device_type), x.device_index}};
}

int32_t quantize(decltype(quantize_rows)* call, finegemm_context* context, const finegemm_matrix* x, const finegemm_matrix* q,
                 const finegemm_matrix* scales, const finegemm_quantize_options* options, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context");
        require(x, "x");
        require(q, "q");
        require(scales, "scales");
        QuantizeOptions o;
        if (options) o = {.power_of_two_scales = options->power_of_two_scales != 0, .stream = options->stream};
        call(context->context, to_matrix(*x), to_matrix(*q), to_matrix(*scales), o);
    });
}

}  // namespace

const char* finegemm_version(void) { return FINEGEMM_VERSION; }

int32_t finegemm_context_create(const char* const* options, finegemm_context** context, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context");
        std::vector<std::string> list;
        for (; options && *options; ++options) list.emplace_back(*options);
        *context = new finegemm_context{Context(Options::from_environment(list))};
    });
}

void finegemm_context_destroy(finegemm_context* context) { delete context; }

int32_t finegemm_gemm(finegemm_context* context, const finegemm_gemm_args* args, const finegemm_gemm_options* options,
                      finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context");
        require(args, "args");
        GemmOptions o;
        if (options) {
            o.stream = options->stream;
            o.numerics = static_cast<Numerics>(options->numerics);
            if (options->check_values >= 0) o.check_values = options->check_values != 0;
            if (options->config) o.config = options->config;
        }
        gemm(context->context,
             {to_matrix(args->a), to_matrix(args->sfa), to_matrix(args->b), to_matrix(args->sfb), to_matrix(args->d)}, o);
    });
}

int32_t finegemm_quantize_rows(finegemm_context* context, const finegemm_matrix* x, const finegemm_matrix* q,
                               const finegemm_matrix* scales, const finegemm_quantize_options* options, finegemm_error* error) {
    return quantize(&quantize_rows, context, x, q, scales, options, error);
}

int32_t finegemm_quantize_blocks(finegemm_context* context, const finegemm_matrix* x, const finegemm_matrix* q,
                                 const finegemm_matrix* scales, const finegemm_quantize_options* options, finegemm_error* error) {
    return quantize(&quantize_blocks, context, x, q, scales, options, error);
}

int32_t finegemm_explain(int64_t m, int64_t n, int64_t k, const char* device, char* buffer, size_t capacity, size_t* needed,
                         finegemm_error* error) {
    return guarded(error, [&] {
        if (capacity > 0) require(buffer, "buffer");
        const std::string text = explain(m, n, k, device ? device : "");
        if (needed) *needed = text.size() + 1;
        if (capacity == 0) return;
        const size_t length = std::min(text.size(), capacity - 1);
        std::memcpy(buffer, text.data(), length);
        buffer[length] = '\0';
    });
}
