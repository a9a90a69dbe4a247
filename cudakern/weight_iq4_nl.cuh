// IQ4_NL: an F16 scale and 16 bytes of codes in the order of Q4_0.
#pragma once

#include "codes_iq4.cuh"
#include "formula_scale.cuh"

enum { HALVES = 1, OFFSET = 0 };

DEVICE unsigned raw_quant(Raw r, int i) { return nibble_at(r.p + 2, i); }
