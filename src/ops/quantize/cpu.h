// Quantisation on the CPU. Layer engine.
// Vectorised by Highway: compiled for several instruction sets, chosen when the program runs.
#pragma once

#include "engine/thread_pool.h"
#include "ops/quantize/call.h"

namespace finegemm {

void run_on_cpu(const QuantizeCall& call, ThreadPool& pool);
void run_on_cpu(const QuantizeColumnsCall& call, ThreadPool& pool);
void run_on_cpu(const ReencodeCall& call, ThreadPool& pool);

/// A block of elements that share one scale.
struct CpuQuantizeBlock {
    const void* x;
    uint8_t* q;
    DType dtype;  // of x
    QuantizeCodes codes;
    int64_t rows, cols;  // cols: a multiple of 16
    int64_t x_row_stride, q_row_stride;
};

/// Quantises it and returns its scale.
float cpu_quantize_block(const CpuQuantizeBlock& block, bool power_of_two);

}  // namespace finegemm
