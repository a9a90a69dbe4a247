// What matmul.cu defines for products, for sources that have kernels of their own: its kernels are functions here, which nothing calls. Without
// #pragma once, as matmul.cu, which persist.cu includes for each of its types.
#pragma push_macro("KERNEL")
#undef KERNEL
#define KERNEL(name, threads, blocks) DEVICE void name
#include "matmul.cu"
#pragma pop_macro("KERNEL")
