// image[row][tile] = the activations of a row, as products read them: activation.cuh.
//
//	i16   q = round(v / scale), scale = max |v| of the block / 32512
//	f32   v itself
//
// The activations v are x, or what nothing but products needs of it: RMSNorm(x) · w or
// a gate of x times w, with the bits of rmsnorm.cu and rows.cu. One block of threads makes one image,
// a warp 4 of its blocks, a lane one input of each. The largest q is 32512 = 127 · 256, not
// 32767, so that a block of whole numbers up to 127 has the scale 1/256 and no error. A NaN
// or an infinity in a block makes its scale NaN, and with it whatever is computed from it.
//
// Grid: (rows, tiles).
#include "activation.cuh"
#include "math.cuh"
#include "norm.cuh"

enum { WARPS = 8, BLOCKS_PER_WARP = TILE_BLOCKS / WARPS };

// What a row's activations are made of, and how.
struct Row {
	const float *x, *w;
	float scale;
	int inputs;
	int gate;
};

struct Plain {
	DEVICE float value(const Row &row, int i) { return row.x[i]; }
};

struct Normed {
	DEVICE float value(const Row &row, int i) { return row.x[i] * row.scale * row.w[i]; }
};

struct Gated {
	DEVICE float value(const Row &row, int i) { return glu_of(row.gate, row.x[i], row.w ? row.w[i] : 1.0f); }
};

// The activation of the warp's lane in a block of the tile.
template <typename Made> DEVICE float input(const Row &row, int block)
{
	int i = (blockIdx.y * TILE_BLOCKS + block) * BLOCK_INPUTS + lane_id();
	return i < row.inputs ? Made::value(row, i) : 0;
}

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

template <typename Made> DEVICE void image_f32(uint4 *image, const Row &row)
{
	image += (size_t(blockIdx.x) * gridDim.y + blockIdx.y) * F32_UNITS;
	UNROLL for (int i = 0; i < BLOCKS_PER_WARP; i++) {
		int block = warp_id() * BLOCKS_PER_WARP + i, lane = lane_id();
		float v = input<Made>(row, block);
		reinterpret_cast<float *>(image + lane / 4 * TILE_BLOCKS + block)[lane % 4] = v;
		store_sums(reinterpret_cast<float *>(image + F32_SUMS), block, v);
	}
}

template <typename Made> DEVICE void image_i16(uint4 *image, const Row &row)
{
	image += (size_t(blockIdx.x) * gridDim.y + blockIdx.y) * I16_UNITS;
	float *scales = reinterpret_cast<float *>(image + I16_SCALES);
	UNROLL for (int i = 0; i < BLOCKS_PER_WARP; i++) {
		int block = warp_id() * BLOCKS_PER_WARP + i, lane = lane_id();
		float v = input<Made>(row, block), most = warp_max(fabsf(v));
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

#define IMAGES(kind) \
	KERNEL(activation_##kind, 32 * WARPS, 1)(uint4 *image, const float *x, int inputs, const int *rows) \
	{ \
		if (int(blockIdx.x) < *rows) \
			image_##kind<Plain>(image, Row{x + size_t(blockIdx.x) * inputs, 0, 0, inputs, SILU}); \
	} \
	KERNEL(activation_##kind##_glu, 32 * WARPS, 1)(uint4 *image, const float *gate, const float *up, int kind_of_gate, int inputs, const int *rows) \
	{ \
		size_t first = size_t(blockIdx.x) * inputs; \
		if (int(blockIdx.x) < *rows) \
			image_##kind<Gated>(image, Row{gate + first, up ? up + first : 0, 0, inputs, kind_of_gate}); \
	} \
	KERNEL(activation_##kind##_rmsnorm, 32 * WARPS, 1)(uint4 *image, const float *x, const float *w, float eps, int inputs, const int *rows) \
	{ \
		SHARED(float, partial); \
		if (int(blockIdx.x) >= *rows) \
			return; \
		x += size_t(blockIdx.x) * inputs; \
		image_##kind<Normed>(image, Row{x, w, norm_scale(x, inputs, eps, partial), inputs, SILU}); \
	}

IMAGES(f32)
IMAGES(i16)
