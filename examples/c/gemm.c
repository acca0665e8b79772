/* FP8 GEMM through the C ABI: quantise activations and weights, multiply, compare with sums in double. */
#include <finegemm/c_api.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { M = 48, N = 256, K = 512, BLOCK = 128 };

/* A matrix without gaps, of memory from malloc: that is aligned to 16 bytes, as the library wants it. */
static finegemm_matrix allocate(int32_t dtype, size_t element_bytes, int64_t rows, int64_t cols) {
    finegemm_matrix x;
    memset(&x, 0, sizeof x);
    x.data = malloc((size_t)rows * (size_t)cols * element_bytes);
    x.dtype = dtype;
    x.device_type = FINEGEMM_CPU;
    x.rows = rows;
    x.cols = cols;
    x.row_stride = cols;
    x.col_stride = 1;
    return x; /* where there is no memory, the library says that data is null */
}

static void fill(const finegemm_matrix* x, uint32_t seed) {
    float* values = x->data;
    int64_t i;
    for (i = 0; values && i < x->rows * x->cols; ++i) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)(seed >> 8) / (float)(1u << 23) - 1.0f; /* from -1 to 1 */
    }
}

static double double_of_bf16(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* |d - x * w^T| / |x * w^T| */
static double relative_error(const float* x, const float* w, const uint16_t* d) {
    double errors = 0, values = 0;
    int m, n, k;
    for (m = 0; m < M; ++m)
        for (n = 0; n < N; ++n) {
            double exact = 0;
            for (k = 0; k < K; ++k) exact += (double)x[m * K + k] * w[n * K + k];
            errors += pow(double_of_bf16(d[m * N + n]) - exact, 2);
            values += exact * exact;
        }
    return sqrt(errors / values);
}

/* Both sides to e4m3 with their scales, then the product. */
static int multiply(const finegemm_matrix* x, const finegemm_matrix* w, finegemm_gemm_args* args,
                    finegemm_error* error) {
    finegemm_context* context = NULL;
    int32_t code = finegemm_context_create(NULL, &context, error);
    if (!code) code = finegemm_quantize_rows(context, x, &args->a, &args->sfa, NULL, error);
    if (!code) code = finegemm_quantize_blocks(context, w, &args->b, &args->sfb, NULL, error);
    if (!code) code = finegemm_gemm(context, args, NULL, error);
    finegemm_context_destroy(context);
    return code == FINEGEMM_OK;
}

int main(void) {
    finegemm_matrix x = allocate(FINEGEMM_F32, sizeof(float), M, K), w = allocate(FINEGEMM_F32, sizeof(float), N, K);
    finegemm_gemm_args args;
    finegemm_error error;
    int ok;

    args.a = allocate(FINEGEMM_E4M3, 1, M, K);
    args.sfa = allocate(FINEGEMM_F32, sizeof(float), M, K / BLOCK);
    args.b = allocate(FINEGEMM_E4M3, 1, N, K);
    args.sfb = allocate(FINEGEMM_F32, sizeof(float), N / BLOCK, K / BLOCK);
    args.d = allocate(FINEGEMM_BF16, sizeof(uint16_t), M, N);
    fill(&x, 1);
    fill(&w, 2);

    ok = multiply(&x, &w, &args, &error);
    if (ok) {
        const double off = relative_error(x.data, w.data, args.d.data);
        printf("FineGEMM %s: %d x %d x %d, relative error %.4f\n", finegemm_version(), M, N, K, off);
        ok = off < 0.06; /* two roundings to e4m3 */
    } else {
        fprintf(stderr, "error %d: %s\n", (int)error.code, error.message);
    }
    free(x.data), free(w.data);
    free(args.a.data), free(args.sfa.data), free(args.b.data), free(args.sfb.data), free(args.d.data);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
