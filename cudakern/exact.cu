// Products of matmul.cu on path i16, with instructions that newer GPUs have for exact integer products. The bits are the same.
#define EXACT
#include "matmul.cu"
