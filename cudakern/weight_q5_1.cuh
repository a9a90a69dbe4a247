// Q5_1: two F16, d and m, 32 bits, and 16 bytes in the order of Q4_0. Bit i is the fifth bit of input i.
#pragma once

#include "formula_offset.cuh"

DEVICE unsigned raw_quant(Raw r, int i) { return nibble_at(r.p + 8, i) | (word_at(r.p + 4) >> i & 1) << 4; }
