// image[row][tile] = the activations x[row], as products read them: activation.cuh.
//
//	i16   q = round(x / scale), scale = max |x| of the block / 32512
//	f32   x itself
//
// One block of threads makes one image, a warp 4 of its blocks, a lane one input of each.
// The largest q is 32512 = 127 · 256, not 32767, so that a block of whole numbers up to
// 127 has the scale 1/256 and no error. A NaN or an infinity in a block makes its scale
// NaN, and with it whatever is computed from it.
//
// Grid: (rows, tiles).
#include "activation.cuh"

enum { WARPS = 8, BLOCKS_PER_WARP = TILE_BLOCKS / WARPS };

// Sum over the 16 lanes of each half of the warp.
template <typename T> DEVICE T half_sum(T v)
{
	UNROLL for (int mask = 8; mask > 0; mask /= 2)
		v += shfl_xor(v, mask);
	return v;
}

// The sums of a block: of all its values, and of those of the lower half of the warp.
template <typename T> DEVICE void store_sums(T *sums, int block, T v)
{
	T half = half_sum(v), sum = half + shfl_xor(half, 16);
	if (lane_id() == 0) {
		sums[block] = sum;
		sums[TILE_BLOCKS + block] = half;
	}
}

DEVICE float input(const float *x, int inputs, int block)
{
	int i = (blockIdx.y * TILE_BLOCKS + block) * BLOCK_INPUTS + lane_id();
	return i < inputs ? x[size_t(blockIdx.x) * inputs + i] : 0;
}

KERNEL(activation_f32, 32 * WARPS, 1)(uint4 *image, const float *x, int inputs, const int *rows)
{
	if (int(blockIdx.x) >= *rows)
		return;
	image += (size_t(blockIdx.x) * gridDim.y + blockIdx.y) * F32_UNITS;
	UNROLL for (int i = 0; i < BLOCKS_PER_WARP; i++) {
		int block = warp_id() * BLOCKS_PER_WARP + i, lane = lane_id();
		float v = input(x, inputs, block);
		reinterpret_cast<float *>(image + lane / 4 * TILE_BLOCKS + block)[lane % 4] = v;
		store_sums(reinterpret_cast<float *>(image + F32_SUMS), block, v);
	}
}

KERNEL(activation_i16, 32 * WARPS, 1)(uint4 *image, const float *x, int inputs, const int *rows)
{
	if (int(blockIdx.x) >= *rows)
		return;
	image += (size_t(blockIdx.x) * gridDim.y + blockIdx.y) * I16_UNITS;
	float *scales = reinterpret_cast<float *>(image + I16_SCALES);
	UNROLL for (int i = 0; i < BLOCKS_PER_WARP; i++) {
		int block = warp_id() * BLOCKS_PER_WARP + i, lane = lane_id();
		float v = input(x, inputs, block), most = warp_max(fabsf(v));
		bool finite = warp_ballot(!(fabsf(v) <= 3.402823466e38f)) == 0;
		int q = 0;
		float scale = finite ? 0 : __int_as_float(0x7fffffff);
		if (finite && most > 1e-30f) { // below, 32512 / most could overflow
			scale = most / 32512;
			q = __float2int_rn(v * (32512 / most));
		}
		int neighbour = shfl_xor(q, 1);
		if (lane % 2 == 0)
			reinterpret_cast<uint32_t *>(image + lane / 8 * TILE_BLOCKS + block)[lane % 8 / 2] = uint32_t(q & 0xffff) | uint32_t(neighbour) << 16;
		if (lane == 0)
			scales[block] = scale;
		store_sums(reinterpret_cast<int *>(scales + TILE_BLOCKS), block, q);
	}
}
