// image[row][tile] = the activations of a row in the layout that matrix products read: activation.cuh.
//
//	i16   q = round(v / scale), scale = max |v| of the block / 32512
//	f32   v itself
//
// The activations v are x, RMSNorm(x) · w or a GLU; the fused forms have the same bits as rmsnorm.cu and
// rows.cu. A thread block writes one image, a warp 4 of its blocks, a lane one input of each. The
// largest q is 32512 = 127 · 256, not 32767, so that a block of integers up to 127 has the scale
// 1/256 and no error. A NaN or an infinity makes the scale of its block NaN, so that every result
// that depends on it is NaN.
//
// Grid: (rows, tiles).
#include "activation.cuh"
#include "math.cuh"
#include "norm.cuh"

enum { WARPS = 8, BLOCKS_PER_WARP = TILE_BLOCKS / WARPS };

// The operands of one row's activations.
struct Operands {
	const float *x, *w;
	float scale;
	int inputs;
	int gate;
};

struct Plain {
	DEVICE float value(const Operands &row, int i) { return row.x[i]; }
};

struct Normed {
	DEVICE float value(const Operands &row, int i) { return row.x[i] * row.scale * row.w[i]; }
};

struct Gated {
	DEVICE float value(const Operands &row, int i) { return glu_of(row.gate, row.x[i], row.w ? row.w[i] : 1.0f); }
};

// Returns the lane's activation in a block of the tile; Source computes it.
template <typename Source> DEVICE float input(const Operands &row, int block)
{
	int i = (blockIdx.y * TILE_BLOCKS + block) * BLOCK_INPUTS + lane_id();
	return i < row.inputs ? Source::value(row, i) : 0;
}

// Sum over the 16 lanes of each half of the warp.
template <typename T> DEVICE T half_sum(T v)
{
	UNROLL for (int mask = 8; mask > 0; mask /= 2)
		v += shfl_xor(v, mask);
	return v;
}

// Stores the sums of a block: of all values, and of its first 16.
template <typename T> DEVICE void store_sums(T *sums, int block, T v)
{
	T half = half_sum(v), sum = half + shfl_xor(half, 16);
	if (lane_id() == 0) {
		sums[block] = sum;
		sums[TILE_BLOCKS + block] = half;
	}
}

template <typename Source> DEVICE void image_f32(uint4 *image, const Operands &row)
{
	image += (size_t(blockIdx.x) * gridDim.y + blockIdx.y) * F32_UNITS;
	UNROLL for (int i = 0; i < BLOCKS_PER_WARP; i++) {
		int block = warp_id() * BLOCKS_PER_WARP + i, lane = lane_id();
		float v = input<Source>(row, block);
		reinterpret_cast<float *>(image + lane / 4 * TILE_BLOCKS + block)[lane % 4] = v;
		store_sums(reinterpret_cast<float *>(image + F32_SUMS), block, v);
	}
}

template <typename Source> DEVICE void image_i16(uint4 *image, const Operands &row)
{
	image += (size_t(blockIdx.x) * gridDim.y + blockIdx.y) * I16_UNITS;
	float *scales = reinterpret_cast<float *>(image + I16_SCALES);
	UNROLL for (int i = 0; i < BLOCKS_PER_WARP; i++) {
		int block = warp_id() * BLOCKS_PER_WARP + i, lane = lane_id();
		float v = input<Source>(row, block), max_abs = warp_max(fabsf(v));
		bool finite = warp_ballot(!(fabsf(v) <= 3.402823466e38f)) == 0;
		int q = 0;
		float scale = finite ? 0 : __int_as_float(0x7fffffff);
		if (finite && max_abs > 1e-30f) { // for smaller ones 32512 / max_abs could overflow
			scale = max_abs / 32512;
			q = __float2int_rn(v * (32512 / max_abs));
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
			image_##kind<Plain>(image, Operands{x + size_t(blockIdx.x) * inputs, 0, 0, inputs, SILU}); \
	} \
	KERNEL(activation_##kind##_glu, 32 * WARPS, 1)(uint4 *image, const float *gate, const float *up, int kind_of_gate, int inputs, const int *rows) \
	{ \
		size_t first = size_t(blockIdx.x) * inputs; \
		if (int(blockIdx.x) < *rows) \
			image_##kind<Gated>(image, Operands{gate + first, up ? up + first : 0, 0, inputs, kind_of_gate}); \
	} \
	KERNEL(activation_##kind##_rmsnorm, 32 * WARPS, 1)(uint4 *image, const float *x, const float *w, float eps, int inputs, const int *rows) \
	{ \
		SHARED(float, partial); \
		if (int(blockIdx.x) >= *rows) \
			return; \
		x += size_t(blockIdx.x) * inputs; \
		image_##kind<Normed>(image, Operands{x, w, norm_scale(x, inputs, eps, partial), inputs, SILU}); \
	}

IMAGES(f32)
IMAGES(i16)
