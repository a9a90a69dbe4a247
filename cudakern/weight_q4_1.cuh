// Q4_1: two F16, d and m, and 16 bytes in the order of Q4_0.
#pragma once

#include "formula_offset.cuh"

DEVICE unsigned raw_quant(Raw r, int i) { return nibble_at(r.p + 4, i); }
