#if defined(__x86_64__)

#include "kernels.h"

#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")
#endif

#define LOOKUP_VBMI
#include "simd_avx512.h"

#include "panel.h"
#include "matmul_float.h"
#include "matmul_panel.h"
#include "rows.h"
#include "attention.h"
#include "recurrent.h"

const struct kernels kernels_avx512vbmi = {run_row, read_bytes, weight_kernels, run_attention, run_conv, run_scan};

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
