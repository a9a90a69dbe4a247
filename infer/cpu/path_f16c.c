#if defined(__x86_64__)

#include "kernels.h"

#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx,f16c")
#endif

#define USE_F16C
#include "simd_sse.h"

#define KERNELS kernels_f16c
#include "path.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
