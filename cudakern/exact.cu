// Products of matmul.cu on path i16, with instructions that newer GPUs have for exact integer products, and for many
// rows those of mma.cuh. The bits of all are the same.
#define EXACT
#include "matmul.cu"
#include "mma.cuh"
