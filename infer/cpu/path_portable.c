#include "kernels.h"
#include "simd_portable.h"

#include "super.h"
#include "rows.h"
#include "matmul_float.h"
#include "matmul_quant.h"
#include "attention.h"

const struct kernels kernels_portable = {run_row, run_matmul, run_attention};
