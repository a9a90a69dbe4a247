// Writing the images that activation.cuh describes: a warp writes a block, a lane one input of it.
#pragma once

#include "activation.cuh"

// Sum over the 16 lanes of each half of the warp.
DEVICE int sum_of_half(int v)
{
	UNROLL for (int mask = 8; mask > 0; mask /= 2)
		v += shfl_xor(v, mask);
	return v;
}

// Returns the lane's activation v of a block as an integer, and sets the scale of the block.
DEVICE int quantize(float v, float *scale)
{
	const float max_abs = warp_max(fabsf(v));
	const bool finite = warp_ballot(!(fabsf(v) <= 3.402823466e38f)) == 0;
	*scale = finite ? 0 : __int_as_float(0x7fffffff);
	if (!finite || !(max_abs > 1e-30f)) // for smaller ones 32512 / max_abs could overflow
		return 0;
	*scale = max_abs / 32512;
	return __float2int_rn(v * (32512 / max_abs));
}

// Writes a block of the image of a tile; v is the lane's activation.
DEVICE void write_f32(uint4 *image, int block, float v)
{
	const int lane = lane_id();
	reinterpret_cast<float *>(image + lane / 4 * TILE_BLOCKS + block)[lane % 4] = v;
}

DEVICE void write_i16(uint4 *image, int block, float v)
{
	const int lane = lane_id();
	float *const scales = reinterpret_cast<float *>(image + I16_SCALES);
	int *const sums = reinterpret_cast<int *>(scales + TILE_BLOCKS);
	float scale;
	const int q = quantize(v, &scale), neighbour = shfl_xor(q, 1);
	if (lane % 2 == 0)
		reinterpret_cast<uint32_t *>(image + lane / 8 * TILE_BLOCKS + block)[lane % 8 / 2] = uint32_t(q & 0xffff) | uint32_t(neighbour) << 16;
	const int half = sum_of_half(q), sum = half + shfl_xor(half, 16);
	if (lane == 0) {
		scales[block] = scale;
		sums[block] = sum;
		sums[TILE_BLOCKS + block] = half;
	}
}

// Where a row's numbers are in a unit of the images for matrix units, in bytes.
struct InS8 {
	int upper, lower; // the first word of each kind
	int later;        // from a word to that of the inputs 16 later
	int all, scale, low, high;
};

DEVICE InS8 in_s8(int row)
{
	const int values = row % 8 * 64 + row / 8 * 4, sums = S8_FRAGMENTS + row * 4;
	return {values, values + S8_FRAGMENTS / 2, 8, sums, sums + 64, sums + 128, sums + 192};
}

DEVICE InS8 in_s8_columns(int row)
{
	const int eight = row / 8 * S8_EIGHT, values = eight + row % 8 * 64, sums = eight + S8_EIGHT_FRAGMENTS + row % 8 / 2 * 16 + row % 2 * 4;
	return {values, values + 8, 4, sums, sums + 8, sums + 64, sums + 72};
}

// Writes a block of a row of the units of 16 rows at units, those of a tile.
DEVICE void write_s8(uint8_t *units, const InS8 &at, int block, float v)
{
	const int lane = lane_id();
	uint8_t *const unit = units + block * S8_UNIT;
	float scale;
	const int q = quantize(v, &scale);
	const int half = sum_of_half(q), low = shfl(half, 0), sum = low + shfl(half, 16);
	// Lanes 0 to 15 each store a word: of the lower or upper bytes, for lane word of a unit's group of four, of
	// the first or last 16 inputs.
	const int word = lane / 2 % 4, last = lane / 8 % 2, first = 16 * last + word / 2 * 8 + word % 2 * 2;
	uint32_t bytes = 0;
	UNROLL for (int j = 0; j < 4; j++)
		bytes |= (uint32_t(shfl(q, first + j % 2 * 4 + j / 2)) >> (lane % 2 ? 8 : 0) & 255) << 8 * j;
	if (lane < 16)
		*reinterpret_cast<uint32_t *>(unit + (lane % 2 ? at.upper : at.lower) + word * 16 + last * at.later) = bytes;
	const auto store = [&](int to, float value) { *reinterpret_cast<float *>(unit + to) = value; };
	if (lane == 0) {
		store(at.all, scale * float(sum));
		store(at.scale, scale);
		store(at.low, scale * float(low));
		store(at.high, scale * float(sum - low));
	}
}
