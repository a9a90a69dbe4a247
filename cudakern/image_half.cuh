// Writing the image that products with F16 and BF16 weights by matrix units read (half.cuh, matmul_prompt.cu): a warp writes a block, a lane one input of it.
//
//	value   [chunk][block]  16 bytes: eight halves
//
// Inputs past the end of a row are zero.
#pragma once

#include "tile.cuh"

enum { HALF_CHUNKS = 4, HALF_UNITS = HALF_CHUNKS * TILE_BLOCKS };

// Writes a block of the image of a tile; v is the lane's activation. Its half is of one sixteenth, so that it is below 2²⁰ rather than 2¹⁶.
DEVICE void write_half(uint4 *image, int block, float v)
{
	const int lane = lane_id();
	reinterpret_cast<uint16_t *>(image + lane / 8 * TILE_BLOCKS + block)[lane % 8] = float_to_half(v / 16);
}
