// Q8_0: an F16 scale and 32 int8.
#pragma once

enum { HALVES = 1, OFFSET = 128 };

DEVICE unsigned raw_quant(Raw r, int i) { return r.p[2 + i] ^ 0x80; }
DEVICE uint16_t raw_scales(Raw r) { return r.p[0] | r.p[1] << 8; }
DEVICE float dequantize(int q, int, const uint8_t *scales, const uint8_t *) { return (float)(q - OFFSET) * half_at(scales); }

DEVICE float add_scaled(const Block &w, int output, int, float dot, float scale, float acc)
{
	return fmaf(half_to_float(w.scales[output]) * scale, dot, acc);
}

DEVICE float subtract_minimum(const Block &, int, float, float acc) { return acc; }
