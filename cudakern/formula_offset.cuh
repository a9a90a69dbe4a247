// Weights with two F16 for each block, d and m, its first 4 bytes: a weight is q · d + m.
#pragma once

enum { HALVES = 1, OFFSET = 0 };

DEVICE Scale raw_scales(Raw r) { return word_at(r.p); }

DEVICE float dequantize(int q, int, const uint8_t *scales, const uint8_t *)
{
	return (float)q * half_at(scales) + half_at(scales + 2);
}

DEVICE float add_scaled(const Block &w, int output, int, float dot, float scale, float acc)
{
	return fmaf(half_to_float(uint16_t(w.scales[output])) * scale, dot, acc);
}

DEVICE float subtract_minimum(const Block &w, int output, int, float x, float acc)
{
	return fmaf(half_to_float(uint16_t(w.scales[output] >> 16)), x, acc);
}
