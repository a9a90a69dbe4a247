// Q6_K, super-blocks of 8 blocks: 128 bytes with the lower four bits, 64 with the upper two, an int8
// scale for each half of a block, and an F16, d. In each group of four blocks, the lower bits of blocks 0
// and 2 share 32 bytes, as do those of 1 and 3; the upper bits of all four share 32 bytes.
#pragma once

#include "formula_halves.cuh"

enum { OFFSET = 32 };

DEVICE unsigned raw_quant(Raw r, int i)
{
	const int group = r.part / 4, block = r.part % 4;
	return (r.p[64 * group + block % 2 * 32 + i] >> block / 2 * 4 & 15) | (r.p[128 + 32 * group + i] >> 2 * block & 3) << 4;
}

DEVICE Scale raw_scales(Raw r) { return r.p[192 + 2 * r.part] | r.p[193 + 2 * r.part] << 8; }
DEVICE void repack_super(uint8_t *at, Raw r) { memcpy(at, r.p + 208, 2); }
