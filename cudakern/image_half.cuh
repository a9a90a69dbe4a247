// Writing the images that products with F16 and BF16 weights by matrix units read (half.cuh): a warp writes a block, a lane one input of it.
//
//	value   [value][chunk][block]  16 bytes: eight halves or bfloats
//
// half has one value of an activation, bfloats two: a bfloat16, and another one for what it lacks. Inputs past the end of a row are zero.
#pragma once

#include "tile.cuh"

enum { HALF_CHUNKS = 4, HALF_UNITS = HALF_CHUNKS * TILE_BLOCKS }; // of a value

// Returns x as a half of one sixteenth, so that it is below 2²⁰ rather than 2¹⁶.
DEVICE uint16_t half_of(float x) { return float_to_half(x / 16); }

// Returns the bfloat16 that is nearest to x, ties to even.
DEVICE uint16_t bfloat_of(float x)
{
	const uint32_t bits = __float_as_uint(x);
	return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// Returns what a bfloat16, upper, lacks of x: infinity lacks nothing.
DEVICE float rest_of(float x, uint16_t upper) { return (upper & 0x7f80) == 0x7f80 ? 0 : x - __uint_as_float(uint32_t(upper) << 16); }

// Writes a value of a block of the image of a tile; v is the lane's.
DEVICE void write_value(uint4 *image, int value, int block, uint16_t v)
{
	const int lane = lane_id();
	reinterpret_cast<uint16_t *>(image + (value * HALF_CHUNKS + lane / 8) * TILE_BLOCKS + block)[lane % 8] = v;
}

DEVICE void write_half(uint4 *image, int block, float v) { write_value(image, 0, block, half_of(v)); }

DEVICE void write_bfloats(uint4 *image, int block, float v)
{
	const uint16_t upper = bfloat_of(v);
	write_value(image, 0, block, upper), write_value(image, 1, block, bfloat_of(rest_of(v, upper)));
}
