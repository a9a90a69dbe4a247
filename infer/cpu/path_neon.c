#if defined(__aarch64__)

#include "kernels.h"

#include <arm_neon.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif

#include "simd_neon.h"

#include "panel.h"
#include "matmul_float.h"
#include "matmul_panel.h"
#include "rows.h"
#include "attention.h"
#include "recurrent.h"

const struct kernels kernels_neon = {run_row, read_bytes, weight_kernels, run_attention, run_conv, run_scan};

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
