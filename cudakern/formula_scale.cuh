// Weights with one F16 scale d for each block, its first 2 bytes: a weight is value · d.
#pragma once

DEVICE Scale raw_scales(Raw r) { return r.p[0] | r.p[1] << 8; }
DEVICE float dequantize(int q, int, const uint8_t *scales, const uint8_t *) { return value_of(q) * half_at(scales); }

DEVICE float add_scaled(const Block &w, int output, int, float dot, float scale, float acc)
{
	return fmaf(half_to_float(w.scales[output]) * scale, dot, acc);
}

DEVICE float subtract_minimum(const Block &, int, int, float, float acc) { return acc; }
