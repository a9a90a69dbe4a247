// IQ4_XS, super-blocks of 8 blocks: an F16, d; a 6-bit scale, less 32, for each block, whose upper two bits
// share 2 bytes and whose lower four bits share 4; and for each block 16 bytes of codes in the order of
// Q4_0. A weight is d · scale · value.
#pragma once

#include "codes_iq4.cuh"

enum { HALVES = 1, OFFSET = 0, HAS_ADDEND = 0 };

DEVICE unsigned raw_quant(Raw r, int i) { return nibble_at(r.p + 8 + 16 * r.part, i); }

DEVICE Scale raw_scales(Raw r)
{
	return ((r.p[4 + r.part / 2] >> r.part % 2 * 4 & 15) | (r.p[2 + r.part / 4] >> r.part % 4 * 2 & 3) << 4) - 32;
}

DEVICE void repack_super(uint8_t *at, Raw r) { memcpy(at, r.p, 2); }

DEVICE float dequantize(int q, int, const uint8_t *scales, const uint8_t *super)
{
	return half_at(super) * (float)(int8_t)scales[0] * value_of(q);
}

DEVICE float factor(const Block &w, int output, int)
{
	return half_to_float(w.super[output]) * (float)(int8_t)w.scales[output];
}
