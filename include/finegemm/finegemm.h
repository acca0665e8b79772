// All of the C++ API. Layer: public.
#pragma once

#include <finegemm/context.h>
#include <finegemm/einsum.h>
#include <finegemm/error.h>
#include <finegemm/gemm.h>
#include <finegemm/moe.h>
#include <finegemm/mqa.h>
#include <finegemm/prenorm.h>
#include <finegemm/quantize.h>
#include <finegemm/routing.h>
#include <finegemm/scale_layout.h>
#include <finegemm/swiglu.h>
#include <finegemm/tensor.h>
#include <finegemm/topk.h>
