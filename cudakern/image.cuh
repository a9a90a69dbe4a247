// Writing the images that activation.cuh describes, with the bits that activation.cu writes: a warp writes
// a block, a lane one input of it.
#pragma once

#include "activation.cuh"

// Sum over the 16 lanes of each half of the warp.
template <typename T> DEVICE T sum_of_half(T v)
{
	UNROLL for (int mask = 8; mask > 0; mask /= 2)
		v += shfl_xor(v, mask);
	return v;
}

// Stores the sums of a block: of all values, and of its first 16.
template <typename T> DEVICE void store_sums(T *sums, int block, T v)
{
	T half = sum_of_half(v), sum = half + shfl_xor(half, 16);
	if (lane_id() == 0) {
		sums[block] = sum;
		sums[TILE_BLOCKS + block] = half;
	}
}

// Writes a block of the image of a tile; v is the lane's activation.
DEVICE void write_f32(uint4 *image, int block, float v)
{
	const int lane = lane_id();
	reinterpret_cast<float *>(image + lane / 4 * TILE_BLOCKS + block)[lane % 4] = v;
	store_sums(reinterpret_cast<float *>(image + F32_SUMS), block, v);
}

DEVICE void write_i16(uint4 *image, int block, float v)
{
	const int lane = lane_id();
	float *const scales = reinterpret_cast<float *>(image + I16_SCALES);
	const float max_abs = warp_max(fabsf(v));
	const bool finite = warp_ballot(!(fabsf(v) <= 3.402823466e38f)) == 0;
	int q = 0;
	float scale = finite ? 0 : __int_as_float(0x7fffffff);
	if (finite && max_abs > 1e-30f) { // for smaller ones 32512 / max_abs could overflow
		scale = max_abs / 32512;
		q = __float2int_rn(v * (32512 / max_abs));
	}
	const int neighbour = shfl_xor(q, 1);
	if (lane % 2 == 0)
		reinterpret_cast<uint32_t *>(image + lane / 8 * TILE_BLOCKS + block)[lane % 8 / 2] = uint32_t(q & 0xffff) | uint32_t(neighbour) << 16;
	if (lane == 0)
		scales[block] = scale;
	store_sums(reinterpret_cast<int *>(scales + TILE_BLOCKS), block, q);
}
