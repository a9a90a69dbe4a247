// Q5_0: an F16 scale, 32 bits, and 16 bytes in the order of Q4_0. Bit i is the fifth bit of input i.
#pragma once

#include "formula_scale.cuh"

enum { HALVES = 1, OFFSET = 16 };

DEVICE unsigned raw_quant(Raw r, int i) { return nibble_at(r.p + 6, i) | (word_at(r.p + 2) >> i & 1) << 4; }
