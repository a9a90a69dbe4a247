// MXFP4: an exponent e and 16 bytes of codes in the order of Q4_0, floats of 4 bits whose values are doubled
// here. A weight is 2^(e-128) · value.
#pragma once

#define CODES 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12

enum { HALVES = 1, OFFSET = 0, HAS_ADDEND = 0 };

DEVICE unsigned raw_quant(Raw r, int i) { return nibble_at(r.p + 1, i); }
DEVICE Scale raw_scales(Raw r) { return r.p[0]; }

// Returns 2^(e-128); the smallest two are subnormal.
DEVICE float power_of(uint32_t e) { return __uint_as_float(e > 1 ? (e - 1) << 23 : 0x00200000u << e); }

DEVICE float dequantize(int q, int, const uint8_t *scales, const uint8_t *) { return power_of(scales[0]) * value_of(q); }

DEVICE float factor(const Block &w, int output, int) { return power_of(w.scales[output]); }
