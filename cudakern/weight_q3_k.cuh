// Q3_K, super-blocks of 8 blocks: 32 bytes with the third bits, bit j of byte i for input i of block j; 64
// with the lower two bits, where four blocks share 32 bytes; 12 with a 6-bit scale, less 32, for each half
// of a block; and an F16, d. The lower four bits of scales 0-7 and 8-15 are the nibbles of the first
// eight of the 12 bytes; the upper two bits of four scales share each of the others. The three bits of a
// quant are stored as four.
#pragma once

#include "formula_halves.cuh"

enum { OFFSET = 4 };

DEVICE unsigned raw_quant(Raw r, int i)
{
	return (r.p[32 + r.part / 4 * 32 + i] >> r.part % 4 * 2 & 3) | (r.p[i] >> r.part & 1) << 2;
}

DEVICE uint8_t raw_scale(Raw r, int i)
{
	const uint8_t *s = r.p + 96;
	return ((s[i % 8] >> i / 8 * 4 & 15) | (s[8 + i % 4] >> i / 4 * 2 & 3) << 4) - 32;
}

DEVICE Scale raw_scales(Raw r) { return raw_scale(r, 2 * r.part) | raw_scale(r, 2 * r.part + 1) << 8; }
DEVICE void repack_super(uint8_t *at, Raw r) { memcpy(at, r.p + 108, 2); }
