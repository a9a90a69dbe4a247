// Super-blocks of 8 blocks with an F16, d, and an int8 scale for each half of a block. A weight is
// d · scale · value.
#pragma once

enum { HALVES = 2, HAS_ADDEND = 0 };

DEVICE float dequantize(int q, int half, const uint8_t *scales, const uint8_t *super)
{
	return half_at(super) * (float)(int8_t)scales[half] * value_of(q);
}

DEVICE float factor(const Block &w, int output, int half)
{
	return half_to_float(w.super[output]) * (float)(int8_t)(w.scales[output] >> 8 * half);
}
