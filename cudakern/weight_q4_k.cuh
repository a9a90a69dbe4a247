// Q4_K: two F16, d and min, for 8 blocks; six bits each for a part of d and an offset of min of
// every block; then four times 32 bytes, each with one block in the low halves and the next in
// the high ones. A weight is q · (d · part) - min · offset.
#pragma once

enum { HALVES = 1, OFFSET = 0 };

DEVICE unsigned number(Raw r, int i) { return r.p[16 + r.part / 2 * 32 + i] >> 4 * (r.part % 2) & 15; }

// Part and offset, which share 12 bytes with those of the other blocks.
DEVICE uint16_t scales(Raw r)
{
	const uint8_t *s = r.p + 4 + r.part % 4;
	if (r.part < 4)
		return (s[0] & 63) | (s[4] & 63) << 8;
	return (s[8] & 15) | s[0] >> 6 << 4 | (s[8] >> 4 | s[4] >> 6 << 4) << 8;
}

DEVICE void repack_super(uint8_t *at, Raw r) { memcpy(at, r.p, 4); }

DEVICE float value(int q, int, const uint8_t *scales, const uint8_t *super)
{
	return (float)q * (half_at(super) * (float)scales[0]) - half_at(super + 2) * (float)scales[1];
}

DEVICE float fold(const Block &w, int output, int, float dot, float scale, float acc)
{
	float d = half_to_float(uint16_t(w.super[output])), part = uint8_t(w.scales[output]);
	return fmaf(d * part * scale, dot, acc);
}

DEVICE float less_minimum(const Block &w, int output, float x, float acc)
{
	float min = half_to_float(uint16_t(w.super[output] >> 16)), offset = uint8_t(w.scales[output] >> 8);
	return fmaf(-(min * offset), x, acc);
}
