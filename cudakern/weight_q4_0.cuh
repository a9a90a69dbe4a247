// Q4_0: an F16 scale and 16 bytes: inputs 0-15 in the low nibbles, 16-31 in the high ones.
#pragma once

#include "formula_scale.cuh"

enum { HALVES = 1, OFFSET = 8 };

DEVICE unsigned raw_quant(Raw r, int i) { return nibble_at(r.p + 2, i); }
