#include "kernels.h"
#include "simd_portable.h"

#include "panel.h"
#include "matmul_float.h"
#include "matmul_panel.h"
#include "rows.h"
#include "attention.h"
#include "recurrent.h"

const struct kernels kernels_portable = {run_row, read_bytes, weight_kernels, run_attention, run_conv, run_scan};
