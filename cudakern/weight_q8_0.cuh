// Q8_0: an F16 scale and 32 int8.
#pragma once

#include "formula_scale.cuh"

enum { HALVES = 1, OFFSET = 128 };

DEVICE unsigned raw_quant(Raw r, int i) { return r.p[2 + i] ^ 0x80; }
