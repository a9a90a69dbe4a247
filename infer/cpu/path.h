// The kernels of a path, which includes them behind its simd_*.h. KERNELS is the name of their table.
#include "panel.h"
#include "matmul_float.h"
#include "matmul_panel.h"
#include "rows.h"
#include "attention.h"
#include "recurrent.h"

const struct kernels KERNELS = {run_row, read_bytes, weight_kernels, run_attention, run_conv, run_scan};
