// Q2_K, super-blocks of 8 blocks: for each half of a block a byte with a scale in its low nibble and a
// minimum in its high one; 64 bytes of quants, where four blocks share 32; and two F16, d and dmin. A
// weight is q · (d · scale) - dmin · minimum. The two bits of a quant are stored as four.
#pragma once

enum { HALVES = 2, OFFSET = 0, HAS_ADDEND = 1 };

DEVICE unsigned raw_quant(Raw r, int i) { return r.p[16 + r.part / 4 * 32 + i] >> r.part % 4 * 2 & 3; }
DEVICE Scale raw_scales(Raw r) { return r.p[2 * r.part] | r.p[2 * r.part + 1] << 8; }
DEVICE void repack_super(uint8_t *at, Raw r) { memcpy(at, r.p + 80, 4); }

DEVICE float dequantize(int q, int half, const uint8_t *scales, const uint8_t *super)
{
	return (float)q * (half_at(super) * (float)(scales[half] & 15)) - half_at(super + 2) * (float)(scales[half] >> 4);
}

DEVICE float factor(const Block &w, int output, int half)
{
	float d = half_to_float(uint16_t(w.super[output])), half_scale = (float)(w.scales[output] >> 8 * half & 15);
	return d * half_scale;
}

DEVICE float addend(const Block &w, int output, int half)
{
	float dmin = half_to_float(uint16_t(w.super[output] >> 16)), minimum = (float)(w.scales[output] >> (8 * half + 4) & 15);
	return -dmin * minimum;
}
