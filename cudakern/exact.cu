// Products of matmul.cu on path i16, with instructions that newer GPUs have for exact integer products, and for some
// rows those of mma_few.cuh. The bits of all are the same.
#define EXACT
#include "matmul.cu"
#include "mma_few.cuh"
