// Super-blocks of 8 blocks with an F16, d, and an int8 scale for each half of a block. A weight is
// d · scale · value.
#pragma once

enum { HALVES = 2 };

DEVICE float dequantize(int q, int half, const uint8_t *scales, const uint8_t *super)
{
	return half_at(super) * (float)(int8_t)scales[half] * value_of(q);
}

DEVICE float add_scaled(const Block &w, int output, int half, float dot, float scale, float acc)
{
	float half_scale = int8_t(w.scales[output] >> 8 * half);
	return fmaf(half_to_float(w.super[output]) * half_scale * scale, dot, acc);
}

DEVICE float subtract_minimum(const Block &, int, int, float, float acc) { return acc; }
