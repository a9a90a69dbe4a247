#include "kernels.h"
#include "simd_portable.h"

#include "super.h"
#include "panel.h"
#include "rows.h"
#include "matmul_float.h"
#include "matmul_panel.h"
#include "attention.h"

const struct kernels kernels_portable = {run_row, pack, read_bytes, run_matmul, run_attention};
