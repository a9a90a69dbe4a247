#include "kernels.h"
#include "simd_portable.h"

#define KERNELS kernels_portable
#include "path.h"
