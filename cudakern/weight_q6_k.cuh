// Q6_K: of 8 blocks 128 bytes of lower four bits, 64 of upper two, 16 int8, a part of d for each
// half of a block, and an F16, d. Each half of it is four blocks: the lower bits of blocks 0
// and 2 share 32 bytes, as do those of 1 and 3, the upper bits of all four share 32.
#pragma once

enum { HALVES = 2, OFFSET = 32 };

DEVICE unsigned number(Raw r, int i)
{
	const int half = r.part / 4, run = r.part % 4;
	return (r.p[64 * half + run % 2 * 32 + i] >> run / 2 * 4 & 15) | (r.p[128 + 32 * half + i] >> 2 * run & 3) << 4;
}

DEVICE uint16_t scales(Raw r) { return r.p[192 + 2 * r.part] | r.p[193 + 2 * r.part] << 8; }
DEVICE void repack_super(uint8_t *at, Raw r) { memcpy(at, r.p + 208, 2); }

DEVICE float value(int q, int half, const uint8_t *scales, const uint8_t *super)
{
	return half_at(super) * (float)(int8_t)scales[half] * (float)(q - OFFSET);
}

DEVICE float fold(const Block &w, int output, int half, float dot, float scale, float acc)
{
	float part = int8_t(w.scales[output] >> 8 * half);
	return fmaf(half_to_float(w.super[output]) * part * scale, dot, acc);
}

DEVICE float less_minimum(const Block &, int, float, float acc) { return acc; }
