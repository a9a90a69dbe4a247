// Weights with two F16 for each block, d and m, its first 4 bytes: a weight is q · d + m.
#pragma once

enum { HALVES = 1, OFFSET = 0, HAS_ADDEND = 1 };

DEVICE Scale raw_scales(Raw r) { return word_at(r.p); }

DEVICE float dequantize(int q, int, const uint8_t *scales, const uint8_t *)
{
	return (float)q * half_at(scales) + half_at(scales + 2);
}

DEVICE float factor(const Block &w, int output, int) { return half_to_float(uint16_t(w.scales[output])); }
DEVICE float addend(const Block &w, int output, int) { return half_to_float(uint16_t(w.scales[output] >> 16)); }
