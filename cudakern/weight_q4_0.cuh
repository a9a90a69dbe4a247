// Q4_0: an F16 scale and 16 bytes: inputs 0-15 in the low nibbles, 16-31 in the high ones.
#pragma once

enum { HALVES = 1, OFFSET = 8 };

DEVICE unsigned raw_quant(Raw r, int i) { return i < 16 ? r.p[2 + i] & 15 : r.p[2 + i - 16] >> 4; }
DEVICE uint16_t raw_scales(Raw r) { return r.p[0] | r.p[1] << 8; }
DEVICE float dequantize(int q, int, const uint8_t *scales, const uint8_t *) { return (float)(q - OFFSET) * half_at(scales); }

DEVICE float add_scaled(const Block &w, int output, int, float dot, float scale, float acc)
{
	return fmaf(half_to_float(w.scales[output]) * scale, dot, acc);
}

DEVICE float subtract_minimum(const Block &, int, float, float acc) { return acc; }
