// Q6_K, super-blocks of 8 blocks: 128 bytes with the lower four bits, 64 with the upper two, an int8
// scale for each half of a block, and an F16, d. A weight is (q - 32) · d · scale. In each group of four
// blocks, the lower bits of blocks 0 and 2 share 32 bytes, as do those of 1 and 3; the upper bits of
// all four share 32 bytes.
#pragma once

enum { HALVES = 2, OFFSET = 32 };

DEVICE unsigned raw_quant(Raw r, int i)
{
	const int group = r.part / 4, block = r.part % 4;
	return (r.p[64 * group + block % 2 * 32 + i] >> block / 2 * 4 & 15) | (r.p[128 + 32 * group + i] >> 2 * block & 3) << 4;
}

DEVICE uint16_t raw_scales(Raw r) { return r.p[192 + 2 * r.part] | r.p[193 + 2 * r.part] << 8; }
DEVICE void repack_super(uint8_t *at, Raw r) { memcpy(at, r.p + 208, 2); }

DEVICE float dequantize(int q, int half, const uint8_t *scales, const uint8_t *super)
{
	return half_at(super) * (float)(int8_t)scales[half] * (float)(q - OFFSET);
}

DEVICE float add_scaled(const Block &w, int output, int half, float dot, float scale, float acc)
{
	float half_scale = int8_t(w.scales[output] >> 8 * half);
	return fmaf(half_to_float(w.super[output]) * half_scale * scale, dot, acc);
}

DEVICE float subtract_minimum(const Block &, int, float, float acc) { return acc; }
