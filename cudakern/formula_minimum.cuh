// Super-blocks of 8 blocks that begin with two F16, d and dmin, and a 6-bit scale and a 6-bit minimum for
// each block. A weight is q · (d · scale) - dmin · minimum.
#pragma once

enum { HALVES = 1, OFFSET = 0, HAS_ADDEND = 1 };

// Unpacks the scale (low byte) and minimum (high byte) of a block from the 12 bytes of all 8 blocks.
DEVICE Scale raw_scales(Raw r)
{
	const uint8_t *s = r.p + 4 + r.part % 4;
	if (r.part < 4)
		return (s[0] & 63) | (s[4] & 63) << 8;
	return (s[8] & 15) | s[0] >> 6 << 4 | (s[8] >> 4 | s[4] >> 6 << 4) << 8;
}

DEVICE void repack_super(uint8_t *at, Raw r) { memcpy(at, r.p, 4); }

DEVICE float dequantize(int q, int, const uint8_t *scales, const uint8_t *super)
{
	return (float)q * (half_at(super) * (float)scales[0]) - half_at(super + 2) * (float)scales[1];
}

DEVICE float factor(const Block &w, int output, int)
{
	float d = half_to_float(uint16_t(w.super[output])), block_scale = (float)(uint8_t)w.scales[output];
	return d * block_scale;
}

DEVICE float addend(const Block &w, int output, int)
{
	float dmin = half_to_float(uint16_t(w.super[output] >> 16)), minimum = (float)(uint8_t)(w.scales[output] >> 8);
	return -dmin * minimum;
}
