// image[row][tile] = the activations of a row in the layout that matrix products read: activation.cuh.
//
//	i16   q = round(v / scale), scale = max |v| of the block / 32512
//	f32   v itself
//	s8    as i16, arranged for matrix units
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

template <typename Source> DEVICE void image_i16(uint4 *image, const Operands &row)
{
	image += (size_t(blockIdx.x) * gridDim.y + blockIdx.y) * I16_UNITS;
	float *scales = reinterpret_cast<float *>(image + I16_SCALES);
	UNROLL for (int i = 0; i < BLOCKS_PER_WARP; i++) {
		int block = warp_id() * BLOCKS_PER_WARP + i, lane = lane_id();
		float scale;
		int q = quantize(input<Source>(row, block), &scale);
		int neighbour = shfl_xor(q, 1);
		if (lane % 2 == 0)
			reinterpret_cast<uint32_t *>(image + lane / 8 * TILE_BLOCKS + block)[lane % 8 / 2] = uint32_t(q & 0xffff) | uint32_t(neighbour) << 16;
		if (lane == 0)
			scales[block] = scale;
		store_sums(reinterpret_cast<int *>(scales + TILE_BLOCKS), block, q);
	}
}

template <typename Source> DEVICE void image_s8(uint4 *image, const Operands &row)
{
	const int lane = lane_id(), in_unit = blockIdx.x % 16;
	uint8_t *units = reinterpret_cast<uint8_t *>(image) + (size_t(blockIdx.x / 16) * gridDim.y + blockIdx.y) * TILE_BLOCKS * S8_UNIT;
	UNROLL for (int i = 0; i < BLOCKS_PER_WARP; i++) {
		const int block = warp_id() * BLOCKS_PER_WARP + i;
		uint8_t *unit = units + block * S8_UNIT;
		float scale;
		const int q = quantize(input<Source>(row, block), &scale);
		const int half = half_sum(q), low = shfl(half, 0), sum = low + shfl(half, 16);
		// Lanes 0 to 15 each store a word: of the lower or upper bytes, for lane word of a unit's group of four, of
		// the first or last 16 inputs.
		const int word = lane / 2 % 4, last = lane / 8 % 2, first = 16 * last + word / 2 * 8 + word % 2 * 2;
		uint32_t bytes = 0;
		UNROLL for (int j = 0; j < 4; j++)
			bytes |= (uint32_t(shfl(q, first + j % 2 * 4 + j / 2)) >> (lane % 2 ? 8 : 0) & 255) << 8 * j;
		if (lane < 16) {
			const int at = (lane % 2 ? 0 : 512) + (in_unit % 8 * 4 + word) * 16 + (2 * last + in_unit / 8) * 4;
			*reinterpret_cast<uint32_t *>(unit + at) = bytes;
		}
		float *rows = reinterpret_cast<float *>(unit + S8_FRAGMENTS) + in_unit;
		if (lane == 0) {
			rows[0] = scale * float(sum);
			rows[16] = scale;
			rows[32] = scale * float(low);
			rows[48] = scale * float(sum - low);
		}
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
IMAGES(s8)
